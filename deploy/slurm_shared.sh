#!/usr/bin/env bash
# A search on parts of nodes that others use as well: sbatch deploy/slurm_shared.sh EXPERIMENT [options]
# Every port is derived from the job's number, so two jobs on one node do not meet; the token keeps others out.
#SBATCH --job-name=rst-tune
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-task=1
#SBATCH --mem-per-cpu=4G
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
set -euo pipefail

experiment=${1:?give an experiment, for example: sbatch deploy/slurm_shared.sh cifar10_resnet18}
shift
output=${RST_TUNE_OUTPUT:-$SLURM_SUBMIT_DIR/output/$experiment}

base=$((20000 + SLURM_JOB_ID % 200 * 200))
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
gpus=${SLURM_GPUS_PER_TASK:-0}
export RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=token RAY_TMPDIR=/tmp/ray-$SLURM_JOB_ID
RAY_AUTH_TOKEN=$(python3 -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN

node() {  # node HOST OPTIONS…: Ray on one node, within what Slurm gave us there
    local host=$1
    shift
    srun --nodes=1 --ntasks=1 --nodelist="$host" --overlap \
        ray start "$@" --block --disable-usage-stats --temp-dir "$RAY_TMPDIR" \
        --num-cpus "$SLURM_CPUS_PER_TASK" --num-gpus "$gpus" \
        --node-manager-port $((base + 1)) --object-manager-port $((base + 2)) \
        --runtime-env-agent-port $((base + 3)) --dashboard-agent-grpc-port $((base + 4)) \
        --dashboard-agent-listen-port $((base + 5)) --metrics-export-port $((base + 6)) \
        --min-worker-port $((base + 20)) --max-worker-port $((base + 199)) &
}

# Whatever ends this script ends Ray on all nodes: the steps are its children.
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
trap 'kill -TERM "$search" 2>/dev/null || true' TERM INT

node "$head" --head --port "$base" --ray-client-server-port $((base + 7)) \
    --dashboard-host 127.0.0.1 --dashboard-port $((base + 8))
for host in $(scontrol show hostnames "$SLURM_JOB_NODELIST" | tail -n +2); do
    node "$host" --address "$head:$base"
done

until [ "$(srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
    python3 -c "import ray; ray.init('$head:$base', logging_level='ERROR'); print(len(ray.nodes()))" \
    2>/dev/null)" = "$SLURM_JOB_NUM_NODES" ]; do
    sleep 5
done

srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
    rst-tune run "$experiment" --address "$head:$base" --output "$output" "$@" &
search=$!
wait "$search"

#!/usr/bin/env bash
# A search on parts of nodes that others use as well: sbatch deploy/slurm_shared.sh EXPERIMENT [options of `rst-tune run`]
# Activate the environment that has rst_tune before: sbatch passes it on. Every port is derived from the job's number, so
# two jobs on one node do not collide, and the token keeps other users out. (`ray symmetric-run` is not used here: it ends
# with `ray stop`, which would end the Ray of another job on the same node.)
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
# A requeued job has the same name and directory, so it resumes.
output=${RST_TUNE_OUTPUT:-$SLURM_SUBMIT_DIR/output/$(basename "$experiment" .yaml)}
patience=${RST_TUNE_WAIT_SECONDS:-600}

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
        --num-cpus "${SLURM_CPUS_PER_TASK:-1}" --num-gpus "${gpus##*:}" \
        --node-manager-port $((base + 1)) --object-manager-port $((base + 2)) \
        --runtime-env-agent-port $((base + 3)) --dashboard-agent-grpc-port $((base + 4)) \
        --dashboard-agent-listen-port $((base + 5)) --metrics-export-port $((base + 6)) \
        --min-worker-port $((base + 20)) --max-worker-port $((base + 199)) &
}

search=
# Whatever ends this script ends Ray on all nodes: the steps are its children.
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
trap '[ -z "$search" ] && exit 143; kill -TERM "$search" 2>/dev/null || true' TERM INT

node "$head" --head --port "$base" --include-dashboard false
for host in $(scontrol show hostnames "$SLURM_JOB_NODELIST" | tail -n +2); do
    node "$host" --address "$head:$base"
done

wait_for_nodes='
import socket, sys, time
import ray

address, nodes, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
deadline, alive, problem = time.monotonic() + seconds, 0, ""
while alive < nodes:
    try:
        socket.create_connection(address.rsplit(":", 1), timeout=5).close()  # ray.init waits long where nobody listens
        ray.init(address, logging_level="ERROR", log_to_driver=False, ignore_reinit_error=True)
        alive = sum(node["Alive"] for node in ray.nodes())
    except Exception as error:
        problem = f" ({str(error).splitlines()[0]})"
    if alive < nodes and time.monotonic() > deadline:
        sys.exit(f"error: {alive} of {nodes} Ray nodes answer at {address} after {seconds:g} s{problem}: read the output "
                 "of `ray start` above; on slow nodes set RST_TUNE_WAIT_SECONDS")
    time.sleep(1)
'
# The limit of `timeout` is for a connection that hangs.
timeout $((patience + 60)) srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
    python3 -c "$wait_for_nodes" "$head:$base" "$SLURM_JOB_NUM_NODES" "$patience"

srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
    rst-tune run "$experiment" --address "$head:$base" --output "$output" "$@" &
search=$!
# A signal ends `wait` before the search has ended: wait again, for its exit code.
code=0
wait "$search" || code=$?
while kill -0 "$search" 2>/dev/null; do
    code=0
    wait "$search" || code=$?
done
exit "$code"

#!/usr/bin/env bash
# A search on whole nodes: sbatch deploy/slurm_exclusive.sh EXPERIMENT [options of `rst-tune run`]
# Activate the environment that has rst_tune before: sbatch passes it on.
# `ray symmetric-run` starts Ray on every node, runs the search on the first, and ends Ray with it.
#SBATCH --job-name=rst-tune
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --gpus-per-node=4
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
set -euo pipefail

experiment=${1:?give an experiment, for example: sbatch deploy/slurm_exclusive.sh cifar10_resnet18}
shift
# A requeued job has the same name and directory, so it resumes.
output=${RST_TUNE_OUTPUT:-$SLURM_SUBMIT_DIR/output/$(basename "$experiment" .yaml)}

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=token
# How long Ray waits for the other nodes: its default of 30 s is short where an environment lies on a network.
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=${RST_TUNE_WAIT_SECONDS:-600}
RAY_AUTH_TOKEN=$(python3 -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN

srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" \
    ray symmetric-run --address "$head:6379" --min-nodes "$SLURM_JOB_NUM_NODES" --dashboard-host=127.0.0.1 -- \
    rst-tune run "$experiment" --address "$head:6379" --output "$output" "$@" &
child=$!
trap 'kill -TERM "$child"' TERM INT
# A signal ends `wait` before the search has ended: wait again, for its exit code.
code=0
wait "$child" || code=$?
while kill -0 "$child" 2>/dev/null; do
    code=0
    wait "$child" || code=$?
done
exit "$code"

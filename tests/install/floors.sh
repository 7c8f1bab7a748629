#!/usr/bin/env bash
# floors.sh PYTHON: the tests of every room with the lowest versions that pyproject.toml allows (uv resolves them).
# The environments take 6 GB each and are removed at the end. ROOMS="method tuning" tests only these.
set -euo pipefail
python=$1
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/uv"
"$work/uv/bin/pip" install -q uv >"$work/log.txt" 2>&1 || { cat "$work/log.txt"; exit 1; }
export UV_CACHE_DIR=${UV_CACHE_DIR:-$work/cache} RAY_USAGE_STATS_ENABLED=0 MLFLOW_DISABLE_TELEMETRY=true
tools=(pytest pytest-xdist pytest-timeout hypothesis numpy)  # numpy: DDP's hooks and pytorch_optimizer import it

floor() {  # floor NAME EXTRA ROOMS…: the rooms' tests in an environment with the lowest versions of an extra
    local environment=$work/$1 extra=$2 rooms=()
    shift 2
    for room in "$@"; do
        [[ " ${ROOMS:-$room} " == *" $room "* ]] && rooms+=("tests/$room")
    done
    [ ${#rooms[@]} -eq 0 ] && return
    "$work/uv/bin/uv" venv -q -p "$python" "$environment"
    "$work/uv/bin/uv" pip install -q -p "$environment" --resolution lowest-direct ".$extra"
    "$work/uv/bin/uv" pip install -q -p "$environment" "${tools[@]}"
    "$work/uv/bin/uv" pip install -q -p "$environment" --no-deps pytorch_optimizer  # compared with; asks for more
    "$work/uv/bin/uv" pip list -q -p "$environment" | grep -iE '^(torch|torchvision|ray|optuna|mlflow|pydantic|numpy|scipy|scikit-learn|plotly|typer|rich|moocore|pyarrow) '
    PYTHONPATH=$PWD "$environment/bin/python" -m pytest -q -n 2 --dist loadfile -m "not faults" -p no:cacheprovider "${rooms[@]}"
    rm -rf "$environment"
}

floor optimizer "" method
floor search "[tune,models]" records analysis report training tuning tracking test_cli.py

#!/usr/bin/env bash
# dist.sh PYTHON: build wheel and sdist, check them, install the wheel outside of the checkout, run a tiny search there.
# CLEAN=0 takes the packages of PYTHON's environment instead of installing all of them again (gigabytes, minutes).
set -euo pipefail
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log.txt
step() {  # step TEXT COMMAND…: one line per step; the output only on failure
    echo "$1"
    shift
    "$@" >"$log" 2>&1 || { cat "$log"; echo "failed: $*"; exit 1; }
}

rm -rf dist
step "build tools" "$python" -m venv "$work/build"
step "… install" "$work/build/bin/pip" install build twine
step "wheel and sdist in dist/" "$work/build/bin/python" -m build --outdir dist .
step "check of their metadata" "$work/build/bin/twine" check --strict dist/*
wheel=$(realpath dist/*.whl)

step "a clean environment" "$python" -m venv "$work/clean"
clean=$work/clean/bin
cd "$work"
if [ "${CLEAN:-1}" = 0 ]; then
    "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$("$clean/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/dependencies.pth"
    step "the wheel alone" "$clean/pip" install --no-deps --ignore-installed "$wheel"
else
    step "the wheel: optimizer only" "$clean/pip" install "$wheel"
    step "… steps" "$clean/python" -c '
import torch, rst_tune
model = torch.nn.Linear(2, 1)
base = torch.optim.SGD(model.parameters(), lr=0.1)
opt = rst_tune.RST(base, model, schedule=rst_tune.schedules.constant(1.0), total_steps=1, rho=0.1)
opt.step(lambda: model(torch.ones(1, 2)).sum())'
    "$clean/rst-tune" --help >"$log" 2>&1 && { echo "failed: rst-tune works without its extra"; exit 1; }
    grep -q "pip install 'rst_tune\[tune\]'" "$log" || { cat "$log"; exit 1; }
    step "the wheel with the extra tune" "$clean/pip" install "$wheel[tune]"
fi
step "… is imported from the environment" "$clean/python" -c "import rst_tune, sys; assert rst_tune.__file__.startswith(sys.prefix), rst_tune.__file__"
step "a tiny search" "$clean/rst-tune" run digits --output "$work/search" --set budget.pairs=120 --set task.recipe.epochs=7 \
    --set task.data.train_size=128 --set confirm.enabled=false
test -s "$work/search/report.html"
echo "the wheel works: $wheel"

"""Every file of examples/ runs at small size, is short, and is in the README of its folder."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = {
    "own_function.py": (["ray", "mlflow"], 4, r"RMSE (0\.\d+)"),
    "plain_torch.py": ([], 3, r"test error \d+\.\d%, 24 steps, (\d+) forward-backward pairs"),
    "lightning_module.py": (["lightning"], 1, r"Classifier: 8 steps, \d+ .*ManualClassifier: 16 steps, (\d+)"),
    "huggingface_trainer.py": (["transformers", "accelerate"], 1, r"evaluation loss \d\.\d+, 8 steps, (12)"),
    "ray_tune.py": (["ray"], 4, r"(\d) of 4 trials are on the front\n.*error"),
    "optuna_study.py": (["optuna"], 4, r"(\d) of 4 trials are on the front\n.*error"),
    "fsdp2.py": ([], 6, r"loss \d\.\d+, 6 steps, (\d+) forward-backward pairs on 2 ranks"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name, tmp_path):
    packages, size, expected = EXAMPLES[name]
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    command = [sys.executable, str(FOLDER / name), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(expected, done.stdout, re.DOTALL), done.stdout


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_in_the_readme(path):
    assert len(path.read_text().splitlines()) <= 60
    assert f"[{path.name}]({path.name})" in (FOLDER / "README.md").read_text()

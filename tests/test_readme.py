"""Every snippet of the README is executed, and every promise of docs/security.md names tests that exist."""

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
DATA = (ROOT / "docs" / "howto" / "data.md").read_text()
SMALL_TRAINING = [
    "--set",
    "task.recipe.epochs=2",
    "--set",
    "task.recipe.batch_size=16",
    "--set",
    "task.data.validation=20",
]
SMALL = ["--set", "task.recipe.epochs=7", "--set", "task.data.train_size=128"]
SMALL_OWN, SMALL_SHIPPED = [*SMALL, "--set", "budget.trainings=4"], [*SMALL, "--set", "budget.pairs=120"]


def snippets(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands(*names: str) -> list[str]:
    lines = [line.split("#")[0].strip() for block in snippets("bash") for line in block.splitlines()]
    return [line for line in lines if line.startswith(names)]


@pytest.mark.parametrize("code", snippets("python"), ids=lambda code: code.split("\n")[-2][:30])
def test_python(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    if "found" in names:
        assert "RMSE" in names["found"].answer
        assert names["found"].search.done


def test_the_first_example_is_a_training_function_of_at_most_15_lines():
    first = snippets("python")[0]
    assert "def train(trial)" in first
    assert len(first.splitlines()) <= 15


def test_it_is_short():
    assert len(README.splitlines()) <= 130


def test_make_targets_exist():
    told = set(re.findall(r"`make (\w+)`", README)) | {c.split()[1] for c in commands("make ")}
    assert {"demo", "test", "check", "bench", "faults", "report", "docs", "dist", "floors"} <= told
    for target in told:
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def run(words: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from rst_tune.cli import main; main()", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600)


def test_every_promise_of_the_security_page_names_tests_that_exist():
    text = (ROOT / "docs" / "security.md").read_text()
    promises = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    promises = [line for line in promises if line != "| promise | test |"]
    assert len(promises) >= 15
    for promise in promises:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", promise)
        assert named, f"no test: {promise}"
        for path, name in named:
            assert re.search(rf"^\s*def {name}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{name}"


def test_nothing_phones_home():
    """Importing what a search imports turns the telemetry of Ray and MLflow off, unless the user says otherwise."""
    code = (
        "import os; import rst_tune.tuning.backend.cluster; from rst_tune.tracking import client; client.quiet(); "
        "print(os.environ['RAY_USAGE_STATS_ENABLED'], os.environ['MLFLOW_DISABLE_TELEMETRY'])"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MLFLOW_"))}
    env = {**clean, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == ["0", "true"], done.stderr


@pytest.mark.slow
def test_the_commands_on_ones_own_model_and_data(tmp_path):
    """`plan`, `run`, `front`, `report`, the YAML and the training of docs/howto/data.md as printed, at a small size."""
    (tmp_path / "mine.yaml").write_text(snippets("yaml")[0])
    write_images(tmp_path / "data" / "cifar10.npz")
    lines = [
        shlex.split(line)
        for line in commands("rst-tune ")
        if "$" not in line and not {"review", "watch"} & {*line.split()}
    ]
    lines += [shlex.split(line) for line in re.findall(r"^rst-tune train .*npz$", DATA, flags=re.MULTILINE)]
    assert [words[1] for words in lines] == ["plan", "run", "front", "report", "train"]
    for words in lines:
        small = {"plan": SMALL_OWN, "run": SMALL_OWN, "train": SMALL_TRAINING}.get(words[1], [])
        done = run([*words[1:], *small], tmp_path)
        assert done.returncode == 0, (words, done.stderr)
        assert done.stdout.strip()


def write_images(path: Path) -> None:
    """Write random images of CIFAR's shape."""
    rng = np.random.default_rng(0)
    parts = {}
    for name, count in (("train", 40), ("test", 20)):
        parts[f"x_{name}"] = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        parts[f"y_{name}"] = np.arange(count) % 10
    path.parent.mkdir()
    np.savez(path, **parts)


@pytest.mark.slow
def test_the_commands_on_a_cluster(tmp_path):
    """`doctor` and `run` as printed, against a cluster that was started with `ray start`."""
    pytest.importorskip("ray")
    port = free_port()
    env = {"RAY_AUTH_MODE": "disabled", "RAY_ADDRESS": f"127.0.0.1:{port}", "SHARED": str(tmp_path)}
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", f"--port={port}", "--num-cpus=2"]
    start += ["--node-ip-address=127.0.0.1", "--include-dashboard=false", "--block"]
    quiet = {**os.environ, **env, "RAY_USAGE_STATS_ENABLED": "0"}
    quiet.pop("RAY_AUTH_TOKEN", None)
    head = subprocess.Popen(start, env=quiet, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for_port(port)
        for line in (c for c in commands("rst-tune ") if "$" in c):
            words = [word.replace("$RAY_ADDRESS", env["RAY_ADDRESS"]) for word in shlex.split(line)]
            words = [word.replace("$SHARED", env["SHARED"]) for word in words]
            done = run([*words[1:], *SMALL_SHIPPED], tmp_path, **env)
            assert done.returncode == 0, (words, done.stdout, done.stderr)
    finally:
        head.terminate()  # `ray stop` would end every other cluster of this machine as well
        head.wait(300)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port: int) -> None:
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on {port}")

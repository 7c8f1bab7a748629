"""The Slurm scripts, run for real with a stand-in for Slurm: `srun` calls its command, `scontrol` lists one host."""

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from rst_tune.records import load

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENT = {
    "name": "tiny",
    "task": {
        "data": {"name": "digits", "validation": 100, "train_size": 64},
        "recipe": {"base": "digits", "epochs": 2, "batch_size": 16},
    },
    "space": "grst",
    "budget": {"trials": 2},
    "fidelity": {"rungs": 1},
    "confirm": {"enabled": False},
    "tracking": {"enabled": False},
}
SRUN = """#!/usr/bin/env bash
# Drop the options of srun, then become the command.
echo "srun $*" >> "$SRUN_LOG"
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""
RST_TUNE = f"#!{sys.executable}\nfrom rst_tune.cli import main\nmain()\n"


def free_job() -> int:
    """Return the number of a job whose ports nobody uses."""
    for job in range(os.getpid() % 200, os.getpid() % 200 + 200):
        base = 20000 + job % 200 * 200
        if not any(in_use(base + offset) for offset in (0, 1, 2, 3, 4, 5, 6, 20, 21)):
            return job
    raise RuntimeError("no free range of ports")


def in_use(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return True
    return False


@pytest.fixture
def slurm(tmp_path):
    """The environment of a job on one node."""
    import ray

    tools = tmp_path / "tools"
    tools.mkdir()
    host = ray.util.get_node_ip_address()
    scripts = {"srun": SRUN, "scontrol": f"#!/usr/bin/env bash\necho {host}\n", "rst-tune": RST_TUNE}
    for name, text in scripts.items():
        (tools / name).write_text(text)
        (tools / name).chmod((tools / name).stat().st_mode | stat.S_IEXEC)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    quiet = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    job = free_job()
    return {
        **quiet,
        "PATH": os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "SLURM_JOB_ID": str(job),
        "SLURM_JOB_NODELIST": "node",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_CPUS_PER_TASK": "1",
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SRUN_LOG": str(tmp_path / "srun.txt"),
    }


def left_of(environment) -> list[psutil.Process]:
    """Return the processes of a job's Ray, after a moment in which they may end."""
    folder = f"/tmp/ray-{environment['SLURM_JOB_ID']}/"
    for _ in range(600):
        found = [p for p in psutil.process_iter(["cmdline"]) if folder in " ".join(p.info["cmdline"] or ())]
        if not found:
            break
        time.sleep(0.2)
    return found


def start(script: str, environment, folder: Path, *words: str) -> subprocess.Popen:
    command = ["bash", str(ROOT / "deploy" / script), *words]
    text = (folder / "job.txt").open("w")
    return subprocess.Popen(command, env=environment, cwd=folder, stdout=text, stderr=subprocess.STDOUT)


def end(job: subprocess.Popen, environment) -> None:
    if job.poll() is None:
        job.kill()
    for process in left_of(environment):
        process.kill()


@pytest.mark.slow
def test_the_shared_script_searches_in_the_projects_own_environment_and_leaves_no_ray_behind(slurm, tmp_path):
    job = start("slurm_shared.sh", slurm, tmp_path, "tiny.yaml", "--quiet")
    try:
        assert job.wait(600) == 0, (tmp_path / "job.txt").read_text()
        assert load(tmp_path / "output" / "tiny").done
        assert left_of(slurm) == []
    finally:
        end(job, slurm)


@pytest.mark.slow
def test_the_shared_script_passes_slurms_signal_on_and_the_search_can_be_resumed(slurm, tmp_path):
    job = start("slurm_shared.sh", slurm, tmp_path, "tiny.yaml", "--quiet", "--set", "task.recipe.epochs=2000")
    try:
        events = tmp_path / "output" / "tiny" / "events.jsonl"
        deadline = time.monotonic() + 600
        while not (events.exists() and b'"event":"start"' in events.read_bytes()):
            assert job.poll() is None, (tmp_path / "job.txt").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        job.send_signal(signal.SIGTERM)  # what Slurm sends two minutes before the time limit
        assert job.wait(600) == 130, (tmp_path / "job.txt").read_text()
        assert "Resume with: rst-tune run" in (tmp_path / "job.txt").read_text()
        assert left_of(slurm) == []
    finally:
        end(job, slurm)


def test_nodes_that_do_not_come_are_waited_for_within_bounds(slurm, tmp_path):
    tools = tmp_path / "tools"
    (tools / "ray").write_text("#!/usr/bin/env bash\nexec sleep 1000\n")
    (tools / "ray").chmod(0o755)
    job = start("slurm_shared.sh", {**slurm, "RST_TUNE_WAIT_SECONDS": "1"}, tmp_path, "tiny.yaml")
    try:
        assert job.wait(600) == 1
        text = (tmp_path / "job.txt").read_text()
        assert "error: 0 of 1 Ray nodes answer at" in text
        assert "RST_TUNE_WAIT_SECONDS" in text
        assert not (tmp_path / "output").exists()
    finally:
        end(job, slurm)


def test_the_exclusive_script_gives_the_search_to_every_node_and_passes_its_exit_code_on(slurm, tmp_path):
    tools = tmp_path / "tools"
    (tools / "ray").write_text('#!/usr/bin/env bash\necho "$RAY_AUTH_TOKEN" >> token\nexit 7\n')
    (tools / "ray").chmod(0o755)
    three = {**slurm, "SLURM_JOB_NUM_NODES": "3"}
    job = start("slurm_exclusive.sh", three, tmp_path, "sub/tiny.yaml", "--set", "seed=1")
    assert job.wait(600) == 7
    said = (tmp_path / "srun.txt").read_text()
    assert "srun --nodes=3 --ntasks=3 ray symmetric-run" in said
    assert "--min-nodes 3" in said
    assert "-- rst-tune run sub/tiny.yaml --address" in said
    assert f"--output {tmp_path}/output/tiny --set seed=1" in said
    assert len((tmp_path / "token").read_text().strip()) == 64

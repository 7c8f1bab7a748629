"""Real searches in real processes: start, watch, kill, compare."""

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml

from rst_tune.records import LOG_NAME, load
from rst_tune.training import metrics

MAIN = "from rst_tune.cli import main; main()"
PATIENCE = 900.0
EXPERIMENT = {
    "name": "fault",
    "task": {
        "data": {"name": "digits", "validation": 200, "train_size": 256},
        "model": {"name": "tests.faults.fault_models:slow"},
        "recipe": {"base": "digits", "epochs": 6},
    },
    "space": "grst",
    "sampler": {"n_startup_trials": 6},
    "budget": {"trials": 8},
    "fidelity": {"rungs": 1},
    "stopping": {"name": "pareto-asha"},
    "confirm": {"candidates": 2, "min_seeds": 1, "max_seeds": 2},
    "resources": {"max_concurrent_trials": 1, "checkpoint_seconds": 0},
    "tracking": {"enabled": False},
}
# What two runs of one search may differ in: when and where something ran, and how long it took.
VOLATILE = {"time", "node", "worker", "ray_trial", "seconds", "reason", "rung_correlations"}


def write_experiment(folder: Path, **changes) -> Path:
    path = folder / "fault.yaml"
    path.write_text(yaml.safe_dump({**EXPERIMENT, **changes}))
    return path


# Importing torch, Ray and the rest takes seconds of CPU: one process does it, and every driver is a fork of it.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["rst_tune.cli", "rst_tune.api", "rst_tune.tuning.backend.ray", "sklearn.datasets",
                               "torch._dynamo", "mlflow", "plotly.graph_objects", "tests.faults.harness"])  # fmt: skip


def _drive(words: list[str], before: str, text: Path, environment: dict[str, str]) -> None:
    """Become the command `rst-tune`, in a session of its own that writes to a file."""
    os.setsid()
    # Tests that run in the background of a shell inherit "ignore Ctrl-C"; a driver in a terminal does not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(text.parent)
    with text.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["rst-tune", *words]
    exec(f"{before}\n{MAIN}", {})


def add_node(cluster, *, node_ip_address: str, attempts: int = 3, **node):
    """Add a node at an address of its own.

    Ray gives it 30 s to start, which a busy machine may not keep: then once more.
    """
    try:
        return cluster.add_node(node_ip_address=node_ip_address, **node)
    except Exception:
        for process in psutil.Process().children(recursive=True):  # what has started would join later
            if any(node_ip_address in word for word in process.cmdline()):
                process.kill()
        if attempts == 1:
            raise
        return add_node(cluster, node_ip_address=node_ip_address, attempts=attempts - 1, **node)


def patient_task(file: Path, passes: int = 0) -> dict:
    """Return the task whose model waits for a file, however long everything else takes on a busy machine.

    Eight passes are one epoch with SAM and two without: a trial that waits behind them has a checkpoint.
    """
    model = {"name": "tests.faults.fault_models:patient", "options": {"file": str(file), "passes": passes}}
    return {**EXPERIMENT["task"], "model": model}


class Process:
    """A fork that is waited for as a `subprocess.Popen` is."""

    def __init__(self, *arguments: object) -> None:
        self._process = _FORKS.Process(target=_drive, args=arguments)
        self._process.start()
        self.pid = self._process.pid
        self.kill = self._process.kill

    def poll(self) -> int | None:
        return self._process.exitcode

    returncode = property(poll)

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        assert code is not None, f"no end within {timeout} s"
        return code


class Driver:
    """One `rst-tune run` in a session of its own."""

    def __init__(
        self,
        experiment: Path,
        output: Path,
        address: str | None,
        *settings: str,
        options: tuple[str, ...] = (),
        before: str = "",
        text: str = "driver.txt",
    ) -> None:
        """Start it. `before` is Python that the process runs first, to change its surroundings."""
        words = ["run", str(experiment), "--output", str(output), "--quiet", *(f"--set={s}" for s in settings)]
        words += ["--address", address, *options] if address else options
        self.output = output
        self._text = experiment.parent / text
        self._text.write_text("")
        self.process = Process(words, before, self._text, {**os.environ, "COLUMNS": "200"})

    def signal(self, number: int) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)

    def end(self) -> None:
        """Leave no process of the driver behind."""
        family = _family(self.process.pid)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for process in family:
            if process.is_running():
                process.kill()

    def family(self) -> list[psutil.Process]:
        return _family(self.process.pid)

    def wait(self, seconds: float = PATIENCE) -> int:
        return self.process.wait(timeout=seconds)

    @property
    def text(self) -> str:
        return self._text.read_text()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition while the search runs."""
        limit = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, f"the search ended before {what}:\n{self.text[-3000:]}"
            assert time.monotonic() < limit, f"no {what} within {PATIENCE} s"
            time.sleep(0.02)


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@contextmanager
def driver(*arguments, **options):
    started = Driver(*arguments, **options)
    try:
        yield started
    finally:
        started.end()


def run(experiment: Path, output: Path, address: str | None, *settings: str, **options) -> None:
    """Run a search to its end."""
    with driver(experiment, output, address, *settings, **options) as started:
        assert started.wait() == 0, started.text[-3000:]


def events(output: Path) -> list[dict]:
    path = output / LOG_NAME
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [event for line in lines if (event := _event(line)) is not None]


def _event(line: bytes) -> dict | None:
    """Return the event of a line, or nothing where a fault cut it short."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def phases(output: Path) -> list[str]:
    return [event["phase"] for event in events(output) if event["event"] == "phase"]


def starts(output: Path) -> list[dict]:
    return [event for event in events(output) if event["event"] == "start"]


def checkpointed(output: Path) -> list[str]:
    """Return the keys of the trials that have saved something."""
    return [path.parent.name for path in output.glob("checkpoints/*/run.pt")]


def story(output: Path) -> list[dict]:
    """Return the event log without what may differ between two runs of one search, and without restarts.

    Epochs are reported again after a restart, so each trial's history stands at its end instead of the single reports.
    """
    histories = {trial.key: trial.history for trial in load(output).trials}
    kept = (event for event in events(output) if event["event"] not in ("search", "start", "epochs"))
    return [_settled(event, histories) for event in kept]


def _settled(event: dict, histories: dict[str, Mapping[str, list[float]]]) -> dict:
    kept = {name: value for name, value in event.items() if name not in VOLATILE}
    if event["event"] == "end":
        kept["history"] = histories[event["key"]]
    for name in ("metrics", "history"):
        if name in kept:
            kept[name] = {k: v for k, v in kept[name].items() if k not in metrics.TIMINGS}
    return kept


def assert_whole(output: Path) -> None:
    """Every trial of a finished search was sampled once, ended once, and the search is done."""
    found = events(output)
    for kind in ("trial", "end"):
        keys = [event["key"] for event in found if event["event"] == kind]
        assert len(keys) == len(set(keys)), f"a trial has two events {kind!r}"
    search = load(output)
    assert search.done
    assert all(trial.status.has_ended for trial in search.trials), "a trial was lost"


def results(output: Path) -> dict[str, dict]:
    """Return what every completed trial came to, by key."""
    ends = [event for event in story(output) if event["event"] == "end" and event["status"] == "complete"]
    return {event["key"]: event for event in ends}


def gone(processes: list[psutil.Process], seconds: float = 300) -> list[psutil.Process]:
    """Return the processes that are still there after a while."""
    return psutil.wait_procs(processes, timeout=seconds)[1]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)

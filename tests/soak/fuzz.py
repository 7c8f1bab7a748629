"""Damaged files of every kind that is read. A case ends with a result or with an error for users; all else is a bug.

`python -m tests.soak.fuzz --first 0 --cases 500` runs cases in this process, under a limit of memory, and prints one
JSON line per bug. A case depends on its number alone, so `--first N --cases 1` repeats it.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from rst_tune import api
from rst_tune.errors import InputError
from rst_tune.records import LOG_NAME
from rst_tune.training.checkpoint import CheckpointError
from rst_tune.training.data import load_dataset
from rst_tune.training.loop import Run
from rst_tune.training.task import DataSpec, Method, Task
from rst_tune.tuning import yaml_files
from rst_tune.tuning.experiment import load_experiment, load_space
from rst_tune.tuning.study import JOURNAL_NAME, PendingTrials, SearchStudy
from tests.analysis.synthetic import write_search
from tests.soak.mutations import damage_bytes, damage_value

SECONDS = 30
"""A case that takes longer hangs."""
GIGABYTE = 2**30
SMALL = {
    "data": {"name": "digits", "validation": 50, "train_size": 64},
    "recipe": {"base": "digits", "epochs": 2, "batch_size": 16},
}
METHOD = {
    "schedule": {"family": "constant", "p": 0.5}, "gamma_gnr": 2.0, "rule": "asam", "rule_options": {}, "rho": 0.1,
    "seed": 3,
}  # fmt: skip


class HangError(BaseException):
    """A case took too long. Not an Exception: nothing may swallow it."""


class Corpus:
    """Valid files to begin with, made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.experiments = [yaml_files.read_yaml(p) for p in yaml_files.shipped("experiments").values()]
        self.experiments.append(load_experiment("digits").model_dump(mode="json"))
        self.spaces = [yaml_files.read_yaml(p) for p in yaml_files.shipped("search_spaces").values()]
        space = load_space("grst")
        assert not isinstance(space, str)
        self.spaces.append(space.model_dump(mode="json"))
        small = write_search(folder / "small", trials=6, confirmed=2, confirm_seeds=2, baseline_seeds=1)
        large = write_search(folder / "large", trials=20, confirmed=3, confirm_seeds=2)
        self.logs = [(Path(p) / LOG_NAME).read_bytes() for p in (small, small, small, large)]
        self.task = Task.model_validate(SMALL)
        settings = [f"task={json.dumps(SMALL)}", "space=grst", "tracking.enabled=false"]
        self.small_experiment = load_experiment("digits", settings)
        self.data = load_dataset(self.task.data)
        self.checkpoint = self._checkpoint()
        self.journal = self._journal()

    def new_run(self) -> Run:
        method = Method(schedule={"family": "constant", "p": 0.5})
        return Run(self.task, method, seed=0, data=self.data, device="cpu")

    def _checkpoint(self) -> bytes:
        run = self.new_run()
        run.epoch()
        run.save(self.folder / "run.pt")
        return (self.folder / "run.pt").read_bytes()

    def _journal(self) -> bytes:
        (self.folder / "study").mkdir()
        study = SearchStudy(self.small_experiment, self.folder / "study")
        for number in range(3):
            study.sample(PendingTrials(sampled=number))
        return (self.folder / "study" / JOURNAL_NAME).read_bytes()


def _yaml_bytes(content: Any, chance: random.Random) -> bytes:
    if chance.random() < 0.6:
        for _ in range(chance.choice((1, 1, 2))):
            content = damage_value(content, chance)
        try:
            return yaml.safe_dump(content, allow_unicode=True).encode("utf-8", "surrogatepass")
        except RecursionError:
            return json.dumps(content).encode()  # YAML as well
    return damage_bytes(yaml.safe_dump(content).encode(), chance)


def fuzz_experiment(corpus: Corpus, chance: random.Random, folder: Path) -> None:
    path = folder / "fuzz.yaml"
    path.write_bytes(_yaml_bytes(chance.choice(corpus.experiments), chance))
    experiment = load_experiment(str(path))
    json.dumps(experiment.public())
    assert experiment.search_id


def fuzz_space(corpus: Corpus, chance: random.Random, folder: Path) -> None:
    path = folder / "fuzz.yaml"
    path.write_bytes(_yaml_bytes(chance.choice(corpus.spaces), chance))
    load_space(str(path))


def fuzz_method(corpus: Corpus, chance: random.Random, folder: Path) -> None:
    path = folder / "method.yaml"
    path.write_bytes(_yaml_bytes(METHOD, chance))
    api.train(corpus.small_experiment, method_file=path, device="cpu")


def fuzz_event_log(corpus: Corpus, chance: random.Random, folder: Path) -> None:
    lines = chance.choice(corpus.logs).splitlines()
    if chance.random() < 0.7:
        for _ in range(chance.choice((1, 1, 3))):
            at = chance.randrange(len(lines))
            lines[at] = json.dumps(damage_value(json.loads(lines[at]), chance)).encode()
        content = b"\n".join(lines)
    else:
        content = damage_bytes(b"\n".join(lines), chance)
    (folder / LOG_NAME).write_bytes(content)
    api.status(folder)
    analysis = api.analyze(folder)
    json.dumps(analysis.rows())
    api.table("front", analysis, width=80)
    api.export(folder, "json")
    if chance.random() < 0.1:
        api.write_report(analysis)


def fuzz_journal(corpus: Corpus, chance: random.Random, folder: Path) -> None:
    lines = corpus.journal.splitlines(keepends=True)
    if chance.random() < 0.6:
        at = chance.randrange(len(lines))
        lines[at] = json.dumps(damage_value(json.loads(lines[at]), chance)).encode() + b"\n"
        content = b"".join(lines)
    else:
        content = damage_bytes(corpus.journal, chance)
    (folder / JOURNAL_NAME).write_bytes(content)
    study = SearchStudy(corpus.small_experiment, folder)
    study.reconcile({})
    study.sample(PendingTrials())


def fuzz_checkpoint(corpus: Corpus, chance: random.Random, folder: Path) -> None:
    path = folder / "run.pt"
    if chance.random() < 0.5:
        path.write_bytes(damage_bytes(corpus.checkpoint, chance))
    else:
        path.write_bytes(corpus.checkpoint)
        state = torch.load(path, weights_only=True)
        torch.save(damage_value(state, chance), path)
    run = corpus.new_run()
    run.restore(path)


def fuzz_npz(corpus: Corpus, chance: random.Random, folder: Path) -> None:
    path = folder / "own.npz"
    rng = np.random.default_rng(chance.randrange(2**32))
    arrays: dict[str, Any] = {
        "x_train": rng.integers(0, 256, (40, 6, 6), dtype=np.uint8), "y_train": np.arange(40) % 3,
        "x_test": rng.integers(0, 256, (9, 6, 6), dtype=np.uint8), "y_test": np.arange(9) % 3,
    }  # fmt: skip
    name = chance.choice(sorted(arrays))
    odd = (
        np.array([None, "a"], dtype=object), np.array(3), np.zeros((0, 6, 6), np.uint8), np.zeros((40, 0, 6), np.uint8),
        np.full(40, np.nan), np.full(40, -1), np.full(40, 10**12), np.zeros((40, 6, 6), np.float32),
        np.array(["a"] * 40), np.zeros((2, 2, 2, 2, 2), np.uint8), np.zeros(40, "datetime64[s]"),
        np.zeros(40, [("a", "i4")]), np.ones(40, bool),
    )  # fmt: skip
    if chance.random() < 0.5:
        arrays[name] = chance.choice(odd)
        if chance.random() < 0.2:
            del arrays[name]
    (np.savez_compressed if chance.random() < 0.3 else np.savez)(path, **arrays)
    if chance.random() < 0.6:
        path.write_bytes(damage_bytes(path.read_bytes(), chance))
    load_dataset(DataSpec(name="npz", root=str(path), validation=6))


KINDS: dict[str, Callable[[Corpus, random.Random, Path], None]] = {
    "experiment": fuzz_experiment,
    "space": fuzz_space,
    "method": fuzz_method,
    "event log": fuzz_event_log,
    "journal": fuzz_journal,
    "checkpoint": fuzz_checkpoint,
    "npz": fuzz_npz,
}
ANSWERS = (InputError, CheckpointError)
"""What a user may see of a damaged file."""


def _alarm(*_: object) -> None:
    raise HangError


def run_case(corpus: Corpus, number: int) -> tuple[str, str]:
    """Run one case; return its kind and, where it is a bug, what happened."""
    kind = list(KINDS)[number % len(KINDS)]
    folder = Path(tempfile.mkdtemp(dir=corpus.folder, prefix="case-"))
    handler, timer = signal.signal(signal.SIGALRM, _alarm), signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            KINDS[kind](corpus, random.Random(f"rst {number}"), folder)
    except ANSWERS as error:
        return kind, "" if str(error).strip() else f"an empty message of {type(error).__name__}"
    except HangError:
        return kind, f"no end within {SECONDS} s"
    except BaseException:  # noqa: BLE001  whatever else it is, it is the finding
        return kind, traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)  # the test runner's own, if it has one
        signal.signal(signal.SIGALRM, handler)
        shutil.rmtree(folder, ignore_errors=True)
    return kind, ""


def limit_memory() -> None:
    """Allow one gigabyte more than what the imported libraries have mapped by now."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (mapped + GIGABYTE, mapped + GIGABYTE))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--current", type=Path, help="the file that gets the number of each case before it runs")
    given = parser.parse_args()
    torch.set_num_threads(1)
    bugs = 0
    with tempfile.TemporaryDirectory(prefix="rst-fuzz-") as folder:
        corpus = Corpus(Path(folder))
        api.status(Path(folder) / "large")  # imports what a reader imports, before memory is limited
        api.write_report(api.analyze(Path(folder) / "small"))
        limit_memory()
        for number in range(given.first, given.first + given.cases):
            if given.current:
                given.current.write_text(str(number))
            kind, problem = run_case(corpus, number)
            if problem:
                bugs += 1
                print(json.dumps({"case": number, "kind": kind, "problem": problem}), flush=True)
    return 1 if bugs else 0


if __name__ == "__main__":
    sys.exit(main())

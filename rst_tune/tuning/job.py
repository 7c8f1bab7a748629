"""What a worker does with a plan, free of Ray: train in slices, save after each, resume from the last one saved.

Checkpoints lie under the trial's key, which does not depend on Ray: whoever takes the trial up again, on any node,
in this search or a resumed one, goes on where the last slice ended.
"""

import json
import logging
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rst_tune.errors import InputError
from rst_tune.training import distributed
from rst_tune.training.checkpoint import CheckpointError
from rst_tune.training.data import Dataset
from rst_tune.training.loop import Run
from rst_tune.training.task import Method, Task

__all__ = ["OUT_OF_MEMORY", "Job", "Shop", "checkpoint_folder", "model_path"]

OUT_OF_MEMORY = "out of memory"
_CHECKPOINT = "run.pt"
_HANG = "hang.txt"
_log = logging.getLogger(__name__)


def checkpoint_folder(directory: Path, key: str) -> Path:
    """Return where the unfinished state of a trial lies."""
    return directory / "checkpoints" / key


def model_path(directory: Path, key: str) -> Path:
    """Return where the finished state of a confirmed trial lies."""
    return directory / "models" / f"{key}.pt"


@dataclass(frozen=True, kw_only=True)
class Shop:
    """What all jobs of a search share: the task, its data, the shared directory, and the limits."""

    task: Task
    data: Dataset
    directory: Path
    threads: int = 1
    device: str | None = None
    checkpoint_seconds: float = 10.0
    time_limit: float | None = None


class StorageError(Exception):
    """What was trained cannot be saved: the whole search has to stop, because no other trial could save either."""


class Job:
    """One plan in the hands of one worker."""

    def __init__(self, plan: Mapping[str, Any], shop: Shop) -> None:
        self.plan, self.shop = plan, shop
        self._folder = checkpoint_folder(shop.directory, plan["key"])
        self._run: Run | None = None
        self._note = ""

    @property
    def hang_file(self) -> Path:
        """Where the watchdog writes the stack of a job that exceeded its time limit."""
        return self._folder / _HANG

    def advance(self) -> dict[str, Any]:
        """Do one slice of the work and return what is to be known of it."""
        torch.set_num_threads(self.shop.threads)
        try:
            return self._test() if self.plan["kind"] == "test" else self._train()
        except torch.OutOfMemoryError as error:
            return self._failed(f"{OUT_OF_MEMORY} on the device: {str(error).splitlines()[0]}")
        except InputError as error:
            return self._failed(str(error))
        except StorageError as error:
            return {"key": self.plan["key"], "status": "storage", "reason": str(error)}

    def hung(self) -> bool:
        """Return whether an earlier attempt at this plan exceeded the time limit."""
        return self.hang_file.exists() and self.hang_file.stat().st_size > 0

    def out_of_time(self) -> dict[str, Any]:
        """Return the result of a trial that exceeded its time limit."""
        where = _innermost_frame(self.hang_file.read_text(errors="replace"))
        return self._failed(f"no end within the time limit of {self.shop.time_limit:g} s; it was at: {where}")

    # --- training ---------------------------------------------------------------------------------------------

    def _train(self) -> dict[str, Any]:
        run = self._run
        if run is None:
            run = self._run = self._open()
            if run.epoch_index in self.plan["rungs"]:  # saved there by one that may have died before it was judged
                return self._progress(run, status="running")
        until = time.monotonic() + self.shop.checkpoint_seconds
        while not run.finished:
            run.epoch()
            if run.epoch_index in self.plan["rungs"] or _agreed(time.monotonic() >= until, run):
                break
        if run.finished:
            return self._finish(run)
        self._save(run)
        return self._progress(run, status="running")

    def _open(self) -> Run:
        run = self._new_run()
        path = self._folder / _CHECKPOINT
        if path.exists():
            try:
                run.restore(path)
            except CheckpointError as error:
                self._note = self._set_aside(path, error)
                run = self._new_run()
        return run

    def _set_aside(self, path: Path, error: CheckpointError) -> str:
        """Keep a damaged checkpoint where nobody looks for it, and say so. Of several workers the first one does it."""
        aside = self.shop.directory / "damaged" / f"{self.plan['key']}-{int(time.time())}.pt"
        if distributed.rank() == 0:
            aside.parent.mkdir(parents=True, exist_ok=True)
            path.rename(aside)
        _log.warning("%s", error)
        return f"a damaged checkpoint was set aside as {aside.name}, and the trial began anew"

    def _new_run(self) -> Run:
        config = self.plan["config"]
        method = Method(**{name: config[name] for name in ("schedule", "gamma_gnr", "rule", "rule_options", "rho")})
        shop = self.shop
        return Run(
            shop.task, method, seed=self.plan["seed"], epochs=self.plan["epochs"], device=shop.device, data=shop.data
        )

    def _save(self, run: Run) -> None:
        _write(run, self._folder / _CHECKPOINT)

    def _finish(self, run: Run) -> dict[str, Any]:
        sharpness = run.sharpness() if run.status == "complete" else {}
        if self.plan["keep"] and run.status == "complete":
            _write(run, model_path(self.shop.directory, self.plan["key"]))
        result = self._progress(run, status=run.status, sharpness=sharpness)
        self._run = None
        return result

    def discard(self) -> None:
        """Remove the unfinished state: the trial ended and its result is in the record."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _progress(self, run: Run, *, status: str, sharpness: Mapping[str, float] | None = None) -> dict[str, Any]:
        history = {name: list(values) for name, values in run.history.items()}
        last = {name: values[-1] for name, values in history.items() if values}
        return {
            "key": self.plan["key"],
            "status": status,
            "epoch": run.epoch_index,
            "error": last.get("validation_error"),
            "payload": json.dumps(
                {
                    "pairs": run.pairs,
                    "seconds": sum(history.get("seconds", [])),
                    "metrics": {**last, **(sharpness or {})},
                    "history": history,
                    "reason": "the loss was not finite" if status == "diverged" else self._note,
                }
            ),
        }

    # --- the rest ---------------------------------------------------------------------------------------------

    def _test(self) -> dict[str, Any]:
        run = self._new_run()
        run.restore(model_path(self.shop.directory, self.plan["key"]))
        return {"key": self.plan["key"], "status": "tested", "error": run.test()["test_error"]}

    def _failed(self, reason: str) -> dict[str, Any]:
        done = self._progress(self._run, status="failed") if self._run is not None else {}
        payload = {**json.loads(done.get("payload", "{}")), "reason": reason}
        return {**done, "key": self.plan["key"], "status": "failed", "error": None, "payload": json.dumps(payload)}


def _agreed(due: bool, run: Run) -> bool:
    """Return what the first worker of the run thinks: clocks differ, and all must end a slice at the same epoch."""
    vote = torch.tensor(float(due and distributed.rank() == 0), device=run.device)
    return bool(distributed.sum_over_processes(vote))


def _write(run: Run, path: Path) -> None:
    try:
        run.save(path)
    except (OSError, RuntimeError) as error:
        cause = error if isinstance(error, OSError) else error.__context__  # PyTorch hides a full disk behind its own
        if not isinstance(cause, OSError):
            raise
        raise StorageError(f"{path} cannot be written: {cause.strerror or cause}") from error


def _innermost_frame(dump: str) -> str:
    """Return where the main thread was: the first frame after the last heading of a dump of all threads."""
    frames = dump.rpartition("(most recent call first):\n")[2].strip().splitlines()
    return frames[0].strip() if frames else "unknown place"

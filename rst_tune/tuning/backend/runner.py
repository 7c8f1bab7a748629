"""What a worker does with a task, free of Ray: train in slices, save after each, resume from the last one saved.

Checkpoints lie under the trial's key, which does not depend on Ray: any worker on any node, in this run of the search
or a resumed one, continues where the last slice ended.
"""

import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rst_tune.errors import InputError
from rst_tune.records import Status, TrialConfig
from rst_tune.training import distributed
from rst_tune.training.checkpoint import CheckpointError
from rst_tune.training.files import UnreadableError
from rst_tune.training.task import Method
from rst_tune.training.workload import Training, Workload
from rst_tune.tuning.backend.protocol import TaskKind, TestReport, TrialReport, TrialTask

_log = logging.getLogger(__name__)
# After one of these the process may be unusable, or the node is at fault: another process has to try again.
_INFRASTRUCTURE = (OSError, MemoryError, torch.distributed.DistError, getattr(torch, "AcceleratorError", OSError))
# The same as plain RuntimeErrors: a lost CUDA context, a rank that died in the middle of a collective call.
_OF_THE_MACHINE = re.compile(r"CUDA error|NCCL|gloo|connection (?:closed|reset)|socket", re.IGNORECASE)


class StorageError(OSError):
    """A checkpoint or model cannot be written from this node, or the data file `filename` not be read."""


def checkpoint_folder(directory: Path, key: str) -> Path:
    """Return where the unfinished state of a trial lies."""
    return directory / "checkpoints" / key


def model_path(directory: Path, key: str) -> Path:
    """Return where the model of a replicate lies."""
    return directory / "models" / f"{key}.pt"


def to_method(config: TrialConfig) -> Method:
    """Return the method that a configuration means."""
    return Method.model_validate({name: getattr(config, name) for name in Method.model_fields})


@dataclass(frozen=True, kw_only=True)
class TrialContext:
    """What all trials of a search share: what is trained, the shared directory, and the limits."""

    workload: Workload
    directory: Path
    threads: int = 1
    device: str | None = None
    checkpoint_seconds: float = 10.0
    time_limit: float | None = None


class TrialRunner:
    """Runs one task on one worker."""

    def __init__(self, task: TrialTask, context: TrialContext) -> None:
        self.task, self.context = task, context
        self._folder = checkpoint_folder(context.directory, task.key)
        self._run: Training | None = None
        self._reported_epochs = 0
        self._note = ""

    @property
    def hang_file(self) -> Path:
        """Where the watchdog writes the stack of a task that exceeded its time limit."""
        return self._folder / "hang.txt"

    def advance(self) -> TrialReport | TestReport:
        """Do one slice of the work and report it.

        An error of the training is a report with its message. An error of the machine is raised: Ray then starts the
        task again in another process.
        """
        torch.set_num_threads(self.context.threads)
        try:
            return self._test() if self.task.kind is TaskKind.TEST else self._train()
        except torch.OutOfMemoryError as error:
            return self._failure(Status.OUT_OF_MEMORY, str(error).splitlines()[0])
        except UnreadableError as error:
            raise StorageError(error.errno, f"{error.filename}: {error.strerror}", error.filename) from error
        except _INFRASTRUCTURE:
            raise
        except InputError as error:
            return self._failure(Status.FAILED, str(error))
        except Exception as error:
            if _OF_THE_MACHINE.search(str(error)) or (distributed.world_size() > 1 and distributed.rank() == 0):
                raise  # rank 0 leaves it to the group: another rank may know the cause
            _log.exception("trial %s failed", self.task.key)
            return self._failure(Status.FAILED, f"{type(error).__name__}: {error}")

    def exceeded_time_limit(self) -> bool:
        """Return whether an earlier attempt at this task exceeded the time limit."""
        return self.hang_file.exists() and self.hang_file.stat().st_size > 0

    def time_limit_report(self) -> TrialReport:
        """Return the report of a trial that exceeded its time limit."""
        where = _innermost_frame(self.hang_file.read_text(errors="replace"))
        limit = f"not finished within the time limit of {self.context.time_limit:g} s; it was at: {where}"
        return TrialReport(key=self.task.key, status=Status.FAILED, reason=limit)

    # --- training ---------------------------------------------------------------------------------------------

    def _train(self) -> TrialReport:
        run = self._run
        if run is None:
            run = self._run = self._open()
            if run.epoch_index in self.task.rungs:  # saved there by a worker that may have died before the decision
                return self._report(run, Status.RUNNING)
        until = time.monotonic() + self.context.checkpoint_seconds
        while not run.finished:
            run.epoch()
            if run.epoch_index in self.task.rungs or _agreed(time.monotonic() >= until, run):
                break
        if run.finished:
            return self._finish(run)
        _save(run, self._folder / "run.pt")
        return self._report(run, Status.RUNNING)

    def _open(self) -> Training:
        run = self._new_run()
        path = self._folder / "run.pt"
        if path.exists():
            try:
                run.restore(path)
            except CheckpointError as error:
                run.close()
                self._note = self._set_aside(path, error)
                run = self._new_run()
        return run

    def _set_aside(self, path: Path, error: CheckpointError) -> str:
        """Move a damaged checkpoint away and return a note about it. Of several workers the first one moves it."""
        aside = self.context.directory / "damaged" / f"{self.task.key}-{int(time.time())}.pt"
        if distributed.rank() == 0:
            aside.parent.mkdir(parents=True, exist_ok=True)
            path.rename(aside)
        _log.warning("%s", error)
        return f"a damaged checkpoint was set aside as {aside.name}, and the training was started again"

    def _new_run(self) -> Training:
        task, start = self.task, self.context.workload.start
        method, device = to_method(task.config), self.context.device
        return start(method, seed=task.seed, epochs=task.epochs, device=device, replicate=task.replicate)

    def close(self) -> None:
        """Release what the training holds, wherever it stands."""
        if self._run is not None:
            self._run.close()
            self._run = None

    def _finish(self, run: Training) -> TrialReport:
        complete = run.status == "complete"
        sharpness = run.sharpness() if complete else {}
        if self.task.replicate and complete:
            _save(run, model_path(self.context.directory, self.task.key))
        report = self._report(run, Status(run.status), sharpness)
        self.close()
        return report

    def _report(
        self, run: Training, status: Status, metrics: Mapping[str, float] | None = None, reason: str = ""
    ) -> TrialReport:
        first = self._reported_epochs
        self._reported_epochs = run.epoch_index
        diverged = "the loss or the metric was not finite" if status is Status.DIVERGED else ""
        return TrialReport(
            key=self.task.key,
            status=status,
            epoch=run.epoch_index,
            error=run.error,
            pairs=run.pairs,
            seconds=sum(run.history.get("seconds", [])),
            reason="; ".join(filter(None, (reason, diverged, self._note))),
            metrics={**run.last_metrics, **(metrics or {})},
            first_epoch=first + 1,
            epoch_metrics={name: list(column[first:]) for name, column in run.history.items()},
        )

    # --- the rest ---------------------------------------------------------------------------------------------

    def _test(self) -> TestReport:
        run = self._new_run()
        try:
            run.restore(model_path(self.context.directory, self.task.key))
            return TestReport(key=self.task.key, error=run.test()["test_error"])
        finally:
            run.close()

    def _failure(self, status: Status, reason: str) -> TrialReport | TestReport:
        """Return the report of an error, with what the training has cost up to it."""
        if self.task.kind is TaskKind.TEST:
            return TestReport(key=self.task.key, error=None, reason=reason)
        if self._run is None:
            return TrialReport(key=self.task.key, status=status, reason=reason)
        report = self._report(self._run, status, reason=reason)
        self.close()
        return report


def _agreed(due: bool, run: Training) -> bool:
    """Return the first worker's answer: clocks differ, and all must end a slice at the same epoch."""
    vote = torch.tensor(float(due and distributed.rank() == 0), device=run.device)
    return bool(distributed.sum_over_processes(vote))


def _save(run: Training, path: Path) -> None:
    try:
        run.save(path)
    except (OSError, RuntimeError) as error:
        # PyTorch replaces the error of a full disk by one of its own.
        cause: Any = error if isinstance(error, OSError) else error.__context__
        if not isinstance(cause, OSError):
            raise
        raise StorageError(cause.errno, f"{path} cannot be written: {cause.strerror or cause}") from error


def _innermost_frame(dump: str) -> str:
    """Return where the training was: in the thread of a user's function, else in the main one, which is dumped last."""
    threads = dump.split("(most recent call first):\n")[1:] or [""]
    threads = [each for each in threads if "training/coroutine.py" in each and " in _run" in each] or threads
    frames = threads[-1].strip().splitlines()
    return frames[0].strip() if frames else "unknown place"

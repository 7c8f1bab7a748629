"""The Ray Tune trainable: a long-lived worker that runs one task after another."""

import faulthandler
import os
import socket
from dataclasses import dataclass
from typing import Any, TextIO

import ray
from ray import tune

from rst_tune.records import Status
from rst_tune.tuning.backend.protocol import TestReport, TrialReport, TrialTask
from rst_tune.tuning.backend.runner import StorageError, TrialContext, TrialRunner
from rst_tune.tuning.backend.worker_group import current_group

TASK, MESSAGE = "task", "message"
"""The keys of Tune's config and result under which tasks and messages travel."""


@dataclass(frozen=True, kw_only=True)
class TaskTaken:
    """A worker begins with a task."""

    key: str
    node: str
    worker: str


@dataclass(frozen=True, kw_only=True)
class StorageUnavailable:
    """A worker cannot write to the shared directory, or not read a data file (`unread`).

    Unless the driver stops the search, the worker fails next.
    """

    key: str
    node: str
    node_id: str
    reason: str
    unread: str | None = None


class RstTrainable(tune.Trainable):  # type: ignore[misc]  # Ray is untyped
    """Runs the task in its config. Actors are reused, so nothing of one task may reach the next."""

    def setup(self, config: dict[str, Any], context: list[Any]) -> None:
        """Begin with the first task. `context` holds a reference to the TrialContext, one copy per node."""
        self._context: TrialContext = ray.get(context[0])
        self._group = current_group(context[0])
        self._watchdog: TextIO | None = None
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin with the next task. Its errors show in `step`: a failing reset would block Tune for ever."""
        self._runner.close()
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        self._disarm()
        task: TrialTask = config[TASK]
        self._runner = TrialRunner(task, self._context)
        if self._group is not None:
            self._group.reset()
        self._announced = False
        self._storage_error: StorageError | None = None

    def step(self) -> dict[str, Any]:
        """Say first who took the task, then do one slice per call."""
        return {MESSAGE: self._next_message()}

    def _next_message(self) -> TaskTaken | TrialReport | TestReport | StorageUnavailable:
        if not self._announced:
            self._announced = True
            return TaskTaken(key=self._runner.task.key, node=_node(), worker=str(os.getpid()))
        if self._storage_error is not None:
            raise self._storage_error
        if self._runner.exceeded_time_limit():
            return self._runner.time_limit_report()
        try:
            self._arm()
            report = self._runner.advance() if self._group is None else self._group.advance(self._runner)
        except StorageError as error:
            self._storage_error = error
            return StorageUnavailable(
                key=self._runner.task.key,
                node=_node(),
                node_id=_node_id(),
                reason=str(error.strerror or error),
                unread=error.filename,
            )
        # No `done` in the result: it would end the trial before the scheduler has seen the report.
        if not isinstance(report, TrialReport) or report.status is not Status.RUNNING:
            self._disarm()
        return report

    def _arm(self) -> None:
        """End this process when the task exceeds its time limit, even inside native code that holds the GIL."""
        if self._context.time_limit is None or self._watchdog is not None:
            return
        try:
            self._runner.hang_file.parent.mkdir(parents=True, exist_ok=True)
            self._watchdog = self._runner.hang_file.open("w")
        except OSError as error:
            raise StorageError(error.errno, f"{self._runner.hang_file} cannot be written: {error.strerror}") from error
        faulthandler.dump_traceback_later(self._context.time_limit, exit=True, file=self._watchdog)

    def _disarm(self) -> None:
        if self._watchdog is not None:
            faulthandler.cancel_dump_traceback_later()
            self._watchdog.close()
            self._watchdog = None

    def cleanup(self) -> None:
        """Leave nothing armed or running behind."""
        self._disarm()
        self._runner.close()
        if self._group is not None:
            self._group.close()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Tune keeps no checkpoint: ours lie under the trial's key."""

    def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
        """Tune restores nothing: the runner finds its own checkpoint."""


def _node() -> str:
    return f"{socket.gethostname()}/{_node_id()[:8]}"


def _node_id() -> str:
    return str(ray.get_runtime_context().get_node_id())

"""Ray Tune as a backend: a searcher that hands out tasks, a scheduler that takes in the messages of the workers."""

import errno
import logging
import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray import tune
from ray.tune import Callback, Stopper
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from rst_tune.errors import InputError
from rst_tune.tuning.backend.protocol import DONE, Controller, TaskKind, TestReport, TrialReport, TrialTask
from rst_tune.tuning.backend.resources import Resources
from rst_tune.tuning.backend.runner import TrialContext, checkpoint_folder
from rst_tune.tuning.backend.trainable import MESSAGE, TASK, RstTrainable, StorageUnavailable, TaskTaken

_log = logging.getLogger(__name__)
# Nodes that join are noticed, and used, after at most this many seconds.
SLOTS_SECONDS = 5.0
PROBE_BYTES = 2**20

T = TypeVar("T")


class DriverState:
    """What searcher, scheduler and stopper share: the controller, the tasks that are out, the error that ended it.

    `excluded` holds the ids of nodes that cannot write to the output directory: no further trial is placed there.
    `no_room` is the error where no other node is left.
    """

    def __init__(self, controller: Controller, directory: Path, resources: Resources, excluded: set[str]) -> None:
        self.controller, self.directory = controller, directory
        self.resources, self.excluded = resources, excluded
        self.tasks: dict[str, TrialTask] = {}
        self.errors: dict[str, str] = {}
        self.no_room = OSError()
        self.fatal: BaseException | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles what it is given into a snapshot that nothing reads: it gets an empty one."""
        return {}

    def guard(self, work: Callable[[], Any], otherwise: Any) -> Any:
        """Do the work; an error of the driver (a full disk, say) stops the search instead of vanishing inside Tune."""
        if self.fatal is not None:
            return otherwise
        try:
            return work()
        except Exception as error:  # noqa: BLE001  it is raised again once Tune has returned
            self.fatal = error
            return otherwise

    def handle(self, trial_id: str, message: Any) -> bool:
        """Take in one message of a worker; return whether its trial goes on."""
        match message:
            case TaskTaken():
                if self.tasks[trial_id].kind is TaskKind.TRAIN:
                    where = {"node": message.node, "worker": message.worker, "ray_trial": trial_id}
                    self.controller.on_trial_start(message.key, **where)
                return True
            case TestReport():
                self.controller.on_test_report(message)
                return False
            case StorageUnavailable():
                self._check_storage(message)
                return True
            case TrialReport():
                goes_on = self.controller.on_report(message)
                if not goes_on:
                    shutil.rmtree(checkpoint_folder(self.directory, message.key), ignore_errors=True)
                return goes_on
        raise TypeError(f"a worker sent {message!r}")

    def _check_storage(self, message: StorageUnavailable) -> None:
        """Stop the search where the driver fails as well; else only that node has a problem and is excluded."""
        unread = message.unread
        try:
            _probe_writing(self.directory) if unread is None else Path(unread).read_bytes()
        except OSError as error:
            remedy = "Make room, or make it writable" if unread is None else "Make it readable"
            raise OSError(error.errno, f"{message.reason}. {remedy}") from error
        self.excluded.add(message.node_id)
        cannot = f"write to {self.directory}" if unread is None else "read the data"
        self.no_room = OSError(errno.EROFS, f"no node that has room for a trial can {cannot}: {message.reason}")
        if not cluster_slots(self.resources, self.excluded):
            raise self.no_room
        _log.warning("%s cannot %s (%s): trying elsewhere", message.node, cannot, message.reason)

    def lost(self, trial_id: str) -> None:
        """Take in that a trial ended without a result."""
        task = self.tasks.pop(trial_id)
        reason = self.errors.pop(trial_id, "the worker ended without a result")
        if task.kind is TaskKind.TEST:
            self.controller.on_test_report(TestReport(key=task.key, error=None, reason=reason))
        else:
            self.controller.on_trial_lost(task.key, reason)


def _probe_writing(directory: Path) -> None:
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(b"\0" * PROBE_BYTES)
        file.flush()
        os.fsync(file.fileno())


class TaskSearcher(Searcher):  # type: ignore[misc]  # Ray is untyped
    """Hands out the controller's tasks. The event log is the truth, so Tune's save and restore do nothing."""

    def __init__(self, state: DriverState) -> None:
        super().__init__()
        self._state = state

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next task as a config."""
        if self._state.fatal is not None:
            return str(Searcher.FINISHED)
        task = self._state.guard(self._state.controller.next_task, DONE)
        if task is None or task == DONE:
            return None if task is None else str(Searcher.FINISHED)
        self._state.tasks[trial_id] = task
        return {TASK: task}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Forget the task; where Tune gave up on it, say so."""
        if error and trial_id in self._state.tasks:
            self._state.guard(lambda: self._state.lost(trial_id), None)
        self._state.tasks.pop(trial_id, None)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Results reach the controller through the scheduler."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing."""

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Do nothing."""


class MessageScheduler(FIFOScheduler):  # type: ignore[misc]  # Ray is untyped
    """Brings the workers' messages to the controller and its decisions back."""

    def __init__(self, state: DriverState) -> None:
        super().__init__()
        self._state = state

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Keep a trial that starts, or starts again, away from excluded nodes."""
        if self._state.excluded:
            trial.update_resources(_placement(self._state.resources, self._state.excluded))

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Handle one message."""
        message = result.pop(MESSAGE)  # Tune keeps the last result of every trial in memory
        goes_on = self._state.guard(lambda: self._state.handle(trial.trial_id, message), False)
        return str(TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """Keep why a trial failed for good."""
        self._state.errors[trial.trial_id] = _error_of(trial)
        _log.warning("%s: %s", self._state.tasks.get(trial.trial_id), self._state.errors[trial.trial_id])


def _error_of(trial: Any) -> str:
    """Return the last error of a Tune trial in one line. Tune writes it beside the trial before it uploads it."""
    try:
        error = pickle.loads(Path(trial.pickled_error_file).read_bytes())  # noqa: S301  written by this process
        cause = error.as_instanceof_cause() if hasattr(error, "as_instanceof_cause") else error
        cause = getattr(cause, "cause", None) or cause  # the error itself, not Ray's class of the same name
        return f"{type(cause).__name__}: {_last_line(str(cause))}"
    except Exception:  # noqa: BLE001  whatever an error's own unpickling raises
        text = Path(trial.error_file).read_text(errors="replace") if trial.error_file else ""
        return _last_line(text) or "the worker died without an error message"


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


class _StopOnFatal(Stopper):  # type: ignore[misc]  # Ray is untyped
    def __init__(self, state: DriverState) -> None:
        self._state = state

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._state.fatal is not None


class ProgressCallback(Callback):  # type: ignore[misc]  # Ray is untyped
    """Calls a function in every turn of Tune's loop."""

    def __init__(self, on_progress: Callable[[], None]) -> None:
        self._on_progress = on_progress

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Report progress."""
        self._on_progress()


class RayBackend:
    """Runs tasks on the connected Ray cluster."""

    def __init__(self, context: TrialContext, resources: Resources) -> None:
        self._context, self._resources = context, resources
        self._slots, self._counted_at = 0, float("-inf")
        self._excluded: set[str] = set()

    @property
    def slots(self) -> int:
        """How many trials the cluster holds at a time, counted again every few seconds: nodes come and go."""
        if time.monotonic() - self._counted_at > SLOTS_SECONDS:
            self._slots, self._counted_at = cluster_slots(self._resources, self._excluded), time.monotonic()
        return self._slots

    def wait_for_room(self, minutes: float, say: Callable[[str], None]) -> None:
        """Return once the cluster has room for one trial; raise where it has none and no nodes are to be awaited.

        While waiting the demand is announced to Ray's autoscaler, which then starts nodes.
        """
        deadline = time.monotonic() + 60 * minutes
        if cluster_slots(self._resources):
            return
        lacking = f"a trial needs {self._resources}, but the cluster has {_available()}"
        if minutes:
            from ray.autoscaler.sdk import request_resources

            request_resources(bundles=[_bundle(self._resources)] * self._resources.workers)
            say(f"{lacking}: waiting up to {minutes:g} minutes for nodes that have it")
        while not cluster_slots(self._resources):
            if time.monotonic() >= deadline:
                raise InputError(
                    f"{lacking}: lower resources.cpus_per_worker, gpus_per_worker or workers, or give another "
                    "--address; where an autoscaler adds nodes, set resources.wait_for_nodes_minutes"
                )
            time.sleep(1.0)

    def on_a_worker(self, work: Callable[[TrialContext], T]) -> T:
        """Return what `work` returns on one worker of the cluster, with the resources of a trial's."""
        bundle = _bundle(self._resources)
        remote = ray.remote(work).options(num_cpus=bundle["CPU"], num_gpus=bundle.get("GPU", 0.0))
        try:
            found: T = ray.get(remote.remote(ray.put(self._context)))
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None  # the error itself, without the traceback of the worker
        return found

    def run_trials(self, controller: Controller, on_progress: Callable[[], None]) -> None:
        """Run the controller's tasks until it has no more.

        An error of the driver is raised here, after Tune has returned; an error of a trial is an event.
        """
        state = DriverState(controller, self._context.directory, self._resources, self._excluded)

        def check_room() -> None:
            # The nodes that were left may be gone since: their trials would wait for ever.
            if state.excluded and not self.slots:
                state.fatal = state.fatal or state.no_room

        # The controller bounds what is out. Tune's default of one pending trial would starve all workers but one.
        os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(10**6)
        # The context holds the data: it is put once, and every node fetches it once, for all of its workers.
        context = tune.with_parameters(RstTrainable, context=[ray.put(self._context)])
        tuner = tune.Tuner(
            tune.with_resources(context, _placement(self._resources)),
            tune_config=tune.TuneConfig(
                search_alg=TaskSearcher(state),
                scheduler=MessageScheduler(state),
                num_samples=2**31,
                reuse_actors=True,
                trial_name_creator=lambda trial: f"rst_{trial.trial_id}",
                trial_dirname_creator=lambda trial: trial.trial_id,
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(self._context.directory / "ray"),
                stop=_StopOnFatal(state),
                failure_config=tune.FailureConfig(max_failures=self._resources.max_failures),
                callbacks=[ProgressCallback(each) for each in (on_progress, self._forget_tuner, check_room)],
                verbose=0,
            ),
        )
        try:
            tuner.fit()
        finally:
            self._forget_tuner()
            if state.fatal is not None:  # it comes first: what Tune raises after it only follows from it
                raise state.fatal

    def _forget_tuner(self) -> None:
        """Remove what makes Tune take the directory for an experiment that `Tuner.restore` continues.

        The event log is the truth: a search is resumed by running it again, and `Tuner.can_restore` says no.
        """
        (self._context.directory / "ray" / "tune" / "tuner.pkl").unlink(missing_ok=True)


def _bundle(resources: Resources) -> dict[str, float]:
    gpu = {"GPU": resources.gpus_per_worker} if resources.gpus_per_worker else {}
    return {"CPU": resources.cpus_per_worker, **gpu}


def _placement(resources: Resources, excluded: Collection[str] = ()) -> tune.PlacementGroupFactory:
    """Return what a trial reserves: its workers share a node wherever one is large enough for all of them."""
    bundle = _bundle(resources)
    fits = any(_room(node, bundle) >= resources.workers for node in _nodes(excluded))
    selector = {"ray.io/node-id": f"!in({','.join(sorted(excluded))})"}
    options = {"bundle_label_selector": [selector] * resources.workers} if excluded else {}
    strategy = "STRICT_PACK" if fits else "PACK"
    return tune.PlacementGroupFactory([bundle] * resources.workers, strategy=strategy, **options)


def _nodes(excluded: Collection[str] = ()) -> list[dict[str, float]]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"] and node["NodeID"] not in excluded]


def _available() -> str:
    nodes = _nodes()
    each = [f"{n.get('CPU', 0):g} CPU and {n.get('GPU', 0):g} GPU" for n in nodes]
    return f"{len(nodes)} node{'s' if len(nodes) != 1 else ''} ({'; '.join(dict.fromkeys(each)) or 'none alive'})"


def _room(node: dict[str, float], bundle: dict[str, float]) -> int:
    return int(min(node.get(name, 0.0) / amount + 1e-9 for name, amount in bundle.items()))


def cluster_slots(resources: Resources, excluded: Collection[str] = ()) -> int:
    """Return how many trials the connected cluster can hold at a time, without the nodes of these ids."""
    room = [_room(node, _bundle(resources)) for node in _nodes(excluded)]
    whole = sum(workers // resources.workers for workers in room)
    return whole or sum(room) // resources.workers


def cluster_devices() -> dict[str, float]:
    """Return the resources of the connected cluster by name."""
    return {name: count for name, count in ray.cluster_resources().items() if ":" not in name}

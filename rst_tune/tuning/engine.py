"""Ray Tune around the conductor: a searcher that hands out its plans, a scheduler that brings back the results."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune import Callback, Stopper
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from rst_tune.tuning.conductor import Conductor
from rst_tune.tuning.experiment import Resources
from rst_tune.tuning.job import Job, Shop
from rst_tune.tuning.trainable import RstTrainable

__all__ = ["conduct"]

_log = logging.getLogger(__name__)
# So many trials failed one after another, with none in between that trained: the task itself is broken.
HOPELESS_FAILURES = 5


class _Link:
    """What the searcher, the scheduler and the stopper share: the conductor, and the error that ended it."""

    def __init__(self, conductor: Conductor, shop: Shop) -> None:
        self.conductor, self.shop = conductor, shop
        self.keys: dict[str, dict[str, Any]] = {}
        self.reasons: dict[str, str] = {}
        self.fatal: BaseException | None = None
        self.failures = 0

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles whatever it is given into a snapshot that nobody reads: it gets an empty shell."""
        return {}

    def guard(self, work: Callable[[], Any], otherwise: Any) -> Any:
        """Do the work; an error (a full disk, say) stops the search instead of vanishing inside Tune."""
        if self.fatal is not None:
            return otherwise
        try:
            return work()
        except Exception as error:  # noqa: BLE001  it is raised again once Tune has come to rest
            self.fatal = error
            return otherwise

    def ended(self, plan: dict[str, Any], status: str, **result: Any) -> None:
        """Record how a training ended, then drop its unfinished state."""
        self.conductor.ended(plan["key"], status, **result)
        Job(plan, self.shop).discard()
        self.failures = self.failures + 1 if status == "failed" else 0
        if self.failures >= HOPELESS_FAILURES:
            raise RuntimeError(f"{self.failures} trials in a row failed; the last one: {result.get('reason')}")


class _Searcher(Searcher):  # type: ignore[misc]  # Ray is untyped
    def __init__(self, link: _Link) -> None:
        super().__init__()
        self._link = link

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._link.fatal is not None:
            return str(Searcher.FINISHED)
        plan = self._link.guard(self._link.conductor.next_plan, "done")
        if plan is None:
            return None
        if plan == "done":
            return str(Searcher.FINISHED)
        self._link.keys[trial_id] = plan.to_dict()
        return {"plan": json.dumps(plan.to_dict())}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        plan = self._link.keys.pop(trial_id, None)
        if plan is None:
            return
        reason = self._link.reasons.pop(trial_id, "the trial ended without a result")
        if plan["kind"] == "test":
            self._link.guard(lambda: self._link.conductor.tested(plan["key"], None), None)
        elif error:
            self._link.guard(lambda: self._link.ended(plan, "failed", reason=reason), None)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Results reach the conductor through the scheduler."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the record is the truth."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the record is the truth."""

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing: the record is the truth."""


class _Scheduler(FIFOScheduler):  # type: ignore[misc]  # Ray is untyped
    def __init__(self, link: _Link) -> None:
        super().__init__()
        self._link = link

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        decision = self._link.guard(lambda: self._take(trial, result), TrialScheduler.STOP)
        result.pop("payload", None)
        return str(decision)

    def _take(self, trial: Any, result: dict[str, Any]) -> str:
        conductor, key, status = self._link.conductor, result["key"], result["status"]
        if status == "taken":
            conductor.started(key, node=result["node"], worker=result["worker"], ray_trial=trial.trial_id)
            return str(TrialScheduler.CONTINUE)
        if status == "tested":
            conductor.tested(key, result["error"])
            return str(TrialScheduler.STOP)
        if status == "storage":  # the trial goes on when the search is resumed
            raise OSError(f"{result['reason']}. Make room, or make it writable")
        plan, payload = self._link.keys[trial.trial_id], json.loads(result["payload"])
        if status != "running":
            self._link.ended(plan, status, error=result["error"], **payload)
            return str(TrialScheduler.STOP)
        decision = conductor.report(key, result["epoch"], result["error"])
        if decision is None or not decision.stop:
            return str(TrialScheduler.CONTINUE)
        before = payload.get("reason")  # a checkpoint that was set aside, say
        payload["reason"] = f"stopped at epoch {result['epoch']}: {decision.reason}" + (f"; {before}" if before else "")
        self._link.ended(plan, "stopped", error=result["error"], **payload)
        return str(TrialScheduler.STOP)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        error = trial.get_pickled_error()
        text = str(error).strip().splitlines() or ["unknown error"]
        self._link.reasons[trial.trial_id] = f"{type(error).__name__}: {text[-1]}"
        _log.warning("%s failed: %s", self._link.keys.get(trial.trial_id, {}).get("key"), error)


class _StopOnFatal(Stopper):  # type: ignore[misc]  # Ray is untyped
    def __init__(self, link: _Link) -> None:
        self._link = link

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._link.fatal is not None


class _Tick(Callback):  # type: ignore[misc]  # Ray is untyped
    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._tick()

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        result.pop("payload", None)  # Tune keeps the last result of every trial in memory


def conduct(conductor: Conductor, shop: Shop, resources: Resources, tick: Callable[[], None]) -> None:
    """Run the conductor's plans on the connected Ray cluster until it has no more.

    `tick` is called several times a second. An error of the conductor itself is raised here, after Tune has come to
    rest; an error of a trial is a line in the record.
    """
    link = _Link(conductor, shop)
    conductor.slots = max(1, cluster_slots(resources))
    # As many as fit may wait to start; with Tune's default of one, short trials starve all workers but the first.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(conductor.slots)
    # The shop holds the data: it is put once, and every node fetches it once, however many workers it has.
    trainable = tune.with_resources(tune.with_parameters(RstTrainable, shop=[ray.put(shop)]), _placement(resources))
    tuner = tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            search_alg=_Searcher(link),
            scheduler=_Scheduler(link),
            num_samples=2**31,
            reuse_actors=True,
            trial_name_creator=lambda trial: f"rst_{trial.trial_id}",
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(Path(shop.directory) / "ray"),
            stop=_StopOnFatal(link),
            failure_config=tune.FailureConfig(max_failures=resources.retries),
            callbacks=[_Tick(tick)],
            verbose=0,
        ),
    )
    try:
        tuner.fit()
    finally:
        if link.fatal is not None:  # it comes first: what Tune says after it only follows from it
            raise link.fatal


def _bundle(resources: Resources) -> dict[str, float]:
    return {"CPU": resources.cpu, **({"GPU": resources.gpu} if resources.gpu else {})}


def _placement(resources: Resources) -> tune.PlacementGroupFactory:
    """Return what a trial reserves: its workers share a node wherever one is large enough for all of them."""
    bundle = _bundle(resources)
    fits = any(_room(node, bundle) >= resources.workers for node in _nodes())
    return tune.PlacementGroupFactory([bundle] * resources.workers, strategy="STRICT_PACK" if fits else "PACK")


def _nodes() -> list[dict[str, float]]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _room(node: dict[str, float], bundle: dict[str, float]) -> int:
    return int(min(node.get(name, 0.0) / amount + 1e-9 for name, amount in bundle.items()))


def cluster_slots(resources: Resources) -> int:
    """Return how many trials the connected cluster can hold at a time."""
    room = [_room(node, _bundle(resources)) for node in _nodes()]
    whole = sum(workers // resources.workers for workers in room)
    return whole or sum(room) // resources.workers

"""A trial as others see it: as a piece of work for a worker, a runner past the rungs, a lesson for the sampler."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal

from rst_tune.analysis.records import Trial
from rst_tune.tuning.job import OUT_OF_MEMORY

__all__ = ["Plan", "lesson_of", "plan_of", "runner_of"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One piece of work for a worker: a training, or (`test`) the reading of the test set for a finished one."""

    kind: Literal["train", "test"]
    key: str
    role: str
    config: Mapping[str, Any]
    seed: int
    epochs: int
    rungs: tuple[int, ...] = ()
    keep: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def plan_of(trial: Trial, kind: Literal["train", "test"], rungs: tuple[int, ...] = ()) -> Plan:
    """Return the trial as a piece of work that is judged at `rungs`; the model of a confirming one is kept."""
    return Plan(
        kind=kind,
        key=trial.key,
        role=trial.role,
        config=trial.config,
        seed=trial.seed,
        epochs=trial.epochs,
        rungs=rungs,
        keep=trial.role == "confirm",
    )


def runner_of(trial: Trial) -> str:
    """Return who runs past the rungs: with a rescaled horizon several trials are one runner."""
    return f"{trial.config_id}-s{trial.seed}"


def lesson_of(seeds: Sequence[Trial]) -> tuple[str, tuple[float, float]]:
    """Return what the sampler should learn of the ended seeds of a configuration: a status and the two objectives.

    The worst ending counts. Too much memory is to be avoided like divergence; a whole short training was stopped.
    """
    status = next((_ending(trial) for trial in seeds if not trial.finished), "complete")
    errors = [trial.error for trial in seeds if trial.error is not None]
    return status, (fmean(errors) if errors else float("nan"), seeds[0].extra_propagation)


def _ending(trial: Trial) -> str:
    if trial.reason.startswith(OUT_OF_MEMORY):
        return "diverged"
    if trial.status == "complete":  # a whole short training, or one whose error is not a number
        return "diverged" if trial.full else "stopped"
    return trial.status

"""Which configurations are replicated on fresh seeds, and which of them next."""

from collections.abc import Callable, Collection, Sequence
from statistics import fmean

import numpy as np

from rst_tune.analysis.replicates import nondominated_probabilities
from rst_tune.records import Role, Search, Trial
from rst_tune.tuning.experiment import Confirm
from rst_tune.tuning.halving import pareto_order

__all__ = ["Confirmation", "candidates", "unsettled"]


class Confirmation:
    """The replicates so far. The order of the candidates is computed again only when one of them changed."""

    def __init__(self, settings: Confirm, baselines: Collection[str]) -> None:
        self._settings, self._baselines = settings, baselines
        self._trials: dict[str, Trial] = {}
        self._chosen: list[str] | None = None
        self._order: list[str] | None = None

    def update(self, trial: Trial) -> None:
        """Register a replicate that was created or has ended."""
        self._trials[trial.key] = trial
        self._order = None

    def next(self, search: Callable[[], Search], running: Collection[str]) -> tuple[str, int] | None:
        """Return the configuration to replicate next and its number of replicates, or None when none needs one now.

        `search` gives the searching trials, which are over, so the choice of candidates stands. `running` are the
        configurations that are being replicated: beyond the first seeds each gets one at a time, because its result
        decides whether another is needed.
        """
        if self._chosen is None:
            self._chosen = candidates(search().trials, self._settings.candidates, self._baselines)
        if self._order is None:
            self._order = unsettled(list(self._trials.values()), self._chosen, self._settings)
        counts = _replicates(self._chosen, self._trials.values())
        for identity in self._order:
            if identity not in running or counts[identity] < self._settings.min_seeds:
                return identity, counts[identity]
        return None


def _replicates(chosen: Sequence[str], trials: Collection[Trial]) -> dict[str, int]:
    counts = dict.fromkeys(chosen, 0)
    for trial in trials:
        if trial.config_id in counts:
            counts[trial.config_id] += 1
    return counts


def candidates(trials: Sequence[Trial], limit: int, baselines: Collection[str] = ()) -> list[str]:
    """Return the ids to replicate: the baselines, then the best in the Pareto order of the searching trials.

    The order goes by the errors as measured. Smoothed by the surrogate they would spare the lucky ones a second
    training, and finding those is the purpose (docs/log.md, 2026-11-17: 0.951 against 0.947 of the best known).
    """
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.role is Role.SEARCH and trial.finished:
            groups.setdefault(trial.config_id, []).append(trial)
    if not groups:
        return []
    names = list(groups)
    points = [(fmean(t.error or 0.0 for t in group), group[0].compute) for group in groups.values()]
    ranked = [names[i] for i in pareto_order(np.array(points))]
    first = [identity for identity in ranked if identity in baselines]
    return (first + [identity for identity in ranked if identity not in baselines])[: max(limit, len(first))]


def unsettled(replicates: Sequence[Trial], chosen: Sequence[str], settings: Confirm) -> list[str]:
    """Return the candidates that need another seed, the most uncertain first.

    A candidate is settled when its P(non-dominated) among the candidates is below `probability` or above one minus
    it, or when it has `max_seeds`. Each gets `min_seeds` before anything is decided.
    """
    seeds = _replicates(chosen, replicates)
    fewest = [identity for identity in chosen if seeds[identity] < settings.min_seeds]
    if fewest:
        return sorted(fewest, key=lambda identity: seeds[identity])
    # As long as the noise is unknown, all are uncertain.
    chance = {
        identity: 0.5 if p is None else p
        for identity, p in nondominated_probabilities([t for t in replicates if t.config_id in seeds]).items()
    }
    open_ = [
        identity
        for identity, p in chance.items()
        if settings.probability < p < 1 - settings.probability and seeds[identity] < settings.max_seeds
    ]
    return sorted(open_, key=lambda identity: abs(chance[identity] - 0.5))

"""Which configurations are retrained on fresh seeds, and which of them next."""

from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from rst_tune.analysis import noise
from rst_tune.analysis.records import Search, Trial
from rst_tune.tuning.experiment import Confirm
from rst_tune.tuning.rungs import pareto_order

__all__ = ["Confirmation", "candidates", "unsettled"]


class Confirmation:
    """The confirming trials so far. Who needs another seed is worked out anew only when one of them changed."""

    def __init__(self, settings: Confirm, ends: Collection[str]) -> None:
        self._settings, self._ends = settings, ends
        self._trials: dict[str, Trial] = {}
        self._chosen: list[str] | None = None
        self._order: list[str] | None = None

    def see(self, trial: Trial) -> None:
        """Take note of a confirming trial that was drawn or has ended."""
        self._trials[trial.key] = trial
        self._order = None

    def next(self, search: Callable[[], Search], running: Collection[str]) -> tuple[str, int] | None:
        """Return the configuration to train next and how many seeds it had, or None when none needs one now.

        `search` gives the searching trials, which are over, so the choice of candidates stands. `running` are the
        configurations that are being confirmed: beyond the first seeds, one at a time says what the next is worth.
        """
        if self._chosen is None:
            self._chosen = candidates(search().trials, self._settings.candidates, self._ends)
        if self._order is None:
            self._order = unsettled(list(self._trials.values()), self._chosen, self._settings)
        counts = _seeds(self._chosen, self._trials.values())
        for identity in self._order:
            if identity not in running or counts[identity] < self._settings.first:
                return identity, counts[identity]
        return None


def _seeds(chosen: Sequence[str], trials: Collection[Trial]) -> dict[str, int]:
    seeds = dict.fromkeys(chosen, 0)
    for trial in trials:
        if trial.config_id in seeds:
            seeds[trial.config_id] += 1
    return seeds


def candidates(trials: Sequence[Trial], limit: int, ends: Collection[str] = ()) -> list[str]:
    """Return the ids worth confirming: the two ends, then the best in the Pareto order of the searching trials.

    The ends (the base optimizer and SAM) come along whatever they scored, because every front is read against them.
    """
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.role == "search" and trial.finished:
            groups.setdefault(trial.config_id, []).append(trial)
    if not groups:
        return []
    costs = [group[0].extra_propagation for group in groups.values()]
    names = list(groups)
    ranked = [names[i] for i in pareto_order(np.column_stack([measured(groups), costs]))]
    first = [identity for identity in ranked if identity in ends]
    return (first + [identity for identity in ranked if identity not in ends])[: max(limit, len(first))]


def measured(groups: Mapping[str, Sequence[Trial]]) -> NDArray[np.float64]:
    """Return the errors that the choice goes by: as measured.

    Smoothed by the belief they would spare the lucky ones a second look, which is what confirming is for.
    """
    return np.array([fmean(t.error or 0.0 for t in group) for group in groups.values()])


def unsettled(confirming: Sequence[Trial], chosen: Sequence[str], settings: Confirm) -> list[str]:
    """Return the candidates that need another seed, the most uncertain first.

    A candidate is settled when its P(non-dominated) among the candidates is below `probability` or above one minus
    it, or when it has all the seeds it may get. Each gets its `first` seeds before anything is judged.
    """
    seeds = _seeds(chosen, confirming)
    fewest = [identity for identity in chosen if seeds[identity] < settings.first]
    if fewest:
        return sorted(fewest, key=lambda identity: seeds[identity])
    chance = noise.probabilities([t for t in confirming if t.config_id in seeds])
    doubt = {
        identity: abs(p - 0.5)
        # As long as nothing is known of the noise, all are in doubt.
        for identity, p in ((i, 0.5 if p is None else p) for i, p in chance.items())
        if settings.probability < p < 1 - settings.probability and seeds[identity] < settings.seeds
    }
    return sorted(doubt, key=lambda identity: doubt[identity])

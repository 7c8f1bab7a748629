"""Which configurations are replicated on fresh seeds: the points that the answer is about, and their baselines.

A few points that hold most of the hypervolume of the posterior front are chosen, spread over the compute axis; each
gets `min_seeds` fresh seeds, shared by all, and so do the baselines that the answer compares them with: the base
optimizer at its best length, and SAM. The choice is made again whenever a replicate ends, so a point that turns out
worse gives way to the next one. What is left of the budget goes to further seeds of the same configurations.

The front has other points, too, as the surrogate predicts them. To replicate all of them costs 0.03 of the hypervolume
with 40 plain trainings (docs/log.md).
"""

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import ArrayLike

from rst_tune.analysis import pareto
from rst_tune.records import Role, Trial, TrialConfig
from rst_tune.tuning.experiment import Confirm
from rst_tune.tuning.model import SearchModel

Point = tuple[float, float]
# A further point must add this share of the front's hypervolume.
MIN_SHARE = 0.003


class Confirmation:
    """The replicates so far, and what is due. `baselines` maps ids to configurations that are trained in any case."""

    def __init__(self, settings: Confirm, baselines: Mapping[str, TrialConfig], model: SearchModel) -> None:
        self._settings, self._baselines, self._model = settings, baselines, model
        self._seeds: dict[str, set[int]] = {}
        self._last: tuple[tuple[int, Point | None], list[str]] | None = None

    def update(self, trial: Trial) -> None:
        """Register a replicate that was created or has ended."""
        if trial.role is Role.CONFIRM:
            self._seeds.setdefault(trial.config_id, set()).add(trial.seed)

    def seeds(self, config_id: str) -> int:
        """Return how many fresh seeds a configuration was given."""
        return len(self._seeds.get(config_id, ()))

    def missing(self, config_id: str) -> int:
        """Return how many fresh seeds it lacks. The first seed of a baseline counts: it was not selected."""
        own = self.seeds(config_id) + self._model.delivered[config_id].is_baseline
        return max(self._settings.min_seeds - own, 0)

    def reserve(self, reference: Point | None) -> float:
        """Return the compute that the missing replicates take, in plain trainings."""
        trained, enabled = self._model.delivered, self._settings.enabled
        return sum(self.missing(n) * trained[n].compute for n in self.chosen(reference)) if enabled else 0.0

    def next(self, reference: Point | None, running: Collection[str]) -> str | None:
        """Return the id of the next one to be replicated, or None when none is due now.

        Beyond `min_seeds` a configuration gets one seed at a time, up to `max_seeds`, the one with the fewest first.
        """
        chosen, trained = self.chosen(reference), self._model.delivered
        due = next((name for name in chosen if self.missing(name)), None)
        able = [n for n in chosen if self.seeds(n) < self._settings.max_seeds and n not in running]
        return due or min(able, key=lambda n: (self.seeds(n), trained[n].compute), default=None)

    def chosen(self, reference: Point | None) -> list[str]:
        """Return the ids of the chosen points by their share of the hypervolume, then the baselines of the answer."""
        state = (len(self._model.finished), reference)
        if self._last is None or self._last[0] != state:
            self._last = state, self._choose(reference)
        return self._last[1]

    def _choose(self, reference: Point | None) -> list[str]:
        trained = self._model.delivered
        if reference is None or not self._model.ready or not trained:
            return list(trained)[: self._settings.candidates]
        names, configs = list(trained), list(trained.values())
        errors = self._model.surrogate().errors(configs)
        points = np.column_stack([errors, [config.compute for config in configs]])
        best = [names[i] for i in spread_points(points, reference, self._settings.candidates)]
        error, known = dict(zip(names, errors, strict=True)), [name for name in self._baselines if name in trained]
        base = sorted((name for name in known if trained[name].is_base), key=lambda name: error[name])
        return list(dict.fromkeys((*best, *base[:1], *(name for name in known if name not in base))))


def spread_points(points: ArrayLike, reference: Point, limit: int) -> list[int]:
    """Return the indices of at most `limit` points that hold most of the hypervolume, the most important first.

    Each is the one that adds most to those before it; what adds less than `MIN_SHARE` of the whole is left out.

    >>> spread_points([(5.0, 1.0), (3.0, 2.0), (2.999, 2.1), (9.0, 0.5)], (6.0, 4.0), 3)
    [1, 0]
    """
    array = np.asarray(points, dtype=float).reshape(-1, 2)
    able = [int(i) for i in np.flatnonzero(pareto.nondominated(array))]
    whole = pareto.hypervolume(array[able], reference)
    chosen: list[int] = []
    held = 0.0
    while able and len(chosen) < limit:
        values = [pareto.hypervolume(array[[*chosen, i]], reference) for i in able]
        best = int(np.argmax(values))
        if values[best] - held < MIN_SHARE * whole or values[best] <= held:
            break
        held = values[best]
        chosen.append(able.pop(best))
    return chosen

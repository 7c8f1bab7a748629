"""Which configurations are replicated on fresh seeds: the points that the answer is about, and their baselines.

A few points that hold most of the hypervolume of the posterior front are chosen, spread over the compute axis; each
gets `min_seeds` fresh seeds, shared by all, and so do the baselines that the answer compares them with: the base
optimizer at its best length, and SAM. The choice is made again whenever a replicate ends, so a point that turns out
worse gives way to the next one. What is left of the budget goes to further seeds of the same configurations.

The front has other points, too, as the surrogate predicts them. To replicate all of them costs 0.03 of the hypervolume
with 40 plain trainings (docs/log.md).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rst_tune.analysis import pareto
from rst_tune.records import Role, Trial, TrialConfig
from rst_tune.tuning.experiment import Confirm
from rst_tune.tuning.model import SearchModel

Point = tuple[float, float]
# A further point must add this share of the front's hypervolume.
MIN_SHARE = 0.003


@dataclass(frozen=True)
class Replicate:
    """A configuration, how many fresh seeds it has, and how many it needs at least."""

    config_id: str
    config: TrialConfig
    seeds: int
    missing: int


class Confirmation:
    """The replicates so far, and what is due. `baselines` maps ids to configurations that are trained in any case."""

    def __init__(self, settings: Confirm, baselines: Mapping[str, TrialConfig], model: SearchModel) -> None:
        self._settings, self._baselines, self._model = settings, baselines, model
        self._seeds: dict[str, set[int]] = {}
        self._plan: tuple[tuple[int, Point | None], list[Replicate]] | None = None

    def update(self, trial: Trial) -> None:
        """Register a replicate that was created or has ended."""
        if trial.role is Role.CONFIRM:
            self._seeds.setdefault(trial.config_id, set()).add(trial.seed)

    def seeds(self, config_id: str) -> int:
        """Return how many fresh seeds a configuration was given."""
        return len(self._seeds.get(config_id, ()))

    def plan(self, reference: Point | None) -> list[Replicate]:
        """Return the chosen points by their share of the hypervolume, then the baselines of the answer."""
        state = (len(self._model.finished), reference)
        if self._plan is None or self._plan[0] != state:
            self._plan = state, self._chosen(reference)
        return [self._due(r) for r in self._plan[1]]

    def _due(self, replicate: Replicate) -> Replicate:
        """Return the replicate with what is missing now. The first seed of a baseline counts: it was not selected."""
        name, config = replicate.config_id, replicate.config
        seeds = self.seeds(name)
        return Replicate(name, config, seeds, max(self._settings.min_seeds - seeds - config.is_baseline, 0))

    def reserve(self, reference: Point | None) -> float:
        """Return the compute that the missing replicates take, in plain trainings."""
        if not self._settings.enabled:
            return 0.0
        return sum(r.missing * r.config.compute for r in self.plan(reference))

    def next(self, reference: Point | None, running: Collection[str]) -> Replicate | None:
        """Return the next replicate, or None when none is due now.

        Beyond `min_seeds` a configuration gets one seed at a time, up to `max_seeds`, the one with the fewest first.
        """
        plan = self.plan(reference)
        for replicate in plan:
            if replicate.missing:
                return replicate
        able = [r for r in plan if r.seeds < self._settings.max_seeds and r.config_id not in running]
        return min(able, key=lambda r: (r.seeds, r.config.compute), default=None)

    def _chosen(self, reference: Point | None) -> list[Replicate]:
        trained = self._model.delivered
        names, configs = list(trained), list(trained.values())
        if not names:
            return []
        if reference is None or not self._model.ready:
            return [Replicate(name, trained[name], 0, 0) for name in names[: self._settings.candidates]]
        errors = self._model.surrogate().errors(configs)
        points = np.column_stack([errors, [config.compute for config in configs]])
        chosen = [names[i] for i in spread_points(points, reference, self._settings.candidates)]
        error = dict(zip(names, errors, strict=True))
        base = [name for name in self._baselines if name in trained and trained[name].is_base]
        compared = sorted(base, key=lambda name: error[name])[:1] + [n for n in self._baselines if n not in base]
        return [Replicate(n, trained[n], 0, 0) for n in dict.fromkeys((*chosen, *compared)) if n in trained]


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

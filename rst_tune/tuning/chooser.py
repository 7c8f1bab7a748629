"""The sampler `front`: it draws where the front is expected to grow most for the compute it takes.

Of many random points of the space, and then of many near the best of them, it takes the one with the largest expected
gain of hypervolume for each pair that its training costs. The cost of a point is known before training, so only the
error is uncertain, and a part of that is hoped for: the gain is a sum of expected improvements over the steps of the
front as it is believed to be. What is believed comes from `analysis.posterior`. A trial that is running counts with the
error that is expected of it, so that workers do not draw the same point twice. One that was stopped counts with what
its last rung lets expect: where some seeds break down, the rungs stop those, and a belief from the finished ones alone
would be too rosy.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from threadpoolctl import threadpool_limits

from rst_tune.analysis import pareto, posterior
from rst_tune.analysis.posterior import Posterior
from rst_tune.analysis.records import Trial
from rst_tune.tuning.job import OUT_OF_MEMORY
from rst_tune.tuning.space import Coordinates, configuration

__all__ = ["STEPS", "STEPS_OF_COST", "Chooser", "RandomSuggester", "expected_gain"]

Array = NDArray[np.float64]
_Candidate = tuple[dict[str, Any], dict[str, Any]]  # what was drawn, and the configuration that it means

CANDIDATES, NEIGHBOURS = 1000, 300
# A neighbour of the best candidate is so far from it (in ranges), and has its choices with this probability.
NEAR, KEPT = 0.08, 0.8
# How much of the uncertainty is hoped for. All of it sends many of the few draws that a search has to places of which
# nothing is known, and most of those are bad.
HOPE = 0.6
# A candidate's schedule is built over so few steps: its mean is all that is looked at. In the cost coordinates the
# mean is exact over any number of steps, so over one.
STEPS, STEPS_OF_COST = 64, 1
# More finished trials than this are looked at through a sample, and the scales of the belief are fitted again only
# when a tenth has come in: a draw then takes as long after 20,000 trials as after 200.
OFTEN = 40
# Of more running and stopped trials than this the latest are believed; of more finished ones the latest count, because
# the draws gather where the front is.
BELIEVED, RECENT = 100, 300
# What a training that diverged or did not fit into memory counts as, in percent.
BROKEN = 100.0


class RandomSuggester:
    """Answers like an Optuna trial, at random, and remembers the answers in `params`.

    Given a point `around`, a number is drawn near that point's and a choice is mostly that point's.
    """

    def __init__(self, rng: np.random.Generator, around: Mapping[str, Any] | None = None) -> None:
        self._rng, self._around = rng, around or {}
        self.params: dict[str, Any] = {}

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Return a number of the range."""
        if name not in self.params:
            value = self._in_range(name, low, high, log)
            if step is not None:
                value = low + step * int(self._rng.integers(0, int((high - low) / step + 1e-9) + 1))
            self.params[name] = min(max(value, low), high)
        return float(self.params[name])

    def _in_range(self, name: str, low: float, high: float, log: bool) -> float:
        scale, back = (np.log, np.exp) if log else (float, float)
        start, width = scale(low), scale(high) - scale(low)
        if name in self._around:
            return float(back(scale(self._around[name]) + NEAR * width * self._rng.normal()))
        return float(back(start + width * self._rng.random()))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """Return a whole number of the range."""
        if name not in self.params:
            drawn = self._rng.integers(0, (high - low) // step + 1) * step + low
            self.params[name] = round(low * (high / low) ** self._rng.random()) if log else int(drawn)
        return int(self.params[name])

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return one of the choices."""
        if name not in self.params:
            keep = name in self._around and self._rng.random() < KEPT
            self.params[name] = self._around[name] if keep else choices[int(self._rng.integers(len(choices)))]
        return self.params[name]


class Chooser:
    """Chooses the parameters of the next draw from the trials that it was told of, in the order in which they ended."""

    def __init__(self, draw: Callable[[Any], Coordinates], *, rho: float, startup: int, steps: int = STEPS) -> None:
        self._draw, self._rho, self._steps = draw, rho, steps
        self._startup = max(startup, posterior.FEWEST)
        self._finished: list[Trial] = []
        self._stopped: list[Trial] = []
        self._scales: tuple[int, Any] = (0, None)

    def learn(self, trial: Trial, expected: float | None = None) -> None:
        """Take note of a trial that ended; a stopped one counts with the error `expected` at its end, if that is known.

        One that broke down counts with the largest error there is.
        """
        broken = trial.full and (trial.status == "diverged" or trial.reason.startswith(OUT_OF_MEMORY))
        error = BROKEN if broken else expected
        trial = trial if error is None else replace(trial, status="complete", error=error)
        if trial.finished:
            self._finished.append(trial)
        elif trial.status == "stopped":
            self._stopped.append(trial)

    def choose(
        self, running: Sequence[Trial], reference: tuple[float, float] | None, seed: int
    ) -> dict[str, Any] | None:
        """Return the parameters of the next draw, or None as long as too little has finished to believe anything."""
        if len(self._finished) < self._startup or reference is None:
            return None
        rng = np.random.default_rng(seed)
        candidates = [self._candidate(rng) for _ in range(CANDIDATES)]
        with threadpool_limits(1):  # quicker at this size, and rounded alike on any number of cores
            worth = self._worth([config for _, config in candidates], running, reference)
            best = candidates[int(np.argmax(worth(candidates)))]
            near = [best, *(self._candidate(rng, best[0]) for _ in range(NEIGHBOURS))]
            return near[int(np.argmax(worth(near)))][0]

    def _worth(
        self, known: list[dict[str, Any]], running: Sequence[Trial], reference: tuple[float, float]
    ) -> Callable[[list[_Candidate]], Array]:
        """Return what gives the expected gain of hypervolume for each pair that a candidate costs."""
        looked_at = [t.config for t in (*self._stopped[-BELIEVED:], *running)][-BELIEVED:]
        tried = self._finished[-RECENT:]
        belief = self._belief(tried, [*known, *looked_at]).believing(looked_at)
        tried_configs = [t.config for t in tried]
        believed_front = np.column_stack([belief.errors(tried_configs), _costs(tried_configs)])

        def worth(candidates: list[_Candidate]) -> Array:
            configs = [config for _, config in candidates]
            costs = _costs(configs)
            mean, sd = belief.log_errors(configs)
            return expected_gain(mean, HOPE * sd, costs, believed_front, reference) / (1 + costs)

        return worth

    def _belief(self, tried: Sequence[Trial], known: Sequence[Mapping[str, Any]]) -> Posterior:
        at, scales = self._scales
        if at != (at := _refitted_at(len(self._finished))):
            scales = posterior.fit_trials(self._finished[:at], known=known).scales
            self._scales = (at, scales)
        return posterior.fit_trials(tried, scales=scales, known=known)

    def _candidate(self, rng: np.random.Generator, around: Mapping[str, Any] | None = None) -> _Candidate:
        suggester = RandomSuggester(rng, around)
        point = self._draw(suggester)
        return suggester.params, configuration(point, total_steps=self._steps, rho=self._rho)


def _refitted_at(count: int) -> int:
    """Return the number of trials at which the scales were last fitted: always, then at every tenth more.

    >>> [_refitted_at(n) for n in (8, 39, 44, 45, 10_000)]
    [8, 39, 44, 44, 9786]
    """
    at = min(count, OFTEN)
    while (following := at + max(at // 10, 1)) <= count and at >= OFTEN:
        at = following
    return at


def _costs(configs: Sequence[Mapping[str, Any]]) -> Array:
    return np.array([float(config["extra_propagation"]) for config in configs])


def expected_gain(mean: Array, sd: Array, costs: Array, tried: Array, reference: tuple[float, float]) -> Array:
    """Return the expected gain of hypervolume of trainings whose log error is normal and whose cost is known.

    `tried` has a row (error, cost) for each point that the front is made of. Between two steps of the front the
    error to beat is constant: the gain there is the width times the expected improvement over that error.

    >>> tried = np.array([[5.0, 0.5]])
    >>> expected_gain(np.log([4.0]), np.array([1e-9]), np.array([0.3]), tried, (10.0, 1.0)).round(3).tolist()
    [1.7]
    """
    steps = np.array(sorted((c, e) for e, c in tried[pareto.front(tried)] if e < reference[0] and c < reference[1]))
    steps = steps.reshape(-1, 2)
    edges = np.concatenate([[-np.inf], steps[:, 0], [reference[1]]])
    to_beat = np.concatenate([[reference[0]], steps[:, 1]])
    width = np.clip(edges[None, 1:] - np.maximum(edges[None, :-1], costs[:, None]), 0.0, None)
    z = (np.log(to_beat)[None, :] - mean[:, None]) / sd[:, None]
    improved = to_beat * stats.norm.cdf(z) - np.exp(mean + sd**2 / 2)[:, None] * stats.norm.cdf(z - sd[:, None])
    return np.asarray((width * np.maximum(improved, 0.0)).sum(axis=1))

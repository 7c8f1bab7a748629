"""The sampler `front`: each proposal is the training that is expected to improve the delivered front most per compute.

What a search delivers is the front of the posterior means of the surrogate. One more training, of a new configuration
or a replicate of one that is there, moves those means; the acquisition is the expected gain of the front's hypervolume
over the outcomes of that training (a knowledge gradient), divided by its compute. A running trial counts with its
posterior mean, so that workers do not propose the same point twice. A stopped trial counts with the final error that
its last rung predicts.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler

from rst_tune.analysis.features import FeatureEncoding
from rst_tune.analysis.surrogate import MIN_TRIALS, NO_SEED, PRIOR, Surrogate, threadpools
from rst_tune.records import Prior, Trial, TrialConfig
from rst_tune.tuning.model import WORST_ERROR, SearchModel
from rst_tune.tuning.space import Params, TaskScale, trial_config

Array = NDArray[np.float64]
_Candidate = tuple[dict[str, Any], TrialConfig]  # what was suggested, and the configuration that it means

# Candidates per proposal, drawn from a pool of samples of the space that is made once, and neighbours of the best one.
# About half or twice of these (but the pool), and of twelve other constants of the search, makes no difference beyond
# that of chance: experiments/benchmarks/suite/constants.py.
N_POOL, N_CANDIDATES, N_NEIGHBOURS = 2000, 300, 100
# A neighbour of the best candidate lies this far from it (in ranges), and keeps its choices with this probability.
NEIGHBOUR_SCALE, P_KEEP_CATEGORY = 0.08, 0.8
# Added to the compute that a gain is divided by, in plain trainings. Without it hundreds of the cheapest trainings, of
# nearly no gain each, can use up a budget (one of nine searches of the suite); 0 to 1 are equally good otherwise.
OVERHEAD = 0.3
# The trainings of a candidate that its gain is computed for. One alone seldom changes what is delivered where the noise
# is large, so that a search by the value of one replicates what is cheap and explores little: with four, the front has
# 0.93 and 0.90 instead of 0.88 and 0.85 on the two noisiest tasks of the suite, and as much as before on the others.
REPEATS = 4.0
# Nodes and weights of the Gauss-Hermite rule for the expectation over the outcome of one training.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


class RandomSuggester:
    """Answers like an Optuna trial, at random, and keeps the answers in `params`.

    Given a point `around`, a number is drawn near that point's and a choice is mostly that point's.
    """

    def __init__(self, rng: np.random.Generator, around: Mapping[str, Any] | None = None) -> None:
        self._rng, self._around = rng, around or {}
        self.params: dict[str, Any] = {}

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Return a number of the range."""
        return float(self._number(name, low, high, step, log))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """Return a whole number of the range."""
        return int(self._number(name, low, high, step, log))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return one of the choices."""
        if name not in self.params:
            keep = name in self._around and self._rng.random() < P_KEEP_CATEGORY
            self.params[name] = self._around[name] if keep else choices[int(self._rng.integers(len(choices)))]
        return self.params[name]

    def _number(self, name: str, low: float, high: float, step: float | None, log: bool) -> float:
        """Return a number; of a range with steps, each of them is equally likely."""
        if name not in self.params:
            half = 0.0 if step is None or log else 0.5 * step
            scale, back = (np.log, np.exp) if log else (float, float)
            start, width = scale(low - half), scale(high + half) - scale(low - half)
            near = name in self._around
            away = NEIGHBOUR_SCALE * self._rng.normal() if near else self._rng.random()
            value = back((scale(self._around[name]) if near else start) + width * away)
            value = value if step is None else low + step * round((value - low) / step)
            self.params[name] = type(low)(min(max(value, low), high))
        return float(self.params[name])


def no_seed(config: TrialConfig | None) -> int:  # noqa: ARG001  one signature with a search's own
    """Return the seed that no other training has; a function, because samplers are pickled."""
    return NO_SEED


class FrontSampler(BaseSampler):
    """Proposes trainings from what a `SearchModel` has observed.

    `propose` may name a replicate. As an Optuna sampler it proposes new configurations only: `prepare` sets the pending
    trials, the reference point and the seed before each `study.ask`. While too few trials have finished it samples at
    random.
    """

    def __init__(
        self,
        sample: Callable[[Any], Params],
        scale: TaskScale,
        *,
        n_startup_trials: int = MIN_TRIALS,
        worst_error: float = WORST_ERROR,
        prior: Prior = PRIOR,
    ) -> None:
        self._sample, self._scale = sample, scale
        self.model = SearchModel(self._encoding, worst_error, prior)
        self._n_startup_trials = n_startup_trials
        self.prepare((), None, 0)

    @cached_property
    def _pool(self) -> list[_Candidate]:
        rng = np.random.default_rng(0)
        return [self._candidate(rng) for _ in range(N_POOL)]

    @cached_property
    def _space_encoding(self) -> FeatureEncoding:
        return FeatureEncoding.of(config for _, config in self._pool)

    def _encoding(self) -> FeatureEncoding:  # a method, because samplers are pickled
        return self._space_encoding

    def prepare(
        self,
        pending: Sequence[Trial],
        reference: tuple[float, float] | None,
        seed: int,
        seed_of: Callable[[TrialConfig | None], int] = no_seed,
    ) -> None:
        """Set what the next proposal takes into account.

        `seed_of` has the seed that a replicate of a configuration is trained with next, or, for None, a new one.
        """
        self._pending, self._reference, self._seed, self._seed_of = pending, reference, seed, seed_of
        self._random = RandomSampler(seed=seed)
        self._suggested: dict[str, Any] | None = None

    def before_trial(self, *_: Any) -> None:
        """Choose the parameters of the trial that Optuna is about to create."""
        if self._suggested is None:
            self.propose(replicates=False)

    def infer_relative_search_space(self, *_: Any) -> dict[str, BaseDistribution]:
        """Return nothing: the space is conditional, so every parameter is sampled when it is asked for."""
        return {}

    def sample_relative(self, *_: Any) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: optuna.trial.FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return the proposed value, or a random one as long as there is no proposal."""
        if self._suggested is not None and param_name in self._suggested:
            return self._suggested[param_name]
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def propose(self, *, replicates: bool = True) -> dict[str, Any] | TrialConfig | None:
        """Return the training with the largest acquisition; None while too little has finished, or nothing is worth it.

        That of a new configuration is what Optuna is to suggest, a replicate the configuration that was trained before.
        """
        reference = self._reference
        if len(self.model.finished) < self._n_startup_trials or not self.model.ready or reference is None:
            return None
        rng = np.random.default_rng(self._seed)
        pending = [trial.config for trial in self._pending]
        known = {config.identity for config in (*self.model.delivered.values(), *pending)}
        candidates = [self._pool[int(i)] for i in rng.choice(N_POOL, N_CANDIDATES, replace=False)]
        candidates = [c for c in candidates if c[1].identity not in known]
        with threadpools().limit(limits=1):  # quicker at this size, and rounded alike on any number of cores
            surrogate = self.model.surrogate(self._pending)
            able = self.model.deliverable(pending)
            # The others only take time: one more training will not bring them onto the front.
            delivered = [able[i] for i in surrogate.contenders(able)]

            def acquisition(configs: Sequence[TrialConfig], *, new: bool) -> Array:
                if not configs:
                    return np.zeros(0)
                seeds = [self._seed_of(None if new else config) for config in configs]
                gain = knowledge_gradient(surrogate, configs, delivered, reference, seeds)
                return np.asarray(gain / (OVERHEAD + np.array([config.compute for config in configs])))

            if candidates:
                first = candidates[int(np.argmax(acquisition([config for _, config in candidates], new=True)))]
                near = [self._candidate(rng, first[0]) for _ in range(N_NEIGHBOURS)]
                candidates = [first, *(c for c in near if c[1].identity not in known)]
            gains = acquisition([config for _, config in candidates], new=True)
            again = acquisition(delivered if replicates else [], new=False)
        if again.max(initial=0.0) > gains.max(initial=0.0):
            replicate: TrialConfig = delivered[int(np.argmax(again))]
            return replicate
        if candidates:
            self._suggested = candidates[int(np.argmax(gains))][0]
        return self._suggested

    def _candidate(self, rng: np.random.Generator, around: Mapping[str, Any] | None = None) -> _Candidate:
        suggester = RandomSuggester(rng, around)
        params = self._sample(suggester)
        return suggester.params, trial_config(params, self._scale)


def knowledge_gradient(
    surrogate: Surrogate,
    candidates: Sequence[TrialConfig],
    delivered: Sequence[TrialConfig],
    reference: tuple[float, float],
    seeds: Sequence[int],
) -> Array:
    """Return the expected gain of the delivered front's hypervolume by `REPEATS` trainings of each candidate.

    The first is on the given seed. The value of more than one is that of the method KG(*) of Frazier and Powell (2010).

    The front is that of the posterior means of `delivered` and the candidate itself. With the outcome z of the
    trainings in standard deviations, the means of the log errors move to mean + shift·z and their variances shrink by
    shift², so the mean errors are multiplied by exp(shift·z - shift²/2): on average they stay. The expectation over z
    is a Gauss-Hermite sum. Compute does not move, so the front is a running minimum over `delivered` sorted by compute.
    """
    order = np.argsort([config.compute for config in delivered], kind="stable")
    delivered = [delivered[i] for i in order]
    mean, own_mean, shift, own_shift = surrogate.lookahead(
        delivered, candidates, np.asarray(seeds, dtype=np.int64), repeats=REPEATS
    )
    top, right = reference[0], np.log2(reference[1])
    cost, own_cost = (np.log2([config.compute for config in configs]) for configs in (delivered, candidates))
    edges = np.append(cost, max(right, cost.max(initial=right)))
    width = np.clip(np.minimum(edges[1:], right) - np.minimum(edges[:-1], right), 0.0, None)
    from_own = np.clip(np.minimum(edges[1:], right) - np.maximum(edges[:-1], own_cost[:, None]), 0.0, None)
    before = np.clip(np.minimum(edges[0], right) - own_cost, 0.0, None)

    def area(delivered_mean: Array, candidate_mean: Array) -> Array:
        """Return the hypervolume for (candidates, delivered) means and the candidates' own."""
        lowest = np.minimum(np.minimum.accumulate(np.exp(delivered_mean), axis=1), top)
        error = np.minimum(np.exp(candidate_mean), top)
        extra = (from_own * np.maximum(lowest - error[:, None], 0.0)).sum(axis=1)
        return np.asarray(((top - lowest) * width).sum(axis=1) + extra + before * (top - error))

    # Without the training nothing moves and the candidate is not delivered.
    lowest_now = np.minimum(np.minimum.accumulate(np.exp(mean)), top)
    gain = -np.full(len(candidates), float(((top - lowest_now) * width).sum()))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        gain += weight * area(mean + node * shift - 0.5 * shift**2, own_mean + node * own_shift - 0.5 * own_shift**2)
    return np.asarray(np.maximum(gain, 0.0))

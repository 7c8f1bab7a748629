"""The sampler `front`: it proposes the training that improves the delivered front most per unit of compute.

What a search delivers is the front of posterior means of the configurations it has trained. One more training at x (a
new configuration or a replicate of a known one) shifts those means linearly, by a normal amount that is known before:
its worth is the expected gain of the front's hypervolume, the knowledge gradient, divided by the compute it takes. The
compute of a configuration is known before training, so only errors are uncertain. The posterior comes from
`analysis.surrogate`. A running trial counts with its posterior mean, so that workers do not propose the same point
twice. A stopped trial counts with the final error that its last rung predicts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from itertools import islice
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from threadpoolctl import ThreadpoolController

from rst_tune.analysis import pareto
from rst_tune.analysis.surrogate import MIN_TRIALS, KernelParams, Surrogate, fit_surrogate
from rst_tune.records import Status, Trial, TrialConfig
from rst_tune.tuning.space import Params, TaskScale, trial_config

__all__ = ["FrontSampler", "RandomSuggester", "knowledge_gradient"]

Array = NDArray[np.float64]
_Candidate = tuple[dict[str, Any], TrialConfig]  # what was suggested, and the configuration that it means

# Candidates per proposal, drawn from a pool of samples of the space that is made once, and neighbours of the best one.
N_POOL, N_CANDIDATES, N_NEIGHBOURS = 2000, 300, 100
# Samples of the space that the encoding of the features is made for.
N_KNOWN = 200
# A neighbour of the best candidate lies this far from it (in ranges), and keeps its choices with this probability.
NEIGHBOUR_SCALE, P_KEEP_CATEGORY = 0.08, 0.8
# Beyond this many finished trials the kernel is fitted again only when their number has grown by a tenth, so that a
# proposal takes as long after 20,000 trials as after 200.
REFIT_UNTIL = 20
# Of more pending and stopped trials than this the latest are used; of more finished ones the front, the baselines and
# the latest, because proposals concentrate where the front is.
MAX_PENDING, MAX_OBSERVATIONS = 100, 200
# Beyond this many standard deviations a configuration is taken never to be on the front.
CONTENDER_SDS = 3.0
# Nodes and weights of the Gauss-Hermite rule for the expectation over the outcome of one training.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
# The error in percent that a training that diverged or ran out of memory counts as.
WORST_ERROR = 100.0


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
            return float(back(scale(self._around[name]) + NEIGHBOUR_SCALE * width * self._rng.normal()))
        return float(back(start + width * self._rng.random()))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """Return a whole number of the range."""
        if name not in self.params:
            if log or name in self._around:
                value = low + step * round((self._in_range(name, low, high, log) - low) / step)
            else:
                value = low + step * int(self._rng.integers(0, (high - low) // step + 1))
            self.params[name] = min(max(value, low), high)
        return int(self.params[name])

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return one of the choices."""
        if name not in self.params:
            keep = name in self._around and self._rng.random() < P_KEEP_CATEGORY
            self.params[name] = self._around[name] if keep else choices[int(self._rng.integers(len(choices)))]
        return self.params[name]


class FrontSampler(BaseSampler):
    """Proposes parameters from the trials it has observed, in the order in which they ended.

    Before each `study.ask`, `prepare` sets the pending trials and the seed. Until enough trials have finished it
    samples at random.
    """

    def __init__(self, sample: Callable[[Any], Params], scale: TaskScale, *, n_startup_trials: int) -> None:
        self._sample, self._scale = sample, scale
        self._n_startup_trials = max(n_startup_trials, MIN_TRIALS)
        self._finished: list[Trial] = []
        self._points: list[tuple[float, float]] = []
        self._deliverable: set[str] = set()
        self._stopped: list[Trial] = []
        self._kernel_params: tuple[int, KernelParams | None] = (0, None)
        self.prepare((), None, 0)

    @cached_property
    def _pool(self) -> list[_Candidate]:
        rng = np.random.default_rng(0)
        return [self._candidate(rng) for _ in range(N_POOL)]

    @cached_property
    def _known(self) -> list[TrialConfig]:
        """What the space may propose, whatever was proposed before: a resumed search fits the same kernel."""
        return [config for _, config in self._pool[:N_KNOWN]]

    def observe(self, trial: Trial, expected_final: float | None = None) -> None:
        """Add an ended trial; a stopped one counts with `expected_final`, one that broke down with the worst error."""
        broken = trial.full_horizon and trial.status in (Status.DIVERGED, Status.OUT_OF_MEMORY)
        error = WORST_ERROR if broken else expected_final
        trial = trial if error is None else replace(trial, status=Status.COMPLETE, error=error)
        if trial.finished:
            self._finished.append(trial)
            self._points.append((float(trial.error or 0.0), trial.compute))
            if error is None:
                self._deliverable.add(trial.config_id)
        elif trial.status is Status.STOPPED:
            self._stopped.append(trial)

    def prepare(self, pending: Sequence[Trial], reference: tuple[float, float] | None, seed: int) -> None:
        """Set what the next proposal takes into account."""
        self._pending, self._reference, self._seed = pending, reference, seed
        self._random = RandomSampler(seed=seed)
        self._proposal: dict[str, Any] | None = None

    def before_trial(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:  # noqa: ARG002  Optuna's hook
        """Choose the parameters of the trial that Optuna is about to create."""
        self._proposal = self.propose()

    def infer_relative_search_space(
        self,
        study: optuna.Study,  # noqa: ARG002  Optuna's hook
        trial: optuna.trial.FrozenTrial,  # noqa: ARG002
    ) -> dict[str, BaseDistribution]:
        """Return nothing: the space is conditional, so every parameter is sampled when it is asked for."""
        return {}

    def sample_relative(
        self,
        study: optuna.Study,  # noqa: ARG002  Optuna's hook
        trial: optuna.trial.FrozenTrial,  # noqa: ARG002
        search_space: dict[str, BaseDistribution],  # noqa: ARG002
    ) -> dict[str, Any]:
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
        if self._proposal is not None and param_name in self._proposal:
            return self._proposal[param_name]
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def propose(self) -> dict[str, Any] | None:
        """Return the parameters with the largest acquisition; None while too little has finished."""
        if len(self._finished) < self._n_startup_trials or self._reference is None:
            return None
        rng = np.random.default_rng(self._seed)
        candidates = [self._pool[int(i)] for i in rng.choice(N_POOL, N_CANDIDATES, replace=False)]
        with _threadpools().limit(limits=1):  # quicker at this size, and rounded alike on any number of cores
            acquisition = self._acquisition(self._reference)
            best = candidates[int(np.argmax(acquisition(candidates)))]
            near = [best, *(self._candidate(rng, best[0]) for _ in range(N_NEIGHBOURS))]
            return near[int(np.argmax(acquisition(near)))][0]

    def _acquisition(self, reference: tuple[float, float]) -> Callable[[list[_Candidate]], Array]:
        """Return the function from candidates to the knowledge gradient per unit of compute.

        What broke down or was stopped informs the posterior but is never delivered; what is running will be.
        """
        pending = [t.config for t in (*self._stopped[-MAX_PENDING:], *self._pending)][-MAX_PENDING:]
        observed = self._observed()
        surrogate = self._surrogate(observed).condition_on(pending)
        found = [t for t in observed if t.config_id in self._deliverable]
        delivered = _contenders(surrogate, list({t.config_id: t.config for t in (*found, *self._pending)}.values()))

        def acquisition(candidates: list[_Candidate]) -> Array:
            points = [config for _, config in candidates]
            gain = knowledge_gradient(surrogate, points, delivered, reference)
            return np.asarray(gain / np.array([config.compute for config in points]))

        return acquisition

    def _observed(self) -> list[Trial]:
        """Return at most `MAX_OBSERVATIONS` finished trials: the front as measured, the baselines, then the latest."""
        if len(self._finished) <= MAX_OBSERVATIONS:
            return self._finished
        front = pareto.nondominated(self._points)
        first = [i for i, t in enumerate(self._finished) if front[i] or t.config.is_base][:MAX_OBSERVATIONS]
        chosen = set(first)
        latest = (i for i in reversed(range(len(self._finished))) if i not in chosen)
        return [self._finished[i] for i in sorted([*first, *islice(latest, MAX_OBSERVATIONS - len(first))])]

    def _surrogate(self, observed: Sequence[Trial]) -> Surrogate:
        fitted_at, kernel_params = self._kernel_params
        if fitted_at != (fitted_at := _last_fit(len(self._finished))):
            kernel_params = fit_surrogate(self._finished[:fitted_at], known=self._known).kernel_params
            self._kernel_params = (fitted_at, kernel_params)
        return fit_surrogate(observed, kernel_params=kernel_params, known=self._known)

    def _candidate(self, rng: np.random.Generator, around: Mapping[str, Any] | None = None) -> _Candidate:
        suggester = RandomSuggester(rng, around)
        params = self._sample(suggester)
        return suggester.params, trial_config(params, self._scale)


def _contenders(surrogate: Surrogate, delivered: list[TrialConfig]) -> list[TrialConfig]:
    """Return those that one more training may bring onto the front, by compute: the others only take time."""
    delivered = sorted(delivered, key=lambda config: config.compute)
    mean, sd = surrogate.log_errors(delivered)
    highest = np.minimum.accumulate(mean + CONTENDER_SDS * sd)
    return [delivered[i] for i in np.flatnonzero(mean - CONTENDER_SDS * sd <= highest)]


@cache
def _threadpools() -> ThreadpoolController:
    """Return the thread pools of the numeric libraries. To find them takes milliseconds, so it is done once."""
    return ThreadpoolController()


def _last_fit(count: int) -> int:
    """Return the number of trials at which the kernel was last fitted: every one, then at each tenth more.

    >>> [_last_fit(n) for n in (8, 19, 22, 23, 10_000)]
    [8, 19, 22, 22, 9535]
    """
    at = min(count, REFIT_UNTIL)
    while (following := at + max(at // 10, 1)) <= count and at >= REFIT_UNTIL:
        at = following
    return at


def knowledge_gradient(
    surrogate: Surrogate,
    candidates: Sequence[TrialConfig],
    delivered: Sequence[TrialConfig],
    reference: tuple[float, float],
) -> Array:
    """Return the expected gain of the delivered front's hypervolume by one training of each candidate.

    The front is that of the posterior means of `delivered` and the candidate itself. With the outcome z of the training
    in standard deviations, the means move to mean + shift·z; the expectation over z is a Gauss-Hermite sum. Compute
    does not move, so the front is a running minimum over `delivered` sorted by compute.
    """
    order = np.argsort([config.compute for config in delivered], kind="stable")
    everything = [*(delivered[i] for i in order), *candidates]
    mean, covariance = surrogate.posterior(everything)
    mean = mean + np.log(surrogate.divergence_factor(everything))
    n = len(delivered)
    own = np.arange(n, len(everything))
    scale = np.sqrt(np.maximum(covariance[own, own], 0.0) + surrogate.noise_sd**2)
    shift = covariance[:, own].T / scale[:, None]  # (candidates, everything)
    top, right = reference[0], np.log2(reference[1])
    cost = np.log2([config.compute for config in everything])
    edges = np.append(cost[:n], max(right, cost[:n].max(initial=right)))
    width = np.clip(np.minimum(edges[1:], right) - np.minimum(edges[:-1], right), 0.0, None)
    from_own = np.clip(np.minimum(edges[1:], right) - np.maximum(edges[:-1], cost[own][:, None]), 0.0, None)
    before = np.clip(np.minimum(edges[0], right) - cost[own], 0.0, None)

    def area(delivered_mean: Array, own_mean: Array) -> Array:
        """Return the hypervolume for (candidates, delivered) means and the candidates' own."""
        lowest = np.minimum(np.minimum.accumulate(np.exp(delivered_mean), axis=1), top)
        error = np.minimum(np.exp(own_mean), top)
        extra = (from_own * np.maximum(lowest - error[:, None], 0.0)).sum(axis=1)
        return np.asarray(((top - lowest) * width).sum(axis=1) + extra + before * (top - error))

    # Without the training nothing moves and the candidate is not delivered.
    lowest_now = np.minimum(np.minimum.accumulate(np.exp(mean[:n])), top)
    now = float(((top - lowest_now) * width).sum())
    gain = -np.full(len(candidates), now)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        moved = mean[None, :n] + node * shift[:, :n]
        gain += weight * area(moved, mean[own] + node * shift[np.arange(len(candidates)), own])
    return np.asarray(np.maximum(gain, 0.0))

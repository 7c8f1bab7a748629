"""A smooth belief of the error over (cost, family, gamma), from every finished trial.

A Gaussian process (`process.py`) on the logarithm of the error, with three features, each with its own length scale:

- the cost c in its logarithm, because a cheap schedule changes more from 0 to 5 % than from 80 to 85 %;
- the degree, half way (in logarithms) between gamma_rst, what regularizes on average, and gamma_gnr, what a single
  sharpness-aware step does: the cheap end diverges by the second, the rest is ruled by the first;
- the kind, that is family and rule. At cost 0 and 1 all families are the same schedule, so what is learnt at the ends
  is shared.

A training that is worse than the base optimizer is of no use, and one that broke down says that it did, not how badly:
such errors are cut, so that what is worth having fills the scale. `predict` is about the true mean error,
breakdowns included; the interval is that of a single training, with the noise between seeds, which the same fit
estimates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log, log1p
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rst_tune.analysis import process
from rst_tune.analysis.pareto import front
from rst_tune.analysis.records import Search, Trial
from rst_tune.analysis.rungs import expected_ends
from rst_tune.errors import InputError, unknown_name

__all__ = ["FEWEST", "Posterior", "Recommendation", "coverage", "fit", "fit_trials"]

Array = NDArray[np.float64]

FEWEST = 6
# The fit costs the cube of this.
MOST = 200
SMALLEST_GAMMA = 0.05
# Below this cost a schedule is nearly the base optimizer: its logarithm, gamma and family fade out.
SMALL_COST = 0.05
# How strongly the cost is stretched at its cheap end: 5 % lies as far from 0 as SAM from 15 %.
STRETCH = 100.0
# An error above so many times the lower quartile of all is a breakdown, and above so many times that of the base
# optimizer of no use.
BROKEN, USELESS = 3.0, 1.1


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """A point of the recommended front: no trial of it need exist."""

    family: str
    extra_propagation: float
    gamma_rst: float
    error_mean: float
    error_sd: float

    @property
    def gamma_gnr(self) -> float:
        """The gamma of a sharpness-aware step, in units of rho, for a rule of one extra pair; 1 where there is none."""
        return self.gamma_rst / self.extra_propagation if self.extra_propagation else 1.0


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """The fitted belief. `noise_sd` is the spread of log error between seeds; `rule` is the rule most often tried."""

    model: Any
    tail: process.Tail
    families: tuple[str, ...]
    rules: tuple[str, ...]
    rule: str
    gammas: tuple[float, float]
    noise_sd: float
    trials: int

    def predict(self, family: str, c: float, gamma_rst: float, rule: str | None = None) -> tuple[float, float]:
        """Return mean and standard deviation of the true error, in percent."""
        log_mean, log_sd = self._log(_config(family, c, gamma_rst, rule or self.rule), noise=False)
        return float(np.exp(log_mean)), float(np.exp(log_mean) * log_sd)

    def interval(self, config: Mapping[str, Any], level: float = 0.9, noise: bool = True) -> tuple[float, float]:
        """Return the interval of the error of one training, or of the true mean without `noise`.

        Where a training may well break down, the interval has no upper end but 100 %.
        """
        log_mean, log_sd = self._log(config, noise)
        half = float(stats.norm.ppf(0.5 + level / 2)) * log_sd
        breaks = noise and self.tail.chance(_features([config], self.families, self.rules))[0] > (1 - level) / 2
        return float(np.exp(log_mean - half)), 100.0 if breaks else float(np.exp(log_mean + half))

    def errors(self, configs: Sequence[Mapping[str, Any]]) -> Array:
        """Return the believed true mean error of each configuration, in percent."""
        features = _features(configs, self.families, self.rules)
        return np.asarray(np.exp(self.model.predict(features)) * self.tail.factor(features))

    def log_errors(self, configs: Sequence[Mapping[str, Any]]) -> tuple[Array, Array]:
        """Return mean and standard deviation of the logarithm of the true mean error of each configuration."""
        return self._logs(configs, noise=False)

    @property
    def scales(self) -> Any:
        """What was fitted beside the trials: pass it to `fit_trials` to spare it the fitting."""
        return self.model.kernel_

    def believing(self, configs: Sequence[Mapping[str, Any]]) -> "Posterior":
        """Return the posterior as if each of these had been trained once and had come out as expected."""
        if not configs:
            return self
        features = _features(configs, self.families, self.rules)
        target = self.model.y_train_ * self.model._y_train_std + self.model._y_train_mean
        expected = self.model.predict(features)
        model = process.conditioned(
            self.scales, np.vstack([self.model.X_train_, features]), np.append(target, expected)
        )
        return replace(self, model=model, noise_sd=process.noise_sd(model))

    def recommended_front(self, step: float = 0.05, families: Sequence[str] | None = None) -> list[Recommendation]:
        """Return the front of the believed mean errors over a grid of costs, families and gammas, as far as tried."""
        costs = np.round(np.arange(0.0, 1.0 + step / 2, step), 6)
        gammas = np.linspace(*self.gammas, 15)
        grid = [
            _config(f, float(c), float(g), self.rule) for f in families or self.families for c in costs for g in gammas
        ]
        log_mean, log_sd = self._logs(grid, noise=False)
        error = np.exp(log_mean)
        cost = np.array([config["extra_propagation"] for config in grid])
        chosen = {cost[i]: i for i in np.flatnonzero(front(np.column_stack([error, cost])))[::-1]}
        return [_recommendation(grid[i], error[i], log_sd[i]) for _, i in sorted(chosen.items())]

    def _log(self, config: Mapping[str, Any], noise: bool) -> tuple[float, float]:
        mean, sd = self._logs([config], noise)
        return float(mean[0]), float(sd[0])

    def _logs(self, configs: Sequence[Mapping[str, Any]], noise: bool) -> tuple[Array, Array]:
        features = _features(configs, self.families, self.rules)
        mean, sd = self.model.predict(features, return_std=True)
        if noise:
            return mean, sd
        # The process predicts a noisy observation; the noise is taken off for the true mean.
        return mean + np.log(self.tail.factor(features)), np.sqrt(np.maximum(sd**2 - self.noise_sd**2, 1e-12))


def _config(family: str, cost: float, gamma_rst: float, rule: str) -> dict[str, Any]:
    return {"family": family, "extra_propagation": cost, "gamma_rst": gamma_rst, "rule": rule}


def _recommendation(config: Mapping[str, Any], error: float, log_sd: float) -> Recommendation:
    return Recommendation(
        family=config["family"],
        extra_propagation=config["extra_propagation"],
        gamma_rst=config["gamma_rst"],
        error_mean=float(error),
        error_sd=float(error * log_sd),
    )


def _features(configs: Sequence[Mapping[str, Any]], families: Sequence[str], rules: Sequence[str]) -> Array:
    return np.array([_feature(config, families, rules) for config in configs])


def _feature(config: Mapping[str, Any], families: Sequence[str], rules: Sequence[str]) -> list[float]:
    family, rule = str(config.get("family")), str(config.get("rule", "sam"))
    cost = float(config["extra_propagation"])
    if family not in families and 0.0 < cost < 1.0:
        raise unknown_name("family in this search", family, families)
    if rule not in rules and cost > 0.0:
        raise unknown_name("rule in this search", rule, rules)
    drawn = (config.get("coordinates") or {}).get("shape")
    shape = 1.0 if drawn is None else float(drawn)
    present = min(1.0, cost / SMALL_COST)
    gamma = max(float(config.get("gamma_rst") or 0.0), SMALLEST_GAMMA)
    degree = log(gamma) - 0.5 * log(max(cost, SMALL_COST / 2))
    apart = min(1.0, 5 * cost) * min(1.0, 4 * (1 - cost)) * shape
    of_family = [apart * (family == name) for name in families[1:]]
    of_rule = [present * (rule == name) for name in rules[1:]]
    return [log1p(STRETCH * cost) / log1p(STRETCH), present * degree, *of_family, *of_rule]


def fit(search: Search) -> Posterior | None:
    """Return the posterior of a search; None with fewer than six finished trials.

    Trials that a rung stopped count with the end that was to be expected of them.
    """
    trials = search.finished()
    return fit_trials([*trials, *expected_ends(search)]) if len(trials) >= FEWEST else None


def fit_trials(
    trials: Sequence[Trial], seed: int = 0, scales: Any = None, known: Sequence[Mapping[str, Any]] = ()
) -> Posterior:
    """Return the posterior of some finished trials; of more than 200 the ends, the confirming ones and a sample.

    `scales` of an earlier posterior of the same families and rules are taken as they are, which is much quicker.
    `known` are configurations that will be asked about although none of their kind may have finished.
    """
    if len(trials) < FEWEST:
        raise InputError(f"a posterior needs {FEWEST} finished trials, but there are {len(trials)}: run more")
    used = _sample(trials, seed)
    # Names and ranges come from all of them: a sample may miss a family, and it must still be answered for.
    configs = [*(trial.config for trial in trials), *known]
    families = tuple(sorted({str(c.get("family")) for c in configs}, key=lambda name: (name != "constant", name)))
    tried = [str(c.get("rule", "sam")) for c in configs if float(c["extra_propagation"]) > 0] or ["sam"]
    rules = tuple(sorted(set(tried), key=lambda name: (name != "sam", name)))
    gammas = [float(c.get("gamma_rst") or 0.0) for c in configs if float(c["extra_propagation"]) > 0] or [1.0]
    errors = np.maximum([float(t.error or 0.0) for t in used], 1e-3)
    broken = BROKEN * float(np.quantile(errors, 0.25))
    useless = _useless(used, errors, broken)
    target = np.log(np.minimum(errors, useless))
    features, kinds = _features([t.config for t in used], families, rules), len(families) + len(rules) - 2
    fits = scales is not None and sum(scales.k1.k2.sizes) == features.shape[1]
    model = process.conditioned(scales, features, target) if fits else process.fitted(features, kinds, target, seed)
    return Posterior(
        model=model,
        tail=process.tail_of(model, features, kinds, errors, max(broken, useless)),
        families=families,
        rules=rules,
        rule=max(rules, key=tried.count),
        gammas=(max(min(gammas), SMALLEST_GAMMA), max(gammas)),
        noise_sd=process.noise_sd(model),
        trials=len(used),
    )


def _useless(trials: Sequence[Trial], errors: Array, broken: float) -> float:
    """Return the error above which nothing is worth telling apart: there the base optimizer is better.

    It stands whatever counts as `broken`: cut there, a base optimizer far behind the rest would look better than it is.
    """
    base = [error for trial, error in zip(trials, errors, strict=True) if trial.extra_propagation == 0.0]
    return USELESS * float(np.mean(base)) if base else broken


def _sample(trials: Sequence[Trial], seed: int) -> list[Trial]:
    if len(trials) <= MOST:
        return list(trials)
    order = np.random.default_rng(seed).permutation(len(trials)).tolist()
    order.sort(key=lambda i: trials[i].role != "confirm" and 0.0 < trials[i].extra_propagation < 1.0)
    return [trials[i] for i in sorted(order[:MOST])]


def coverage(posterior: Posterior, held_out: Sequence[Trial], level: float = 0.9) -> float:
    """Return the share of held-out trials whose error lies in its interval (noise included): near `level` is right."""
    if not held_out:
        raise InputError("coverage is a share of held-out trials, but none were given: hold some out")
    spans = [posterior.interval(trial.config, level) for trial in held_out]
    inside = [low <= float(t.error or 0.0) <= high for t, (low, high) in zip(held_out, spans, strict=True)]
    return float(np.mean(inside))

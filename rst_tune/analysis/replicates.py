"""Every configuration of a search with its mean, standard error, posterior error, P(non-dominated) and a verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan, sqrt
from statistics import fmean, stdev
from typing import Literal

import numpy as np

from rst_tune.analysis.features import FeatureEncoding
from rst_tune.analysis.pareto import nondominated
from rst_tune.analysis.replicate_model import MeanPosterior, fit_means, nondominated_probability
from rst_tune.analysis.surrogate import Surrogate
from rst_tune.records import Role, SchedulePreview, Search, Trial, TrialConfig, scored_trials

__all__ = [
    "CONFIRMED",
    "DISMISSED",
    "ConfigSummary",
    "Verdict",
    "front_mask",
    "mean_posterior",
    "nondominated_probabilities",
    "replicated_mask",
    "summarize_configs",
]

Verdict = Literal["confirmed", "uncertain", "dominated", "single seed"]

CONFIRMED = 0.95
DISMISSED = 0.05


@dataclass(frozen=True, kw_only=True)
class ConfigSummary:
    """One configuration and its replicates. Errors are in percent, on the validation split.

    `error_mean` is measured over its own seeds. `error_posterior` is the posterior mean of the surrogate, which
    shrinks a lucky single run towards its neighbours; without a surrogate it equals `error_mean`. The front is that
    of the posterior errors.
    """

    config_id: str
    config: TrialConfig
    preview: SchedulePreview
    extra_propagation: float
    compute: float
    error_mean: float
    error_sem: float | None
    error_posterior: float
    error_posterior_sd: float | None
    seeds: int
    errors: tuple[float, ...]
    seed_ids: tuple[int, ...]
    p_nondominated: float | None
    on_front: bool
    verdict: Verdict
    test_error_mean: float | None
    test_error_sem: float | None
    trial_key: str


def summarize_configs(search: Search, surrogate: Surrogate | None) -> list[ConfigSummary]:
    """Return every configuration that has a finished trial, in order of cost, then error.

    P(non-dominated) is None while no configuration has two seeds: then the noise is unknown. It depends on replicates
    alone: once confirmation began, only a replicated configuration may dominate another one, and the value of a single
    run is the probability that it joins those.
    """
    rows = _with_posterior_errors(_summaries(search.by_config()), surrogate)
    chances = _chances(rows, replicated_mask(rows, search))
    points = [
        (row.error_posterior if allowed else nan, row.compute)
        for row, allowed in zip(rows, front_mask(rows, search), strict=True)
    ]
    rows = [
        replace(row, p_nondominated=chance, on_front=bool(member), verdict=_verdict(row.seeds, chance))
        for row, chance, member in zip(rows, chances, nondominated(points), strict=True)
    ]
    return sorted(rows, key=lambda r: (r.compute, r.error_posterior, r.config_id))


def nondominated_probabilities(trials: Sequence[Trial]) -> dict[str, float | None]:
    """Return P(non-dominated) of the configurations of some trials among each other, by configuration."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.finished:
            groups.setdefault(trial.config_id, []).append(trial)
    rows = _summaries(groups)
    return dict(zip(groups, _chances(rows, [True] * len(rows)), strict=True))


def front_mask(rows: Sequence[ConfigSummary], search: Search) -> list[bool]:
    """Return which configurations may be on the front: all where a surrogate smooths the errors, else as measured."""
    smooth = all(row.error_posterior_sd is not None for row in rows)
    return [True] * len(rows) if smooth else replicated_mask(rows, search)


def replicated_mask(rows: Sequence[ConfigSummary], search: Search) -> list[bool]:
    """Return whose measured mean counts: every one during the search, the replicated ones once confirmation began.

    With a single replicated configuration every one counts: that one alone would be the whole front.
    """
    replicated = [row.seeds > 1 for row in rows]
    confirming = any(trial.role is Role.CONFIRM for trial in search.finished())
    return replicated if confirming and sum(replicated) > 1 else [True] * len(rows)


def mean_posterior(points: Sequence[ConfigSummary], rows: Sequence[ConfigSummary]) -> MeanPosterior | None:
    """Return the joint posterior of the true errors of `points`, with the noise measured on all replicates of `rows`.

    None where no configuration has two seeds.
    """
    chosen = {point.config_id for point in points}
    everything = [*points, *(row for row in rows if row.seeds > 1 and row.config_id not in chosen)]
    if not points or not any(row.seeds > 1 for row in everything):
        return None
    errors = [dict(zip(row.seed_ids, row.errors, strict=True)) for row in everything]
    configs = [row.config for row in everything]
    features = FeatureEncoding.of(configs).encode(configs)
    # The regression is linear, the error is not: length, effect and strain enter with their squares.
    features = np.column_stack([features, features[:, :3] ** 2])
    return fit_means(errors, features).subset(np.arange(len(points)))


def _summaries(groups: Mapping[str, list[Trial]]) -> list[ConfigSummary]:
    return [_summary(config_id, scored_trials(trials)) for config_id, trials in groups.items()]


def _summary(config_id: str, trials: list[Trial]) -> ConfigSummary:
    errors = tuple(float(t.error) for t in trials if t.error is not None)
    tests = [t.test_error for t in trials if t.test_error is not None and isfinite(t.test_error)]
    return ConfigSummary(
        config_id=config_id,
        config=trials[0].config,
        preview=trials[0].preview,
        extra_propagation=trials[0].extra_propagation,
        compute=fmean(t.compute for t in trials),
        error_mean=fmean(errors),
        error_sem=_sem(errors),
        error_posterior=fmean(errors),
        error_posterior_sd=None,
        seeds=len(errors),
        errors=errors,
        seed_ids=tuple(t.seed for t in trials),
        p_nondominated=None,
        on_front=False,
        verdict="single seed",
        test_error_mean=fmean(tests) if tests else None,
        test_error_sem=_sem(tests),
        trial_key=trials[0].key,
    )


def _sem(values: Sequence[float]) -> float | None:
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else None


def _with_posterior_errors(rows: list[ConfigSummary], surrogate: Surrogate | None) -> list[ConfigSummary]:
    if surrogate is None or not rows:
        return rows
    mean, sd = surrogate.log_errors([row.config for row in rows])
    errors = np.exp(mean)
    return [
        replace(row, error_posterior=float(error), error_posterior_sd=float(error * width))
        for row, error, width in zip(rows, errors, sd, strict=True)
    ]


def _verdict(seeds: int, chance: float | None) -> Verdict:
    if seeds < 2 or chance is None:
        return "single seed"
    return "confirmed" if chance >= CONFIRMED else "dominated" if chance <= DISMISSED else "uncertain"


def _chances(rows: Sequence[ConfigSummary], rivals: list[bool]) -> list[float | None]:
    posterior = mean_posterior(rows, rows)
    if posterior is None:
        return [None] * len(rows)
    costs = [row.compute for row in rows]
    chances: list[float | None] = nondominated_probability(posterior, costs, rivals).tolist()
    return chances

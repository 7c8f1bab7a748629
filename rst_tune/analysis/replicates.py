"""Every configuration of a search with its mean, standard error, posterior error, P(non-dominated) and a verdict."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, isfinite, log, nan, sqrt
from statistics import fmean, stdev
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rst_tune.analysis.features import FeatureEncoding
from rst_tune.analysis.pareto import nondominated
from rst_tune.analysis.replicate_model import PRIOR_DF, MeanPosterior, fit_means, nondominated_probability
from rst_tune.analysis.surrogate import Surrogate
from rst_tune.records import Role, SchedulePreview, Search, Status, Trial, TrialConfig, scored_trials

__all__ = [
    "CONFIRMED",
    "DISMISSED",
    "ConfigSummary",
    "Verdict",
    "chance_error",
    "diverged_trials",
    "mean_posterior",
    "settled_mask",
    "summarize_configs",
]

Verdict = Literal["confirmed", "uncertain", "dominated", "single seed"]

CONFIRMED = 0.95
DISMISSED = 0.05
MIN_LIMITED = 3
# An error below this share of the median counts as it: one without any wrong answer has no logarithm.
LEAST_ERROR = 0.02
# The level of the interval of an error.
INTERVAL = 0.9
MAX_HALF = 50.0  # of its width in logarithms, so that its end is finite
# Seeds that a point of the front has at least, where the experiment does not say it.
MIN_SEEDS = 3


@dataclass(frozen=True, kw_only=True)
class ConfigSummary:
    """One configuration and its replicates. Errors are on the validation split.

    `error_mean` is measured over its own seeds; a diverged one counts with the error of chance. `error_posterior` is
    the posterior mean of the surrogate, which shrinks a lucky single run towards its neighbours, and one of at least
    `MIN_LIMITED` seeds by at most one standard error; without a surrogate it equals `error_mean`. The front is that of
    the posterior errors. From `error_low` to `error_high` is the 90 % interval of the mean: that of the replicates,
    with the noise of all of them pooled, around the posterior error, because the point may have been selected for its
    luck. `seeds` came to an end, `seeds_total` with the diverged ones; `errors` and `seed_ids` have all of them.
    `trial_key` is a replicate where there is one, because the models of replicates are kept.
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
    error_low: float | None
    error_high: float | None
    seeds: int
    seeds_total: int
    diverged: int
    errors: tuple[float, ...]
    seed_ids: tuple[int, ...]
    p_nondominated: float | None
    on_front: bool
    settled: bool
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
    finished, chance = search.finished(), chance_error(search)
    rows = _summaries([*finished, *_diverged(search.trials, chance, {t.config_id for t in finished})])
    rows = _with_posterior_errors(rows, surrogate, chance)
    settled = settled_mask(rows, search)
    posterior = mean_posterior(rows, rows)
    rows, chances = _with_intervals(rows, posterior), _chances(rows, settled, posterior)
    likely = [s or chance is None or chance > DISMISSED for s, chance in zip(settled, chances, strict=True)]
    members = _front(rows, likely) | _front(rows, settled)
    rows = [
        replace(row, p_nondominated=chance, on_front=bool(member), settled=able, verdict=_verdict(row, chance))
        for row, chance, member, able in zip(rows, chances, members, settled, strict=True)
    ]
    return sorted(rows, key=lambda r: (r.compute, r.error_posterior, r.config_id))


def _front(rows: Sequence[ConfigSummary], able: Sequence[bool]) -> NDArray[np.bool_]:
    """Return which rows are non-dominated among those that may be on the front, by their posterior errors."""
    return nondominated([(r.error_posterior if a else nan, r.compute) for r, a in zip(rows, able, strict=True)])


def chance_error(search: Search) -> float:
    """Return the error that a diverged training counts with: that of guessing, from the number of classes.

    Without classes it is the largest error that any trial had: an untrained model is about as good as guessing.
    """
    classes = search.header.data.get("classes")
    if isinstance(classes, int) and classes > 1:
        return 100.0 * (1 - 1 / classes)
    if search.metric.unit == "%":
        return 100.0
    seen = [e for t in search.trials for e in (t.error, *t.rungs.values()) if e is not None and isfinite(e)]
    return max(seen, default=100.0)


def diverged_trials(search: Search) -> list[Trial]:
    """Return the diverged trials of configurations that never finished, with the error of chance, for a surrogate.

    Where some seeds finished, the surrogate predicts those, and the share that diverged is counted: both kinds as
    results of one configuration would look like noise, and widen everything.
    """
    finished = {t.config_id for t in search.finished()}
    never = {t.config_id for t in search.trials} - finished
    return _diverged(search.trials, chance_error(search), never)


def _diverged(trials: Sequence[Trial], chance: float, configs: Collection[str]) -> list[Trial]:
    found = [t for t in trials if t.status is Status.DIVERGED and t.full_horizon and t.has_cost]
    return [replace(t, error=chance) for t in found if t.config_id in configs]


def settled_mask(rows: Sequence[ConfigSummary], search: Search) -> list[bool]:
    """Return which configurations the answer may be about: those with at least `confirm.min_seeds` seeds.

    As long as fewer than two have that many, it is every one: the search is not decided yet.
    """
    confirm = search.header.experiment.get("confirm") or {}
    enough = [row.seeds_total >= confirm.get("min_seeds", MIN_SEEDS) for row in rows]
    return enough if sum(enough) > 1 else [True] * len(rows)


def mean_posterior(points: Sequence[ConfigSummary], rows: Sequence[ConfigSummary]) -> MeanPosterior | None:
    """Return the joint posterior of the true errors of `points`, with the noise measured on all replicates of `rows`.

    A diverged seed is no noise: it would widen the intervals of all others. A configuration that has one enters with
    its own mean and standard error. None where no configuration has two seeds.
    """
    chosen = {point.config_id for point in points}
    everything = [*points, *(row for row in rows if row.seeds_total > 1 and row.config_id not in chosen)]
    if not points or not any(row.seeds_total > 1 for row in everything):
        return None
    stable = [row for row in everything if not row.diverged]
    stable = stable if any(row.seeds_total > 1 for row in stable) else everything
    lowest = LEAST_ERROR * (float(np.median([row.error_mean for row in stable])) or LEAST_ERROR)
    errors = [{s: log(max(e, lowest)) for s, e in zip(row.seed_ids, row.errors, strict=True)} for row in stable]
    configs = [row.config for row in stable]
    features = FeatureEncoding.of(configs).encode(configs)
    # The regression is linear, the error is not: length, effect and strain enter with their squares.
    features = np.column_stack([features, features[:, :3] ** 2])
    posterior = fit_means(errors, features)
    place = {row.config_id: k for k, row in enumerate(stable)}
    found = posterior.subset(np.array([place.get(point.config_id, 0) for point in points]))
    for k, point in enumerate(points):
        if point.config_id not in place:
            relative = (point.error_sem or 0.0) / point.error_mean
            found.mean[k], found.scale[k], found.weights[k] = log(point.error_mean), relative, 0.0
            found.total[k] = relative
            found.df[k] = point.seeds_total - 1 + PRIOR_DF
    return found


def _summaries(trials: Sequence[Trial]) -> list[ConfigSummary]:
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.config_id, []).append(trial)
    return [_summary(config_id, scored_trials(group)) for config_id, group in groups.items()]


def _summary(config_id: str, trials: list[Trial]) -> ConfigSummary:
    errors = tuple(float(t.error) for t in trials if t.error is not None)
    tests = [t.test_error for t in trials if t.test_error is not None and isfinite(t.test_error)]
    ended = [t for t in trials if t.finished]
    computes = [t.compute for t in ended or trials]
    kept = next((t for t in ended if t.role is Role.CONFIRM), (ended or trials)[0])
    return ConfigSummary(
        config_id=config_id,
        config=trials[0].config,
        preview=trials[0].preview,
        extra_propagation=trials[0].extra_propagation,
        # The mean of 0.2, 0.2 and 0.2 is larger than 0.2, and a dominated point of that compute would stay.
        compute=computes[0] if len(set(computes)) == 1 else fmean(computes),
        error_mean=fmean(errors),
        error_sem=_sem(errors),
        error_posterior=fmean(errors),
        error_posterior_sd=None,
        error_low=None,
        error_high=None,
        seeds=len(ended),
        seeds_total=len(errors),
        diverged=len(trials) - len(ended),
        errors=errors,
        seed_ids=tuple(t.seed for t in trials),
        p_nondominated=None,
        on_front=False,
        settled=False,
        verdict="single seed",
        test_error_mean=fmean(tests) if tests else None,
        test_error_sem=_sem(tests),
        trial_key=kept.key,
    )


def _sem(values: Sequence[float]) -> float | None:
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else None


def _with_posterior_errors(
    rows: list[ConfigSummary], surrogate: Surrogate | None, chance: float
) -> list[ConfigSummary]:
    if surrogate is None or not rows:
        return rows
    mean, sd = surrogate.log_errors([row.config for row in rows])
    noise = _noise(rows) or surrogate.noise_sd
    return [_with_posterior(row, exp(m), exp(m) * s, noise, chance) for row, m, s in zip(rows, mean, sd, strict=True)]


def _noise(rows: Sequence[ConfigSummary]) -> float | None:
    """Return the relative standard deviation between seeds, pooled over replicates; None where it is not known."""
    replicated = [r for r in rows if r.seeds_total > 1 and not r.diverged and r.error_mean > 0]
    squares = sum((e / r.error_mean - 1) ** 2 for r in replicated for e in r.errors)
    return sqrt(squares / sum(r.seeds_total - 1 for r in replicated)) if squares else None


def _with_posterior(row: ConfigSummary, error: float, sd: float, noise: float, chance: float) -> ConfigSummary:
    """Return the summary with the surrogate's error, limited by what its replicates measured.

    The limit of one standard error is that of Efron and Morris (limited translation estimators, 1972): it keeps most of
    the gain of shrinking and bounds the harm where a configuration is unlike its neighbours. Where seeds diverged, the
    surrogate's error is that of the others.
    """
    total, share = row.seeds_total, row.diverged / row.seeds_total
    if total >= MIN_LIMITED and not row.diverged:
        width = max(row.error_sem or 0.0, noise * row.error_mean / sqrt(total))
        error = min(max(error, row.error_mean - width), row.error_mean + width)
    if row.diverged:
        error = min(error, chance)
        spread = (chance - error) * sqrt(share * (1 - share) / total)
        error, sd = (1 - share) * error + share * chance, hypot((1 - share) * sd, spread)
    return replace(row, error_posterior=float(error), error_posterior_sd=float(sd))


def _verdict(row: ConfigSummary, chance: float | None) -> Verdict:
    if row.seeds_total < 2 or chance is None:
        return "single seed"
    if row.diverged and chance > DISMISSED:
        return "uncertain"
    return "confirmed" if chance >= CONFIRMED else "dominated" if chance <= DISMISSED else "uncertain"


def _with_intervals(rows: Sequence[ConfigSummary], posterior: MeanPosterior | None) -> list[ConfigSummary]:
    if posterior is None:
        return list(rows)
    half = stats.t.ppf(0.5 + INTERVAL / 2, posterior.df) * posterior.total
    return [
        replace(row, error_low=row.error_posterior * exp(-h), error_high=row.error_posterior * exp(min(h, MAX_HALF)))
        if row.seeds_total > 1
        else row
        for row, h in zip(rows, half.tolist(), strict=True)
    ]


def _chances(rows: Sequence[ConfigSummary], rivals: list[bool], posterior: MeanPosterior | None) -> list[float | None]:
    if posterior is None:
        return [None] * len(rows)
    costs = [row.compute for row in rows]
    chances: list[float | None] = nondominated_probability(posterior, costs, rivals).tolist()
    return chances

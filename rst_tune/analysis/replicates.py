"""Every configuration of a search with its mean, standard error, posterior error, P(non-dominated) and a verdict."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, isfinite, nan, sqrt
from statistics import fmean, stdev
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rst_tune.analysis.pareto import nondominated
from rst_tune.analysis.surrogate import MAX_LOG, Surrogate
from rst_tune.records import Role, SchedulePreview, Search, Status, Trial, TrialConfig, scored_trials

Array = NDArray[np.float64]
Verdict = Literal["confirmed", "uncertain", "dominated", "single seed"]

CONFIRMED, DISMISSED = 0.95, 0.05
# The level of the interval of an error.
INTERVAL = 0.9
# Seeds that a point of the front has at least, where the experiment does not say it.
MIN_SEEDS = 3
# Of the posterior, for probabilities and intervals: a probability of 0.05 has a standard error of 0.003.
SAMPLES = 4000


@dataclass(frozen=True, kw_only=True)
class ConfigSummary:
    """One configuration and its replicates. Errors are on the validation split.

    `error_mean` is measured over its own seeds; a diverged one counts with the error of chance. `error_posterior` is
    the posterior mean of the surrogate, which takes all trials into account and shrinks a lucky one towards its
    neighbours; without a surrogate it equals `error_mean`. The front is that of the posterior errors. From `error_low`
    to `error_high` is the 90 % interval of the posterior, where there are two seeds. `seeds` came to an end,
    `seeds_total` with the diverged ones; `errors` and `seed_ids` have all of them. `trial_key` is a replicate where
    there is one, because the models of replicates are kept.
    """

    config_id: str
    config: TrialConfig
    preview: SchedulePreview
    extra_propagation: float
    compute: float
    error_mean: float
    error_sem: float | None
    error_posterior: float
    error_posterior_sd: float | None = None
    error_low: float | None = None
    error_high: float | None = None
    seeds: int
    seeds_total: int
    diverged: int
    errors: tuple[float, ...]
    seed_ids: tuple[int, ...]
    p_nondominated: float | None = None
    on_front: bool = False
    settled: bool = False
    verdict: Verdict = "single seed"
    test_error_mean: float | None
    test_error_sem: float | None
    trial_key: str


def summarize_configs(search: Search, surrogate: Surrogate | None) -> list[ConfigSummary]:
    """Return every configuration that has a finished trial, in order of cost, then error.

    P(non-dominated) is that of the surrogate's posterior, and only a settled configuration may dominate another one.
    It is None without a surrogate, and while no configuration has two seeds: then the noise is unknown.
    """
    finished, chance = search.finished(), chance_error(search)
    rows = _summaries([*finished, *_diverged(search.trials, chance, {t.config_id for t in finished})])
    settled = settled_mask(rows, search)
    if surrogate is not None and rows:
        rows = _with_posterior(rows, settled, surrogate, chance)
    members = _front(rows, [True] * len(rows)) | _front(rows, settled)
    rows = [
        replace(row, on_front=bool(member), settled=able, verdict=_verdict(row))
        for row, member, able in zip(rows, members, settled, strict=True)
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


def sample_errors(rows: Sequence[ConfigSummary], surrogate: Surrogate | None, count: int = SAMPLES) -> Array | None:
    """Return joint samples of the true errors, one row per configuration; None where there is no surrogate.

    Where seeds diverged, the errors of the others are scaled to the posterior error of all of them.
    """
    if surrogate is None or not rows:
        return None
    configs = [row.config for row in rows]
    scale = np.array([row.error_posterior for row in rows]) / surrogate.errors(configs)
    return np.asarray(surrogate.sample(configs, count) * scale[:, None])


def _p_nondominated(rows: Sequence[ConfigSummary], rivals: Sequence[bool], surrogate: Surrogate) -> Array:
    """Return for each configuration the probability that no rival of at most its cost has a lower true error."""
    chances = np.zeros(len(rows))
    able = surrogate.contenders([row.config for row in rows])
    samples = sample_errors([rows[i] for i in able], surrogate)
    if samples is not None:
        costs = np.array([rows[i].compute for i in able])
        lowest = np.minimum.accumulate(np.where(np.array(rivals)[able, None], samples, np.inf), axis=0)
        # Among equal costs, the last row holds the minimum over all of them.
        last = np.searchsorted(costs, costs, side="right") - 1
        chances[able] = (samples <= lowest[last]).mean(axis=1)
    return chances


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
        seeds=len(ended),
        seeds_total=len(errors),
        diverged=len(trials) - len(ended),
        errors=errors,
        seed_ids=tuple(t.seed for t in trials),
        test_error_mean=fmean(tests) if tests else None,
        test_error_sem=_sem(tests),
        trial_key=kept.key,
    )


def _sem(values: Sequence[float]) -> float | None:
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else None


def _with_posterior(
    rows: list[ConfigSummary], settled: Sequence[bool], surrogate: Surrogate, chance: float
) -> list[ConfigSummary]:
    """Return the summaries with posterior error, interval and P(non-dominated)."""
    means, sds = surrogate.log_errors([row.config for row in rows])
    width = float(stats.t.ppf(0.5 + INTERVAL / 2, surrogate.df))
    rows = [_shrunk(row, m, s, width, chance) for row, m, s in zip(rows, means.tolist(), sds.tolist(), strict=True)]
    if not any(row.seeds_total > 1 for row in rows):
        return rows
    chances = _p_nondominated(rows, settled, surrogate).tolist()
    return [replace(row, p_nondominated=p) for row, p in zip(rows, chances, strict=True)]


def _shrunk(row: ConfigSummary, mean: float, sd: float, width: float, chance: float) -> ConfigSummary:
    """Return the summary with the posterior of its error, from mean and deviation of its logarithm.

    `width` is that of the interval, in standard deviations.

    Where seeds diverged, the surrogate's error is that of the others: the share that diverged has the error of chance.
    """
    error, spread, share = exp(mean), exp(mean) * sd, row.diverged / row.seeds_total
    if row.diverged:
        error = min(error, chance)
        spread = hypot((1 - share) * spread, (chance - error) * sqrt(share * (1 - share) / row.seeds_total))
        error = (1 - share) * error + share * chance
    half = exp(min(width * spread / error, MAX_LOG))
    low, high = (error / half, error * half) if row.seeds_total > 1 else (None, None)
    return replace(row, error_posterior=error, error_posterior_sd=spread, error_low=low, error_high=high)


def _verdict(row: ConfigSummary) -> Verdict:
    chance = row.p_nondominated
    if row.seeds_total < 2 or chance is None:
        return "single seed"
    if row.diverged and chance > DISMISSED:
        return "uncertain"
    return "confirmed" if chance >= CONFIRMED else "dominated" if chance <= DISMISSED else "uncertain"

"""The paper's claims, each tested on our own trainings: an effect, its 95 % interval, and a verdict by a fixed rule.

Effects are in points of error (percent); below 0 means less error. Two configurations are compared seed by seed:
equal seeds share their data order and initial weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
from scipy import stats

from rst_tune.analysis import questions
from rst_tune.analysis.replicates import ConfigSummary

__all__ = ["Claim", "claims", "find", "late_and_early", "paired", "share_of_gain"]

Rows = Sequence[ConfigSummary]
Fit = tuple[float, float, float]

REPRODUCED, NOT_REPRODUCED, OPEN = "reproduced", "not reproduced", "not decidable here"
# "As good as" means: worse by less than this share of what SAM gains over SGD.
MARGIN = 0.1
LOW, ENOUGH = 0.1, 0.5
GAMMA_CLAIM = (0.8, 1.0)
OTHER_TASKS = {"decide": "digits, fresh seeds", "cifar10": "CIFAR-10"}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim on one task: the contrast, the effect with its interval, and the verdict."""

    claim: str
    task: str
    contrast: str
    unit: str
    effect: float
    low: float
    high: float
    verdict: str


def claims(studies: Mapping[str, Rows]) -> list[Claim]:
    """Return every claim that the given studies can test, grouped by claim."""
    found: list[Claim | None] = []
    if paper := studies.get("paper"):
        found += [sam_helps(paper, "digits"), sgd_at_the_end(paper), late_or_early(paper, "digits"), constants(paper)]
    if gamma_map := studies.get("gamma_map"):
        found += [half_cost(gamma_map, "digits"), gamma_band(gamma_map), best_gamma(gamma_map), low_p(gamma_map)]
    for name, task in OTHER_TASKS.items():
        if rows := studies.get(name):
            found += [sam_helps(rows, task), late_or_early(rows, task), half_cost(rows, task)]
    tested = [claim for claim in found if claim is not None]
    order = list(dict.fromkeys(claim.claim for claim in tested))
    return sorted(tested, key=lambda claim: order.index(claim.claim))


# --- rules of the verdicts --------------------------------------------------------------------------------------


def _less(fit: Fit) -> str:
    """Return the verdict on the claim that the effect is below 0."""
    return REPRODUCED if fit[2] < 0 else NOT_REPRODUCED if fit[1] > 0 else OPEN


def _more(fit: Fit) -> str:
    """Return the verdict on the claim that the effect is above 0."""
    return REPRODUCED if fit[1] > 0 else NOT_REPRODUCED if fit[2] < 0 else OPEN


def _not_worse(margin: float) -> Callable[[Fit], str]:
    """Return the rule for the claim that the effect is not above 0, apart from a margin."""
    return lambda fit: REPRODUCED if fit[2] < margin else NOT_REPRODUCED if fit[1] > 0 else OPEN


def _in_band(fit: Fit) -> str:
    """Return the verdict on the claim that the value lies in the paper's band."""
    if GAMMA_CLAIM[0] <= fit[1] and fit[2] <= GAMMA_CLAIM[1]:
        return REPRODUCED
    return NOT_REPRODUCED if fit[1] > GAMMA_CLAIM[1] or fit[2] < GAMMA_CLAIM[0] else OPEN


def _claim(
    claim: str, task: str, contrast: str, fit: Fit | None, judge: Callable[[Fit], str], unit: str = "points"
) -> Claim | None:
    if fit is None:
        return None
    effect, low, high = fit
    return Claim(
        claim=claim, task=task, contrast=contrast, unit=unit, effect=effect, low=low, high=high, verdict=judge(fit)
    )


def _fit(answer: questions.Answer) -> Fit | None:
    if answer.effect is None or answer.low is None or answer.high is None:
        return None
    return answer.effect, answer.low, answer.high


# --- comparisons ------------------------------------------------------------------------------------------------


def find(rows: Rows, gamma_gnr: float = 1.0, **schedule: float | str) -> ConfigSummary | None:
    """Return the SAM-rule configuration with this schedule and gamma."""
    for row in rows:
        config = row.config
        if config.schedule == schedule and config.rule == "sam" and abs(config.gamma_gnr - gamma_gnr) < 1e-9:
            return row
    return None


def by_seed(row: ConfigSummary) -> dict[int, float]:
    """Return the error of each seed."""
    return dict(zip(row.seed_ids, row.errors, strict=True))


def interval(values: Sequence[float]) -> Fit | None:
    """Return the mean with Student's 95 % interval."""
    if len(values) < 2:
        return None
    half = float(stats.t.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return fmean(values), fmean(values) - half, fmean(values) + half


def paired(left: ConfigSummary | None, right: ConfigSummary | None) -> Fit | None:
    """Return left minus right over the seeds that both have."""
    if left is None or right is None:
        return None
    mine, theirs = by_seed(left), by_seed(right)
    return interval([mine[seed] - theirs[seed] for seed in sorted(mine.keys() & theirs.keys())])


def sgd(rows: Rows) -> ConfigSummary:
    """Return the base optimizer."""
    return next(row for row in rows if row.config.is_base)


def sam(rows: Rows) -> ConfigSummary:
    """Return SAM."""
    return next(row for row in rows if row.config.is_sam)


def share_of_gain(error: float, rows: Rows) -> float:
    """Return the share of SAM's gain over SGD that an error has: 0 is SGD's error, 1 is SAM's."""
    base = sgd(rows).error_mean
    return (base - error) / (base - sam(rows).error_mean)


# --- the claims -------------------------------------------------------------------------------------------------


def sam_helps(rows: Rows, task: str) -> Claim | None:
    """Compare SAM with SGD, which every other claim presupposes."""
    fit = paired(sam(rows), sgd(rows))
    return _claim("SAM has less error than SGD", task, "SAM minus SGD", fit, _less)


def sgd_at_the_end(rows: Rows) -> Claim | None:
    """Compare schedules of all groups that lean to SGD at the end with those that lean to SAM, at equal cost."""
    answer = questions.end_hurts(rows)
    contrast = f"schedules that end with SGD minus those that end with SAM, {answer.configurations} schedules"
    return _claim("SAM late is better than SAM early", "digits", contrast, _fit(answer), _more)


def late_and_early(rows: Rows) -> list[tuple[ConfigSummary, ConfigSummary]]:
    """Return the pairs of piecewise schedules of equal cost: SGD then SAM, and SAM then SGD."""
    pairs = []
    for tenths in range(1, 10):
        late = find(rows, family="piecewise", a=0.0, b=round(1 - tenths / 10, 1))
        early = find(rows, family="piecewise", a=1.0, b=tenths / 10)
        if late is not None and early is not None:
            pairs.append((late, early))
    return pairs


def late_or_early(rows: Rows, task: str) -> Claim | None:
    """Compare the piecewise groups 1 and 2 at equal cost, seed by seed, averaged over the costs."""
    pairs = [(by_seed(late), by_seed(early)) for late, early in late_and_early(rows)]
    seeds = sorted(set.intersection(*(set(part) for pair in pairs for part in pair))) if pairs else []
    gaps = [fmean(late[seed] - early[seed] for late, early in pairs) for seed in seeds]
    costs = "half the cost" if len(pairs) == 1 else f"{len(pairs)} equal costs"
    contrast = f"SGD then SAM minus SAM then SGD, at {costs}"
    return _claim("SAM late is better than SAM early", task, contrast, interval(gaps), _less)


def constants(rows: Rows) -> Claim | None:
    """Compare constant schedules with all others."""
    answer = questions.constant_or_rest(rows)
    margin = MARGIN * (sgd(rows).error_mean - sam(rows).error_mean)
    contrast = f"constant schedules minus all others at equal cost; allowed: {margin:+.2f}"
    return _claim("constants are as good as the rest", "digits", contrast, _fit(answer), _not_worse(margin))


def half_cost(rows: Rows, task: str) -> Claim | None:
    """Compare G-RST at p = 0.5 with gamma_gnr 2 with SAM."""
    half = find(rows, gamma_gnr=2.0, family="constant", p=0.5)
    claim = "G-RST beats SAM at half its extra cost"
    return _claim(claim, task, "G-RST (p = 0.5, gamma_gnr 2) minus SAM", paired(half, sam(rows)), _less)


def gamma_band(rows: Rows) -> Claim | None:
    """Compare gamma_rst inside 0.8 ... 1 with values outside."""
    answer = questions.best_gamma(rows)
    contrast = "gamma_rst in 0.8 … 1 minus all other values, at equal p"
    return _claim("gamma_rst around 0.8 … 1 is best", "digits", contrast, _fit(answer), _less)


def grid_of(rows: Rows) -> dict[tuple[float, float], dict[int, float]]:
    """Return the errors by seed of each (p, gamma_rst) of the map."""
    inner = [row for row in rows if 0.0 < row.extra_propagation < 1.0]
    return {(round(r.extra_propagation, 3), round(r.config.gamma_rst, 3)): by_seed(r) for r in inner}


def best_gamma(rows: Rows) -> Claim | None:
    """Return where the error is least: the vertex of a parabola in gamma_rst, per seed, of the mean over p >= 0.3."""
    grid = grid_of(rows)
    gammas = sorted({gamma for _, gamma in grid})
    costs = sorted({p for p, _ in grid if p >= 0.3})
    seeds = sorted(next(iter(grid.values())))
    found = [_vertex(gammas, [fmean(grid[p, g][seed] for p in costs) for g in gammas]) for seed in seeds]
    contrast = "the gamma_rst of least error over p ≥ 0.3, from a parabola for each seed"
    return _claim("gamma_rst around 0.8 … 1 is best", "digits", contrast, interval(found), _in_band, unit="gamma_rst")


def _vertex(x: Sequence[float], y: Sequence[float]) -> float:
    """Return where the fitted parabola is least within the tried values."""
    a, b, _ = np.polyfit(x, y, 2)
    lower_end = x[0] if y[0] < y[-1] else x[-1]
    return float(np.clip(-b / (2 * a), x[0], x[-1])) if a > 0 else float(lower_end)


def low_p(rows: Rows) -> Claim | None:
    """Compare the best gamma at p = 0.1 with the best at p = 0.5; each gamma is chosen on the other seeds."""
    grid = grid_of(rows)
    seeds = sorted(next(iter(grid.values())))
    gaps = [_chosen(grid, LOW, seed) - _chosen(grid, ENOUGH, seed) for seed in seeds]
    contrast = f"p = {LOW} with its best gamma minus p = {ENOUGH} with its best gamma, each chosen on the other seeds"
    return _claim("no gamma rescues a very low p", "digits", contrast, interval(gaps), _more)


def _chosen(grid: dict[tuple[float, float], dict[int, float]], p: float, seed: int) -> float:
    """Return the error of `seed` at the gamma that is best on the other seeds."""
    own = {g: errors for (cost, g), errors in grid.items() if cost == p}
    best = min(own, key=lambda g: fmean(error for s, error in own[g].items() if s != seed))
    return own[best][seed]

"""The paper's questions, answered from one's own trials, each with an effect and its 95 % interval.

Effects are in points of error (percent); below 0 means less error. Unless said otherwise an effect is a coefficient
of a least-squares fit over configurations, which also holds cost and gamma with their squares and the rule, with a
heteroscedasticity-consistent (HC3) interval.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rst_tune.analysis import labels
from rst_tune.analysis.replicates import ConfigSummary, mean_posterior

__all__ = ["Answer", "answers", "end_weight"]

Array = NDArray[np.float64]
Rows = Sequence[ConfigSummary]

GAMMA_CLAIM = (0.8, 1.0)
# A schedule leans to one end when its probability there differs from its mean by more than this.
LEANING = 0.1
DOWN, UP = ("-down", "cos1"), ("-up", "cos2", "linear_group1")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One question: the verdict, the effect with its interval, and how many configurations it rests on."""

    question: str
    claim: str
    verdict: str
    effect: float | None
    low: float | None
    high: float | None
    configurations: int
    text: str


def answers(rows: Rows) -> list[Answer]:
    """Return the answers to all questions from the summaries of a search; without data an answer says what to run."""
    return [end_hurts(rows), constant_or_rest(rows), best_gamma(rows), half_cost(rows)]


def end_weight(row: ConfigSummary) -> float | None:
    """Return how much likelier a sharpness-aware step is in the last fifth than on average; None if unknown."""
    curve = row.preview.curve
    if curve:
        last = curve[-max(1, len(curve) // 5) :]
        return float(np.mean(last) - np.mean(curve))
    name = row.config.family
    if name == "constant":
        return 0.0
    return -1.0 if name.endswith(DOWN) else 1.0 if name.endswith(UP) else None


def _between(rows: Rows) -> list[ConfigSummary]:
    return [row for row in rows if 0.0 < row.extra_propagation < 1.0]


def end_hurts(rows: Rows) -> Answer:
    """Compare schedules that end with SGD to schedules that end with SAM, at equal cost and gamma."""
    weights = [(row, end_weight(row)) for row in _between(rows)]
    used = [(row, w) for row, w in weights if w is not None and abs(w) > LEANING]
    fit = _effect([row for row, _ in used], [w < 0 for _, w in used])
    return _answer(
        "Does SGD near the end of training hurt?",
        "avoid SGD with high probability near the end of training",
        fit,
        len(used),
        "schedules that end with SGD, against those that end with SAM",
        lambda low, high: "yes" if low > 0 else "no" if high < 0 else "not settled",
        "run families that fall and families that rise, at comparable costs",
    )


def constant_or_rest(rows: Rows) -> Answer:
    """Compare constant schedules to all others, at equal cost and gamma."""
    used = _between(rows)
    fit = _effect(used, [row.config.family == "constant" for row in used])
    return _answer(
        "Are constant schedules as good as the rest?",
        "simple constant schedules give decent performance",
        fit,
        len(used),
        "constant schedules, against all others",
        lambda low, high: "better" if high < 0 else "worse" if low > 0 else "no difference seen",
        "run constant schedules and others, at comparable costs",
    )


def best_gamma(rows: Rows) -> Answer:
    """Compare gamma_rst in 0.8 ... 1 to all other values, at equal cost and within a family."""
    used = _between(rows)
    inside = [GAMMA_CLAIM[0] <= row.config.gamma_rst <= GAMMA_CLAIM[1] for row in used]
    fit = _effect(used, inside, gamma=False, family=True)
    return _answer(
        "Is gamma_rst around 0.8 to 1 best?",
        "gamma_rst in 0.8 to 1 is better than elsewhere",
        fit,
        len(used),
        "gamma_rst in 0.8 to 1, against all other values",
        lambda low, high: "yes" if high < 0 else "no" if low > 0 else "not settled",
        "run several values of gamma_rst inside and outside 0.8 to 1",
    )


def half_cost(rows: Rows) -> Answer:
    """Compare G-RST at about half the cost to SAM: the constant schedule nearest to cost 0.5 and gamma_rst 1.

    It is the nearest, not the best of many, so that it is not selected by luck. The interval is that of the posterior.
    """
    near = [r for r in _between(rows) if abs(r.extra_propagation - 0.5) <= 0.1 and _is_grst(r)]
    sam = [r for r in rows if r.config.is_sam]
    pair = [min(near, key=_distance), max(sam, key=lambda r: r.seeds)] if near and sam else []
    posterior = mean_posterior(pair, rows)
    fit = None
    if posterior is not None:
        gap = posterior.sample()
        low, high = np.quantile(gap[0] - gap[1], [0.025, 0.975])
        fit = (pair[0].error_mean - pair[1].error_mean, float(low), float(high))
    return _answer(
        "Does G-RST beat SAM at half the extra cost?",
        "G-RST outperforms SAM in most cases at 50 % of its extra cost",
        fit,
        len(pair),
        f"{labels.describe(pair[0].config)}, against SAM" if pair else "",
        lambda low, high: "yes" if high < 0 else "no" if low > 0 else "no difference seen",
        "run SAM and G-RST (gamma above 1) at extra propagation 0.4 to 0.6, two seeds or more of both",
    )


def _is_grst(row: ConfigSummary) -> bool:
    return row.config.gamma_gnr > 1.0 and row.config.rule == "sam"


def _distance(row: ConfigSummary) -> tuple[bool, bool, float]:
    away = abs(row.extra_propagation - 0.5) + abs(row.config.gamma_rst - 1.0)
    return row.seeds < 2, row.config.family != "constant", away


def _answer(
    question: str,
    claim: str,
    fit: tuple[float, float, float] | None,
    count: int,
    contrast: str,
    judge: Callable[[float, float], str],
    missing: str,
) -> Answer:
    if fit is None:
        text = f"not enough trials to tell: {missing}"
        nothing = {"effect": None, "low": None, "high": None}
        return Answer(question=question, claim=claim, verdict="no data", configurations=count, text=text, **nothing)
    effect, low, high = fit
    verdict = judge(low, high)
    text = f"{verdict}: {contrast}: {effect:+.2f} points of error (95 % interval {low:+.2f} to {high:+.2f})"
    return Answer(
        question=question,
        claim=claim,
        verdict=verdict,
        effect=effect,
        low=low,
        high=high,
        configurations=count,
        text=text,
    )


def _effect(
    rows: Rows, treated: Sequence[bool], gamma: bool = True, family: bool = False
) -> tuple[float, float, float] | None:
    """Return the coefficient of `treated` and its 95 % interval; None where there is too little to compare."""
    flag = np.asarray(treated, dtype=float)
    if min(flag.sum(), len(flag) - flag.sum()) < 2:
        return None
    design = np.column_stack([flag, np.ones(len(flag)), *_controls(rows, gamma, family)])
    target = np.array([row.error_mean for row in rows])
    weight = np.sqrt([row.seeds for row in rows])
    return _coefficient(design * weight[:, None], target * weight)


def _controls(rows: Rows, gamma: bool, family: bool) -> list[Array]:
    cost = np.array([row.extra_propagation for row in rows])
    columns = [cost, cost**2]
    if gamma:
        value = np.array([row.config.gamma_rst for row in rows])
        columns += [value, value**2]
    for name in ("family", "rule") if family else ("rule",):
        kinds = [str(getattr(row.config, name)) for row in rows]
        columns += [np.array([k == choice for k in kinds], dtype=float) for choice in sorted(set(kinds))[1:]]
    return columns


def _coefficient(design: Array, target: Array) -> tuple[float, float, float] | None:
    """Return the first coefficient with its HC3 interval; None where the data do not determine it."""
    df = len(target) - int(np.linalg.matrix_rank(design))
    inverse = np.linalg.pinv(design.T @ design)
    # What of the first column the others cannot make: nothing left means no contrast.
    rest = design[:, 1:]
    own = design[:, 0] - rest @ np.linalg.lstsq(rest, design[:, 0], rcond=None)[0]
    if df < 2 or float(own @ own) < 1e-9:
        return None
    beta = inverse @ design.T @ target
    leverage = np.clip(np.einsum("ij,jk,ik->i", design, inverse, design), 0.0, 0.99)
    scaled = design * ((target - design @ beta) / (1 - leverage))[:, None]
    error = float(np.sqrt((inverse @ scaled.T @ scaled @ inverse)[0, 0]))
    half = float(stats.t.ppf(0.975, df)) * error
    return float(beta[0]), float(beta[0]) - half, float(beta[0]) + half

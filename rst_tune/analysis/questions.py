"""The paper's questions, answered from one's own trials, each with an effect and its 95 % interval.

Effects are differences of errors; below 0 means less error. The text has them in the metric of the search. Unless
stated otherwise an effect is a coefficient of a least-squares fit over configurations, with cost and gamma, their
squares and the rule as further regressors and a heteroscedasticity-consistent (HC3) interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rst_tune.analysis import labels
from rst_tune.analysis.baselines import Baselines
from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.records import PERCENT_ERROR, Metric, SearchStarted

Array = NDArray[np.float64]
Rows = Sequence[ConfigSummary]
Effect = tuple[float, float, float]
"""An effect and the ends of its 95 % interval."""

GAMMA_CLAIM = (0.8, 1.0)
# A schedule leans to one end when its probability there differs from its mean by more than this.
LEANING = 0.1
DOWN, UP = ("-down", "cos1"), ("-up", "cos2", "linear_group1")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One question: the verdict, the effect with its interval, and the number of configurations behind it."""

    question: str
    verdict: str = "not asked"
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    configurations: int = 0
    text: str = "not answered by this search: it takes a grid over all families (sampler.name=grid)"


@dataclass(frozen=True, kw_only=True)
class _Question:
    """A question with its verdicts for an interval below 0, above 0 and around 0, and the trials that it needs."""

    question: str
    verdicts: tuple[str, str, str]
    missing: str

    def answer(self, effect: Effect | None, contrast: str, configurations: int, metric: Metric) -> Answer:
        value, low, high = effect or (None, None, None)
        verdict, text = "no data", f"not enough trials to tell: {self.missing}"
        if effect is not None:
            verdict = self.verdicts[0 if effect[2] < 0 else 1 if effect[1] > 0 else 2]
            gap, _, ends = metric.difference(*effect).partition(", ")
            unit = f"points of {metric.name}" if metric.unit == "%" else f"in {metric.name}"
            text = f"{verdict}: {contrast}: {gap} {unit} (95 % interval {ends})"
        return Answer(
            question=self.question, verdict=verdict, effect=value, low=low, high=high, configurations=configurations,
            text=text,
        )  # fmt: skip


_END_HURTS = _Question(
    question="Does SGD near the end of training hurt?",
    verdicts=("no", "yes", "not settled"),
    missing="run families that fall and families that rise, at comparable costs",
)
_CONSTANT_OR_REST = _Question(
    question="Are constant schedules as good as the rest?",
    verdicts=("better", "worse", "no difference seen"),
    missing="run constant schedules and others, at comparable costs",
)
_BEST_GAMMA = _Question(
    question="Is gamma_rst around 0.8 to 1 best?",
    verdicts=("yes", "no", "not settled"),
    missing="run several values of gamma_rst inside and outside 0.8 to 1",
)
_HALF_COST = _Question(
    question="Does G-RST beat SAM at half the extra cost?",
    verdicts=("yes", "no", "no difference seen"),
    missing="run SAM and G-RST (gamma above 1) at extra propagation 0.4 to 0.6, two seeds or more of both",
)


def answers(baselines: Baselines, header: SearchStarted) -> list[Answer]:
    """Return the answers to all questions from the summaries of a search; without data an answer says what to run.

    Only a grid asks them: a sampler that follows the errors trains the better families and gammas more often, and more
    often where they are good.
    """
    sampler: Mapping[str, Any] = header.experiment.get("sampler") or {}
    if sampler.get("name") == "grid":
        by_fit = [ask(baselines.rows, header.metric) for ask in (end_hurts, constant_or_rest, best_gamma)]
        return [*by_fit, half_cost(baselines)]
    return [Answer(question=each.question) for each in (_END_HURTS, _CONSTANT_OR_REST, _BEST_GAMMA, _HALF_COST)]


def end_weight(row: ConfigSummary) -> float | None:
    """Return p(t) in the last fifth minus its mean; without a preview only the sign, by the family; None if unknown."""
    curve, name = row.preview.curve, row.config.family
    if curve:
        return float(np.mean(curve[-max(1, len(curve) // 5) :]) - np.mean(curve))
    if name == "constant":
        return 0.0
    return -1.0 if name.endswith(DOWN) else 1.0 if name.endswith(UP) else None


def _between(rows: Rows) -> list[ConfigSummary]:
    """Return the rows between the base optimizer and SAM, at the recipe's length: the paper varies nothing else."""
    return [row for row in rows if 0.0 < row.extra_propagation < 1.0 and row.config.horizon == 1.0]


def end_hurts(rows: Rows, metric: Metric = PERCENT_ERROR) -> Answer:
    """Compare schedules that end with SGD to schedules that end with SAM, at equal cost and gamma."""
    used = {row.config_id: weight for row in _between(rows) if abs(weight := end_weight(row) or 0.0) > LEANING}
    leaning = [row for row in rows if row.config_id in used]
    effect = _effect(leaning, [used[row.config_id] < 0 for row in leaning])
    contrast = "schedules that end with SGD, against those that end with SAM"
    return _END_HURTS.answer(effect, contrast, len(leaning), metric)


def constant_or_rest(rows: Rows, metric: Metric = PERCENT_ERROR) -> Answer:
    """Compare constant schedules to all others, at equal cost and gamma."""
    used = _between(rows)
    effect = _effect(used, [row.config.family == "constant" for row in used])
    return _CONSTANT_OR_REST.answer(effect, "constant schedules, against all others", len(used), metric)


def best_gamma(rows: Rows, metric: Metric = PERCENT_ERROR) -> Answer:
    """Compare gamma_rst in 0.8 ... 1 to all other values, at equal cost and within a family."""
    used = _between(rows)
    inside = [GAMMA_CLAIM[0] <= row.config.gamma_rst <= GAMMA_CLAIM[1] for row in used]
    effect = _effect(used, inside, gamma=False, family=True)
    return _BEST_GAMMA.answer(effect, "gamma_rst in 0.8 to 1, against all other values", len(used), metric)


def half_cost(baselines: Baselines) -> Answer:
    """Compare G-RST at about half the cost to SAM: the constant schedule nearest to cost 0.5 and gamma_rst 1.

    It is the nearest, not the best of many, so that it is not selected by luck. The interval is that of the posterior.
    """
    rows = baselines.rows
    scheme = [r for r in _between(rows) if r.config.gamma_gnr > 1.0 and r.config.rule == "sam"]
    near = [r for r in scheme if abs(r.extra_propagation - 0.5) <= 0.1]
    sam = [r for r in rows if r.config.is_sam]
    if not near or not sam:
        return _HALF_COST.answer(None, "", 0, baselines.metric)
    point = min(near, key=_distance)
    found = baselines.difference(point, max(sam, key=lambda r: r.seeds))
    effect = None if found.low is None or found.high is None else (found.value, found.low, found.high)
    return _HALF_COST.answer(effect, f"{labels.describe(point.config)}, against SAM", 2, baselines.metric)


def _distance(row: ConfigSummary) -> tuple[bool, bool, float]:
    away = abs(row.extra_propagation - 0.5) + abs(row.config.gamma_rst - 1.0)
    return row.seeds_total < 2, row.config.family != "constant", away


def _effect(rows: Rows, treated: Sequence[bool], gamma: bool = True, family: bool = False) -> Effect | None:
    """Return the coefficient of `treated` and its 95 % interval; None where there is too little to compare."""
    flag = np.asarray(treated, dtype=float)
    if min(flag.sum(), len(flag) - flag.sum()) < 2:
        return None
    cost, value = np.array([(row.extra_propagation, row.config.gamma_rst) for row in rows]).T
    columns = [flag, np.ones(len(flag)), cost, cost**2, *([value, value**2] if gamma else [])]
    for kinds in ([[row.config.family for row in rows]] if family else []) + [[row.config.rule for row in rows]]:
        columns += [np.array([kind == choice for kind in kinds], dtype=float) for choice in sorted(set(kinds))[1:]]
    weight = np.sqrt([row.seeds_total for row in rows])
    target = np.array([row.error_mean for row in rows])
    return _coefficient(np.column_stack(columns) * weight[:, None], target * weight)


def _coefficient(design: Array, target: Array) -> Effect | None:
    """Return the first coefficient with its HC3 interval; None where the data do not determine it."""
    df = len(target) - int(np.linalg.matrix_rank(design))
    inverse = np.linalg.pinv(design.T @ design)
    # The part of the first column that the others do not explain: without it there is no contrast.
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

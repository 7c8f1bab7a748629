"""The analysis of one state of a search: one surrogate fit, from which front, recommendation and report are computed.

The front is that of the posterior errors. The recommended point follows the one-standard-error rule: the cheapest
replicated point of the front whose posterior and measured errors are both within one standard error of the lowest
posterior error. Where fewer than two points of the front have two seeds, it is the knee of the front.
"""

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from rst_tune.analysis import labels, pareto
from rst_tune.analysis.caveats import caveats
from rst_tune.analysis.questions import Answer, answers
from rst_tune.analysis.replicates import ConfigSummary, front_mask, summarize_configs
from rst_tune.analysis.rungs import RungCorrelation, expected_finals, rung_correlations
from rst_tune.analysis.surrogate import MIN_TRIALS, Surrogate, fit_surrogate
from rst_tune.records import Search

if TYPE_CHECKING:
    from rst_tune.analysis.importance import Importance

__all__ = ["Analysis", "analyze"]

Rows = tuple[ConfigSummary, ...]
HTML_COLUMNS = (
    "compute", "error_mean", "error_sem", "seeds", "p_nondominated", "verdict", "test_error_mean"
)  # fmt: skip
_OF_CONFIG = ("family", "schedule", "rule", "rule_options", "rho", "gamma_gnr", "gamma_rst", "horizon", "compute")
_OF_SUMMARY = (
    "extra_propagation", "error_mean", "error_sem", "error_posterior", "error_posterior_sd", "seeds", "p_nondominated",
    "verdict", "test_error_mean", "test_error_sem", "config_id", "trial_key",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """What one state of a search shows.

    Attributes:
        surrogate: the one fit of this state; None with fewer than `MIN_TRIALS` finished trials.
        summaries: every configuration with a finished trial, by cost, then error.
        points: the delivered front, by cost.
        confirmed: the points of P(non-dominated) >= 0.95.
        base, sam: the most replicated summaries of the two baselines.
        reference: the reference point (error, compute).
        hypervolume: that of the delivered front.
        caveats: what is missing or uncertain.
        answer: the recommendation in one sentence.
    """

    search: Search
    surrogate: Surrogate | None
    summaries: Rows
    points: Rows
    confirmed: Rows
    recommended: ConfigSummary | None
    base: ConfigSummary | None
    sam: ConfigSummary | None
    reference: tuple[float, float] | None
    hypervolume: float | None
    caveats: tuple[str, ...]
    answer: str

    def rows(self) -> list[dict[str, Any]]:
        """Return the front as plain rows, for JSON, CSV and tables."""
        return [
            {name: getattr(p.config, name) for name in _OF_CONFIG} | {name: getattr(p, name) for name in _OF_SUMMARY}
            for p in self.points
        ]

    @cached_property
    def hypervolume_history(self) -> list[tuple[float, float, float]]:
        """(time, pairs spent so far, hypervolume) by the present posterior errors; it ends with `hypervolume`."""
        mask = front_mask(self.summaries, self.search)
        errors = {row.config_id: row.error_posterior for row, able in zip(self.summaries, mask, strict=True) if able}
        return pareto.hypervolume_history(self.search, errors)

    @cached_property
    def rung_correlations(self) -> list[RungCorrelation]:
        """How well each rung ranks the final errors."""
        return rung_correlations(self.search)

    @cached_property
    def importance(self) -> "Importance":
        """The share of the error's variance that each parameter explains."""
        # Imported on use: Optuna is slow to load, and a front does not need it.
        from rst_tune.analysis.importance import importance

        return importance(self.search)

    @cached_property
    def questions(self) -> list[Answer]:
        """The paper's questions, answered from this search."""
        return answers(self.summaries)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("configuration", *HTML_COLUMNS))
        table = [[labels.describe(p.config), *(_cell(getattr(p, name)) for name in HTML_COLUMNS)] for p in self.points]
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table)
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.caveats)
        return f"<p>{escape(self.answer)}</p><table><tr>{head}</tr>{body}</table><ul>{notes}</ul>"


def analyze(search: Search) -> Analysis:
    """Return the analysis of a search, finished or not."""
    finished = search.finished()
    surrogate = fit_surrogate([*finished, *expected_finals(search)]) if len(finished) >= MIN_TRIALS else None
    rows = tuple(summarize_configs(search, surrogate))
    points = tuple(row for row in rows if row.on_front)
    reference = pareto.reference_point(search)
    recommended = _recommended(points)
    base = max((row for row in rows if row.config.is_recipe), key=lambda r: r.seeds, default=None)
    sam = max((row for row in rows if row.config.is_sam), key=lambda r: r.seeds, default=None)
    return Analysis(
        search=search,
        surrogate=surrogate,
        summaries=rows,
        points=points,
        confirmed=tuple(p for p in points if p.verdict == "confirmed"),
        recommended=recommended,
        base=base,
        sam=sam,
        reference=reference,
        hypervolume=pareto.hypervolume(_coordinates(points), reference) if reference else None,
        caveats=tuple(caveats(search, rows)),
        answer=_answer(search, recommended, base, sam),
    )


def _coordinates(points: Rows) -> list[tuple[float, float]]:
    return [(p.error_posterior, p.compute) for p in points]


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _recommended(points: Rows) -> ConfigSummary | None:
    """Return the recommended point of the front (see the module).

    The standard error is that of the lowest point, measured or posterior, whichever is larger. With the standard error
    of a difference, a point with a very uncertain mean would always qualify.
    """
    replicated = tuple(p for p in points if p.seeds > 1)
    if len(replicated) < 2:
        index = pareto.knee(_coordinates(points))
        return points[index or 0] if points else None
    best = min(replicated, key=lambda p: p.error_posterior)
    limit = best.error_posterior + max(best.error_sem or 0.0, best.error_posterior_sd or 0.0)
    near = (p for p in replicated if max(p.error_posterior, p.error_mean) <= limit)
    return min(near, key=lambda p: p.compute, default=best)


def _answer(search: Search, point: ConfigSummary | None, base: ConfigSummary | None, sam: ConfigSummary | None) -> str:
    if point is None:
        return "no answer yet: no trial was trained to its end" if search.trials else "no answer: the search is empty"
    text = f"train with {labels.describe(point.config)}: error {_result(point)} extra compute"
    if sam is not None and sam is not point:
        text += f"; SAM gives {_result(sam)}"
    elif base is not None and base is not point:
        text += f"; the base optimizer gives {_result(base)}"
    return text


def _result(point: ConfigSummary) -> str:
    noise = " % (one seed)" if point.error_sem is None else f" ± {point.error_sem:.2f} %"
    return f"{point.error_mean:.2f}{noise} at {100 * point.extra_propagation:.3g} %"

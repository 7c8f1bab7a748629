"""The analysis of one state of a search: one surrogate fit, from which front, recommendation and report are computed.

The front is that of the posterior errors. The rule by which its point is recommended is in `answer`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from rst_tune.analysis import labels, pareto
from rst_tune.analysis.answer import answer, point_sentence, recommended
from rst_tune.analysis.baselines import Baselines
from rst_tune.analysis.caveats import caveats
from rst_tune.analysis.cost import in_cost
from rst_tune.analysis.questions import Answer, answers
from rst_tune.analysis.replicates import ConfigSummary, summarize_configs
from rst_tune.analysis.rungs import RungCorrelation, expected_finals, rung_correlations
from rst_tune.analysis.surrogate import MIN_TRIALS, PRIOR, Surrogate, fit_surrogate
from rst_tune.errors import InputError
from rst_tune.records import Prior, Search

if TYPE_CHECKING:
    from rst_tune.analysis.importance import Importance

Rows = tuple[ConfigSummary, ...]
NO_FRONT = "the front is empty: no trial was trained to its end"
_OF_CONFIG = ("family", "schedule", "rule", "rule_options", "rho", "gamma_gnr", "gamma_rst", "horizon")
_OF_SUMMARY = (
    "compute", "extra_propagation", "error_mean", "error_sem", "error_posterior", "error_posterior_sd",
    "error_low", "error_high", "seeds",
    "seeds_total", "diverged", "p_nondominated", "verdict", "test_error_mean", "test_error_sem",
    "config_id", "trial_key",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """What one state of a search shows.

    Attributes:
        surrogate: the one fit of this state; None with fewer than `MIN_TRIALS` finished trials.
        summaries: every configuration with a finished trial, by cost, then error.
        points: the delivered front, by cost.
        confirmed: the points of P(non-dominated) >= 0.95.
        baselines: the base optimizer at all its lengths, SAM, and the comparisons with them.
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
    baselines: Baselines
    reference: tuple[float, float] | None
    hypervolume: float | None
    caveats: tuple[str, ...]
    answer: str

    @property
    def base(self) -> ConfigSummary | None:
        """The base optimizer at the recipe's length."""
        return self.baselines.base

    @property
    def base_curve(self) -> Rows:
        """The base optimizer at all its lengths, by compute: what training longer gives."""
        return self.baselines.curve

    @property
    def sam(self) -> ConfigSummary | None:
        """SAM at the recipe's length."""
        return self.baselines.sam

    def rows(self, points: Sequence[ConfigSummary] | None = None) -> list[dict[str, Any]]:
        """Return the front, or some of its points, as plain rows, for JSON, CSV and tables.

        Errors are minimized; `value_mean` is the measured mean as the metric of the search is written. `cost` is what
        `compute` is counted in: pairs (compute) or seconds.
        """
        metric = self.search.metric
        return [
            {name: getattr(p.config, name) for name in _OF_CONFIG}
            | {name: getattr(p, name) for name in _OF_SUMMARY}
            | {"metric": metric.name, "value_mean": metric.value(p.error_mean), "cost": p.config.cost}
            for p in (self.points if points is None else points)
        ]

    def at(self, compute: float) -> ConfigSummary:
        """Return the most accurate point of the front that costs at most `compute`."""
        able = [p for p in self.points if p.compute <= compute * (1 + 1e-9)]
        if not able:
            least = min((p.compute for p in self.points), default=None)
            known = NO_FRONT if least is None else f"the cheapest costs {least:.3g} ×: ask for that or more"
            raise InputError(f"a point of the front must cost at most {compute:g} ×, but {known}")
        return min(able, key=lambda p: p.error_posterior)

    def for_error(self, value: float) -> ConfigSummary:
        """Return the cheapest point of the front that is at least as good as `value`, measured and posterior.

        `value` is in the unit of the search's metric.
        """
        metric, errors = self.search.metric, [max(p.error_posterior, p.error_mean) for p in self.points]
        able = [p for p, error in zip(self.points, errors, strict=True) if error <= metric.error(value)]
        if not able:
            bound, more = ("least", "less") if metric.higher_is_better else ("most", "more")
            asked = f"{metric.name} of at {bound} {metric.with_unit(metric.error(value))}"
            known = f"the best has {metric.with_unit(min(errors))}: ask for that or {more}" if errors else NO_FRONT
            raise InputError(f"a point of the front must have {asked}, but {known}")
        return min(able, key=lambda p: p.compute)

    def sentence(self, point: ConfigSummary) -> str:
        """Return a point with its compute, its error and the baselines, in one sentence."""
        return point_sentence(point, self.baselines)

    @cached_property
    def hypervolume_history(self) -> list[tuple[float, float, float]]:
        """(time, pairs spent so far, hypervolume) by the present posterior errors; it ends with `hypervolume`."""
        return pareto.hypervolume_history(self.search, {row.config_id: row.error_posterior for row in self.summaries})

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
        return answers(self.baselines, self.search.header)

    def _repr_html_(self) -> str:
        metric, title = self.search.metric, self.search.metric.title
        heads = ("configuration", self.baselines.noun, title, "seeds", "P(non-dominated)", "verdict", f"test {title}")
        head = "".join(f"<th>{escape(name)}</th>" for name in heads)
        table = [
            [labels.describe(p.config), _cell(p.compute), metric.text(p.error_mean, p.error_sem), _cell(p.seeds),
             _cell(p.p_nondominated), p.verdict, metric.text(p.test_error_mean, p.test_error_sem)]
            for p in self.points
        ]  # fmt: skip
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table)
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.caveats)
        return f"<p>{escape(self.answer)}</p><table><tr>{head}</tr>{body}</table><ul>{notes}</ul>"


def analyze(search: Search, cost: str | None = None) -> Analysis:
    """Return the analysis of a search, finished or not, over `cost`: compute or seconds; None: the search's own."""
    search = in_cost(search, cost)
    surrogate = surrogate_of(search, search.header.settings.prior or PRIOR)
    rows = tuple(summarize_configs(search, surrogate))
    points = tuple(row for row in rows if row.on_front)
    front, reference = [(p.error_posterior, p.compute) for p in points], pareto.reference_point(search)
    baselines = Baselines(rows=rows, surrogate=surrogate, metric=search.metric)
    settled = tuple(point for point in points if point.settled)
    gains = baselines.gains(settled)
    recommendation = recommended(settled, baselines, gains)
    return Analysis(
        search=search,
        surrogate=surrogate,
        summaries=rows,
        points=points,
        confirmed=tuple(p for p in points if p.verdict == "confirmed"),
        recommended=recommendation,
        baselines=baselines,
        reference=reference,
        hypervolume=pareto.hypervolume(front, reference) if reference else None,
        caveats=tuple(caveats(search, rows)),
        answer=answer(recommendation, baselines, gains) if search.trials else "no answer: the search is empty",
    )


def surrogate_of(search: Search, prior: Prior) -> Surrogate | None:
    """Return the surrogate of a search; None with fewer than `MIN_TRIALS` finished trials."""
    finished = search.finished()
    if len(finished) < MIN_TRIALS:
        return None
    # Without the diverged ones: the share of a configuration's seeds that diverged is counted by itself, and one that
    # never finished is not delivered. As results they would look like noise, and widen every interval.
    return fit_surrogate([*finished, *expected_finals(search)], prior=prior)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)

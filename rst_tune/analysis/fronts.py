"""The answer of a search: its front with what is known, what is not, and one recommendation.

The front is that of the expected errors, which all trials together make believable; what was measured stands beside
them. The recommended point follows the one-standard-error rule: the cheapest replicated point of the front whose
expected and measured errors are within one standard error of the lowest expected one. Where fewer than two points of
the front have two seeds, its knee is named.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from rst_tune.analysis import labels, pareto
from rst_tune.analysis.noise import CONFIRMED, ConfigSummary, summarise, trusted
from rst_tune.analysis.records import Search

__all__ = ["Front", "delivered"]

Rows = tuple[ConfigSummary, ...]
COLUMNS = ("extra_propagation", "error_mean", "error_sem", "seeds", "p_nondominated", "verdict", "test_error_mean")


@dataclass(frozen=True, kw_only=True)
class Front:
    """What a search found. `points` is the front in order of cost; `summaries` are all configurations.

    `confirmed` are the points of P(non-dominated) >= 0.95; `indistinguishable` are all configurations, on the front
    or not, that the replicates neither confirm nor dismiss; `optimistic` and `pessimistic` are the fronts if every
    mean were one standard error lower, or higher.
    """

    summaries: Rows
    points: Rows
    confirmed: Rows
    indistinguishable: Rows
    optimistic: Rows
    pessimistic: Rows
    recommended: ConfigSummary | None
    base: ConfigSummary | None
    sam: ConfigSummary | None
    reference: tuple[float, float] | None
    hypervolume: float | None
    caveats: tuple[str, ...]
    answer: str

    def rows(self) -> list[dict[str, Any]]:
        """Return the front as plain rows, for JSON, CSV and tables."""
        return [row_of(point) for point in self.points]

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("configuration", *COLUMNS))
        body = "".join(_html_row(point) for point in self.points)
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.caveats)
        return f"<p>{escape(self.answer)}</p><table><tr>{head}</tr>{body}</table><ul>{notes}</ul>"


def row_of(point: ConfigSummary) -> dict[str, Any]:
    """Return one configuration as a plain row."""
    config = point.config
    names = ("family", "schedule", "rule", "rule_options", "rho", "gamma_gnr", "gamma_rst")
    return {
        **{name: config.get(name) for name in names},
        "extra_propagation": point.extra_propagation,
        "error_mean": point.error_mean,
        "error_sem": point.error_sem,
        "error_expected": point.error_expected,
        "error_expected_sd": point.error_expected_sd,
        "seeds": point.seeds,
        "p_nondominated": point.p_nondominated,
        "verdict": point.verdict,
        "test_error_mean": point.test_error_mean,
        "test_error_sem": point.test_error_sem,
        "config_id": point.config_id,
        "run_id": point.run_id,
    }


def _html_row(point: ConfigSummary) -> str:
    row = row_of(point)
    values = [labels.describe(point.config), *(_cell(row[name]) for name in COLUMNS)]
    return "<tr>" + "".join(f"<td>{escape(v)}</td>" for v in values) + "</tr>"


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def delivered(search: Search) -> Front:
    """Return the answer of a search, finished or not. What is missing is said in the caveats."""
    rows = tuple(summarise(search))
    points = tuple(row for row in rows if row.on_front)
    reference = pareto.reference_of(search)
    recommended = _recommended(points)
    base, sam = (_baseline(rows, test) for test in (labels.is_base, labels.is_sam))
    area = [(p.error_expected, p.extra_propagation) for p in points]
    return Front(
        summaries=rows,
        points=points,
        confirmed=tuple(p for p in points if p.verdict == "confirmed"),
        indistinguishable=tuple(row for row in rows if row.verdict == "uncertain"),
        optimistic=_shifted(rows, search, -1.0),
        pessimistic=_shifted(rows, search, 1.0),
        recommended=recommended,
        base=base,
        sam=sam,
        reference=reference,
        hypervolume=pareto.hypervolume(area, reference) if reference else None,
        caveats=tuple(_caveats(search, rows, points)),
        answer=_answer(search, recommended, base, sam),
    )


def _baseline(rows: Rows, test: Callable[[Mapping[str, Any]], bool]) -> ConfigSummary | None:
    found = [row for row in rows if test(row.config)]
    return max(found, key=lambda r: r.seeds) if found else None


def _shifted(rows: Rows, search: Search, sign: float) -> Rows:
    """Return the front if every error were one standard error lower or higher; unknown ones keep their value."""
    able = [row for row, ok in zip(rows, trusted(rows, search), strict=True) if ok]
    points = [(row.error_expected + sign * _uncertainty(row), row.extra_propagation) for row in able]
    return tuple(row for row, member in zip(able, pareto.front(points), strict=True) if member)


def _uncertainty(row: ConfigSummary) -> float:
    return (row.error_sem if row.error_expected_sd is None else row.error_expected_sd) or 0.0


def _recommended(points: Rows) -> ConfigSummary | None:
    """Return the cheapest replicated point within a standard error of the lowest; with less than two such, the knee.

    The standard error is that of the lowest one, measured or believed, whichever is larger. With that of the
    difference, a point of which nearly nothing is known would always be near enough.
    """
    replicated = tuple(p for p in points if p.seeds > 1)
    if len(replicated) < 2:
        index = pareto.knee([(p.error_expected, p.extra_propagation) for p in points])
        return points[index or 0] if points else None
    best = min(replicated, key=lambda p: p.error_expected)
    enough = best.error_expected + max(best.error_sem or 0.0, best.error_expected_sd or 0.0)
    near = (p for p in replicated if max(p.error_expected, p.error_mean) <= enough)
    return min(near, key=lambda p: p.extra_propagation, default=best)


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
    noise = "" if point.error_sem is None else f" ± {point.error_sem:.2f}"
    single = " (one seed)" if point.error_sem is None else ""
    return f"{point.error_mean:.2f}{noise} %{single} at {100 * point.extra_propagation:.3g} %"


def _caveats(search: Search, rows: Rows, points: Rows) -> list[str]:
    return [
        note
        for note in (
            *_caveats_of_trials(search, rows),
            *_caveats_of_noise(rows, points),
            *_caveats_of_baselines(search, rows, points),
        )
        if note
    ]


def _caveats_of_trials(search: Search, rows: Rows) -> list[str]:
    count = Counter(t.status for t in search.trials)
    lost = [t for t in search.trials if t.status == "complete" and t.full and not t.finished]
    costless = sum(not np.isfinite(t.extra_propagation) for t in lost)
    broken = len(lost) - costless
    ended = count["complete"] + count["stopped"] + count["diverged"] + count["failed"]
    return [
        "the search is empty: no trial was drawn" if not search.trials else "",
        f"the search is not done (phase {search.phase}, {ended} of {len(search.trials)} trials ended)"
        if search.trials and not search.done
        else "",
        f"{count['diverged']} of {len(search.trials)} trials diverged" if count["diverged"] else "",
        f"{count['failed']} of {len(search.trials)} trials failed" if count["failed"] else "",
        f"{broken} complete trials have no finite error and were left out" if broken else "",
        f"{costless} complete trials have no finite cost and were left out" if costless else "",
        "no trial was trained to its end, so there is no front" if search.trials and not rows else "",
    ]


def _caveats_of_noise(rows: Rows, points: Rows) -> list[str]:
    if not rows:
        return []
    if not any(row.seeds > 1 for row in rows):
        return ["one seed a configuration: nothing is known of the noise, and the front is likely lucky"]
    single = sum(row.seeds == 1 for row in rows)
    better = sum(r.seeds == 1 and any(_beats(r, p) for p in points) for r in rows)
    firm = sum(p.verdict == "confirmed" for p in points)
    return [
        f"{firm} of {len(points)} points of the front are confirmed (P(non-dominated) >= {CONFIRMED})",
        f"{single} of {len(rows)} configurations have one seed; P(non-dominated) shrinks them" if single else "",
        f"{better} configurations with one seed look better than a point of the front; luck is likely, "
        "a second seed would tell"
        if better and not any(p.seeds == 1 for p in points)
        else "",
    ]


def _beats(row: ConfigSummary, point: ConfigSummary) -> bool:
    return row.extra_propagation <= point.extra_propagation and row.error_expected < point.error_expected


def _caveats_of_baselines(search: Search, rows: Rows, points: Rows) -> list[str]:
    if not rows:
        return []
    alone = len(rows) == 1
    return [
        "the base optimizer was not run: there is no zero to compare with"
        if not any(labels.is_base(r.config) for r in rows)
        else "",
        "SAM was not run: there is no full cost to compare with"
        if not any(labels.is_sam(r.config) for r in rows)
        else "",
        "the reference point is derived from the trials, not fixed before them" if search.reference is None else "",
        "the test set has not been read: errors are on the validation split"
        if all(p.test_error_mean is None for p in points)
        else "",
        "one configuration only: a front of one point says nothing of the trade" if alone else "",
        "all configurations cost the same: there is no trade to show"
        if not alone and len({r.extra_propagation for r in rows}) == 1
        else "",
        "all configurations have the same error: the cheapest wins"
        if not alone and len({r.error_mean for r in rows}) == 1
        else "",
    ]

"""The search itself, ours against stock parts at equal pairs: real searches, their fronts trained again on fresh seeds.

A search delivers a front with errors. The true errors are those of the same configurations on seeds that no search has
used; searches are compared by the hypervolume of these true means.

The kept searches are of version 0.1.0, at one length and radius: their cost is the extra propagation, and their
hypervolume is linear in it. Fronts of a fresh run have `compute` instead, whose logarithm is the axis. The two
hypervolumes are not comparable.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import moocore
import numpy as np
import plotly.graph_objects as go
import stock
from plotly.subplots import make_subplots
from scipy import stats
from studies import KEPT, keep_as, kept, read_lines, write_lines

from rst_tune import api
from rst_tune.analysis import pareto
from rst_tune.analysis.analysis import Analysis
from rst_tune.records import Search, config_id
from rst_tune.report import formatting
from rst_tune.report.figures import style
from rst_tune.training.task import Task
from rst_tune.tuning.experiment import Experiment

if TYPE_CHECKING:
    from page import Page

__all__ = ["NAME", "delivered", "keep", "train", "write"]

NAME = "search"
REPEATS, BUDGET = 5, 6_000
FRESH_SEED, FRESH_SEEDS = 5000, 10
REFERENCE_ERROR = 12.0
FRONTS, TRUTH = f"{NAME}_fronts.jsonl.gz", f"{NAME}_truth"
METHODS = {
    "ours": ("rst-tune", style.BLUE, "circle"),
    "stock": ("stock", style.RED, "diamond"),
    "stock-complete": ("stock, complete trainings only", style.ORANGE, "square"),
}
SEEDS_APART = 100

Line = dict[str, Any]
Fit = tuple[float, float, float]
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """A cost axis: its title, its reference value, and the hypervolume over it."""

    title: str
    reference: float
    hypervolume: Callable[[Points, tuple[float, float]], float]

    def volume(self, points: Points) -> float:
        """Return the hypervolume of (error, cost) against the fixed reference point."""
        return self.hypervolume(points, (REFERENCE_ERROR, self.reference))


def linear_hypervolume(points: Points, reference: tuple[float, float]) -> float:
    """Return the area between the front and the reference point, linear in both."""
    return float(moocore.hypervolume(np.asarray(points), ref=reference)) if points else 0.0


# By the name that the cost of a point has in the kept fronts.
AXES = {
    "extra_propagation": Axis("extra propagation Δη", 1.1, linear_hypervolume),
    "compute": Axis("compute", pareto.reference_compute(2.0), pareto.hypervolume),
}


def train(folder: Path, repeats: int = REPEATS, budget: float = BUDGET, *more: str) -> None:
    """Run all searches, then train every delivered configuration on fresh seeds. Finished searches are skipped."""
    for repeat in range(repeats):
        seed = repeat * SEEDS_APART
        settings = (f"budget.pairs={budget}", f"seed={seed}", "tracking.enabled=false", *more)
        api.search(api.load_experiment("digits", [*settings, "tracking.enabled=false"]), folder / f"ours-{repeat}")
        stock.search(folder / f"stock-{repeat}", budget=budget, seed=seed)
    api.search(_truth(delivered(folder)), folder / "truth")


def _truth(lines: list[Line], seeds: int = FRESH_SEEDS) -> Experiment:
    """Return the grid of all delivered configurations on seeds that no search has used."""
    points = {config_id(p["params"]): p["params"] for line in lines for p in line["points"]}
    return Experiment.model_validate(
        {
            "name": TRUTH,
            "task": Task().model_dump(),
            "space": {"parametrization": "native", "families": {}, "points_to_evaluate": list(points.values())},
            "sampler": {"name": "grid"},
            "budget": {"trials": len(points) + 2},
            "fidelity": {"kind": "full"},
            "stopping": {"name": "none"},
            "seed": FRESH_SEED,
            "seeds": seeds,
            "confirm": {"enabled": False},
            "tracking": {"enabled": False},
        }
    )


def delivered(folder: Path) -> list[Line]:
    """Return the front of every finished search with its reported errors: one line per method and repeat."""
    lines = []
    for repeat in range(len(list(folder.glob("ours-*")))):
        lines.append(_ours(repeat, api.analyze(folder / f"ours-{repeat}")))
        trials = json.loads((folder / f"stock-{repeat}" / stock.RESULT_NAME).read_text())
        complete = [trial for trial in trials if trial["complete"]]
        lines += [_stock("stock", repeat, trials, trials), _stock("stock-complete", repeat, complete, trials)]
    return lines


def _ours(repeat: int, analysis: Analysis) -> Line:
    search = analysis.search
    points = [_point(p.config.params, p.error_posterior, p.compute) for p in analysis.points]
    counts = {"trials": len(search.trials), "complete": len(search.finished()), "pairs": search.pairs}
    return {"method": "ours", "repeat": repeat, **counts, "commit": search.header.commit, "points": points}


def _stock(method: str, repeat: int, eligible: list[Line], trials: list[Line]) -> Line:
    mask = pareto.nondominated([(t["error"], t["compute"]) for t in eligible])
    chosen = [t for t, member in zip(eligible, mask, strict=True) if member]
    complete = sum(t["complete"] for t in trials)
    counts = {"trials": len(trials), "complete": complete, "pairs": sum(t["pairs"] for t in trials)}
    points = [_point(t["params"], t["error"], t["compute"]) for t in chosen]
    return {"method": method, "repeat": repeat, **counts, "points": points}


def _point(params: Mapping[str, Any], error: float, compute: float) -> Line:
    return {"params": dict(params), "reported": error, "compute": compute}


def keep(folder: Path, records: Path = KEPT) -> None:
    """Write the fronts, and the record of their fresh trainings."""
    write_lines(records / FRONTS, delivered(folder))
    keep_as(TRUTH, folder / "truth", records)


# --- the comparison ---------------------------------------------------------------------------------------------


def axis_of(lines: list[Line]) -> str:
    """Return the name of the cost axis that the fronts were kept with."""
    kept_with = {name for line in lines for point in line["points"] for name in AXES if name in point}
    if len(kept_with) != 1:
        raise ValueError(f"all fronts need one cost axis of {list(AXES)}, but these have {sorted(kept_with)}: run anew")
    return kept_with.pop()


def with_volumes(lines: list[Line], truth: Search) -> list[Line]:
    """Return each line with its reported and its true hypervolume, and the true points."""
    errors = {key: fmean(t.error for t in trials if t.error is not None) for key, trials in truth.by_config().items()}
    cost = axis_of(lines)
    volume, found = AXES[cost].volume, []
    for line in lines:
        true = [(errors[config_id(p["params"])], p[cost]) for p in line["points"]]
        reported = [(p["reported"], p[cost]) for p in line["points"]]
        found.append(line | {"true": volume(true), "reported": volume(reported), "true_points": true})
    return found


def volumes(lines: list[Line], method: str, kind: str) -> list[float]:
    """Return the hypervolumes of a method, one per repeat."""
    return [line[kind] for line in lines if line["method"] == method]


def interval(values: list[float]) -> Fit | None:
    """Return the mean with Student's 95 % interval."""
    if len(values) < 2:
        return None
    half = float(stats.t.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return fmean(values), fmean(values) - half, fmean(values) + half


def difference(left: list[float], right: list[float]) -> Fit:
    """Return the difference of two means with Welch's 95 % interval: the repeats are independent."""
    test = stats.ttest_ind(left, right, equal_var=False)
    low, high = test.confidence_interval(0.95)
    return fmean(left) - fmean(right), float(low), float(high)


def write(page: "Page", records: Path = KEPT) -> None:
    """Write the section, or that there are no records."""
    truth, path = kept(TRUTH, records), records / FRONTS
    if truth is None or not path.exists():
        page.say(
            "The real searches against stock parts have not been run to their end yet: "
            f"`python experiments/results/make.py --fresh --only {NAME}`."
        )
        return
    lines = with_volumes([json.loads(line) for line in read_lines(path)], truth)
    cost = axis_of(lines)
    axis = AXES[cost]
    repeats = 1 + max(line["repeat"] for line in lines)
    page.say(_of_version(truth, cost))
    page.say(
        f"`digits`, searched {repeats} times by `rst-tune` and {repeats} times by Ray's `OptunaSearch` with two "
        "metrics under Ray's `ASHAScheduler` on error (`experiments/results/stock.py`), "
        f"{BUDGET:,} propagation pairs each, confirmation included. Every delivered configuration was then trained on "
        f"{FRESH_SEEDS} fresh seeds; *true* is the hypervolume of those means, *reported* that of the errors that the "
        f"search reported, both against the reference (error {REFERENCE_ERROR:g} %, {axis.title} {axis.reference:.3g})."
        " *Complete trainings only* is the front of the stock search without the trials that ASHA stopped."
    )
    training = formatting.duration(sum(trial.seconds for trial in truth.trials))
    made = (
        f"`python experiments/results/make.py --fresh --only {NAME}` · commit `{truth.header.commit[:7]}` · "
        f"fresh seeds {FRESH_SEED}–{FRESH_SEED + FRESH_SEEDS - 1} · {len(truth.trials)} fresh trainings ({training})"
    )
    title = "Reported and true hypervolume, and the fronts of the true errors"
    page.picture("search", title, figure(lines, axis), made)
    page.table(["search", "true", "reported", "points", "trials", "complete", "pairs"], _body(lines))
    _say_difference(page, lines)


def _of_version(truth: Search, cost: str) -> str:
    """Return which version searched, and over which axis the hypervolume is."""
    version = truth.header.versions.get("rst_tune", "0.1.0")
    if cost == "compute":
        return f"Measured with version {version}; the hypervolume is over the error and the logarithm of the compute."
    return (
        f"Measured with version {version}: its search had one length and one radius and another sampler than the "
        "present one, and the hypervolume is linear in the extra propagation. These numbers are kept as they were "
        "measured; they say nothing about the present search and are not comparable with areas over the compute."
    )


def _body(lines: list[Line]) -> list[list[str]]:
    body = []
    for method, (name, _, _) in METHODS.items():
        own = [line for line in lines if line["method"] == method]
        true, reported = interval([line["true"] for line in own]), fmean(line["reported"] for line in own)
        cells = [
            fmean(len(line["points"]) for line in own),
            *(fmean(line[k] for line in own) for k in ("trials", "complete")),
        ]
        pairs = f"{fmean(line['pairs'] for line in own):,.0f}"
        body.append(
            [name, formatting.difference(*true) if true else "", f"{reported:.2f}", *(f"{c:.1f}" for c in cells), pairs]
        )
    return [[cell.lstrip("+").replace("[+", "[").replace(", +", ", ") for cell in row] for row in body]


def _say_difference(page: "Page", lines: list[Line]) -> None:
    for other in ("stock", "stock-complete"):
        gap, low, high = difference(volumes(lines, "ours", "true"), volumes(lines, other, "true"))
        word = "more" if low > 0 else "less" if high < 0 else "not distinguishable"
        page.say(f"Ours minus {METHODS[other][0]}: {gap:+.2f} (95 % interval {low:+.2f} … {high:+.2f}): {word}.")


def figure(lines: list[Line], axis: Axis) -> go.Figure:
    """Draw the hypervolumes on the left, the fronts of the true errors on the right."""
    fig = make_subplots(cols=2, rows=1, column_widths=[0.42, 0.58], horizontal_spacing=0.1)
    for place, (method, (name, color, symbol)) in enumerate(METHODS.items()):
        for shift, kind in ((-0.17, "reported"), (0.17, "true")):
            values = volumes(lines, method, kind)
            hollow = symbol if kind == "true" else f"{symbol}-open"
            marker = {"color": color, "symbol": hollow, "size": 9}
            xs = [place + shift] * len(values)
            fig.add_scatter(x=xs, y=values, mode="markers", marker=marker, showlegend=False, row=1, col=1)
            _mean_trace(fig, place + shift, values, color)
        for line in (line for line in lines if line["method"] == method):
            _front_trace(fig, line, name, color, symbol)
    return _dressed(fig, axis)


def _mean_trace(fig: go.Figure, x: float, values: list[float], color: str) -> None:
    """Draw the mean beside the repeats, with its 95 % interval."""
    fit = interval(values)
    if fit is not None:
        bars = {"type": "data", "array": [fit[2] - fit[0]], "thickness": 2, "width": 5}
        marker = {"symbol": "line-ew-open", "size": 16, "color": color, "line": {"width": 3}}
        fig.add_scatter(
            x=[x + 0.12], y=[fit[0]], error_y=bars, mode="markers", marker=marker, showlegend=False, row=1, col=1
        )


def _front_trace(fig: go.Figure, line: Line, name: str, color: str, symbol: str) -> None:
    if not line["true_points"]:
        return
    points = np.array(line["true_points"])
    best = sorted(points[pareto.nondominated(points)].tolist(), key=lambda p: p[1])
    fig.add_scatter(
        x=[p[1] for p in best], y=[p[0] for p in best], mode="lines+markers", name=name, legendgroup=name,
        showlegend=line["repeat"] == 0, line={"shape": "hv", "color": color, "width": 1},
        marker={"color": color, "symbol": symbol, "size": 6}, opacity=0.75, row=1, col=2,
    )  # fmt: skip


def _dressed(fig: go.Figure, axis: Axis) -> go.Figure:
    base = style.figure("", "")
    fig.update_layout(template="none", height=440, font=base.layout.font, paper_bgcolor="white", plot_bgcolor="white")
    fig.update_layout(legend={"orientation": "h", "x": 0.5, "y": 1.1}, margin={"l": 56, "r": 14, "t": 40, "b": 64})
    fig.update_xaxes(gridcolor=style.GRID, zeroline=False, linecolor=style.GRID)
    fig.update_yaxes(gridcolor=style.GRID, zeroline=False)
    names = [f"{name.replace(', ', ',<br>')}" for name, _, _ in METHODS.values()]
    fig.update_xaxes(tickvals=[0, 1, 2], ticktext=names, showgrid=False, range=[-0.5, 2.5], row=1, col=1)
    fig.update_yaxes(title={"text": "hypervolume (open: reported, filled: true)", "font": {"size": 13}}, row=1, col=1)
    fig.update_xaxes(title={"text": axis.title, "font": {"size": 13}}, row=1, col=2)
    if axis is AXES["compute"]:
        fig.update_xaxes(type="log", row=1, col=2)
    else:
        fig.update_xaxes(tickformat=".0%", row=1, col=2)
    return fig.update_yaxes(title={"text": "true error, %", "font": {"size": 13}}, row=1, col=2)

"""Published against ours: the share of SAM's gain over SGD that each schedule keeps, in the paper and here."""

from dataclasses import dataclass

import plotly.graph_objects as go
from figures import GROUPS, Rows, group_of, share_of_gain

from rst_tune.analysis import labels, published
from rst_tune.analysis.published import PublishedRow
from rst_tune.report.figures import style

__all__ = ["Gain", "figure", "gains"]


@dataclass(frozen=True, kw_only=True)
class Gain:
    """One published cell and our configuration with the same schedule: 0 is SGD's error, 1 is SAM's."""

    table: str
    label: str
    group: str
    theirs: float
    ours: float


def gains(rows: Rows) -> list[Gain]:
    """Return every published cell whose schedule was trained here; suspect cells and the baselines are left out."""
    found = []
    for pair in published.beside([row for row in published.results() if not row.suspect], rows):
        group, theirs = group_of(pair.ours), _published_gain(pair.published)
        if group is not None and theirs is not None:
            cell = pair.published
            label = f"{cell.model}, {cell.dataset}: {labels.schedule_text(pair.ours.config)}"
            ours = share_of_gain(pair.ours.error_mean, rows)
            found.append(Gain(table=cell.table, label=label, group=group, theirs=theirs, ours=ours))
    return found


def _published_gain(row: PublishedRow) -> float | None:
    """Return the share of SAM's gain of a published cell, by the SGD and SAM of the same model and data."""
    same = [r for r in published.results() if _setting(r) == _setting(row) and not r.suspect]
    base = next((r.error_mean for r in same if r.is_base), None)
    sam = next((r.error_mean for r in same if r.schedule == {"family": "constant", "p": 1.0} and r.rule == "sam"), None)
    if base is None or sam is None or base <= sam:
        return None
    return (base - row.error_mean) / (base - sam)


def _setting(row: PublishedRow) -> tuple[str, str, str, str]:
    return row.model, row.dataset, row.augmentation, row.metric


def figure(found: list[Gain]) -> go.Figure:
    """Draw the shares against each other, with the line where they are equal."""
    fig = style.figure("published share of SAM's gain", "our share of SAM's gain (digits)", height=480)
    fig.update_layout(paper_bgcolor="white", plot_bgcolor="white", margin={"t": 20})
    fig.update_layout(legend={"orientation": "v", "x": 1.01, "y": 1, "yanchor": "top"})
    low, high = min(g.theirs for g in found) - 0.05, max(g.theirs for g in found) + 0.05
    line = {"color": style.GREY, "dash": "dash", "width": 1.2}
    fig.add_scatter(x=[low, high], y=[low, high], mode="lines", line=line, name="equal")
    for name, (color, symbol) in GROUPS.items():
        own = [g for g in found if g.group == name]
        if own:
            marker = {"color": color, "symbol": symbol, "size": 9}
            xs, ys = [g.theirs for g in own], [g.ours for g in own]
            fig.add_scatter(x=xs, y=ys, mode="markers", name=name, marker=marker, text=[g.label for g in own])
    fig.update_yaxes(range=[min(g.ours for g in found) - 0.1, max(g.ours for g in found) + 0.2])
    return fig.update_layout(xaxis_tickformat=".0%", yaxis_tickformat=".0%")

"""Ascent rules: their figure, names and order, and the pairs that they spend."""

from statistics import fmean

import plotly.graph_objects as go
from claims import Rows, sgd
from figures import BARS, wide

from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.records import Search
from rst_tune.report.figures import style
from rst_tune.report.figures.style import BLUE, GREY, INK, ORANGE, RED, SKY

__all__ = ["MIXES", "figure", "mix_of", "realized", "rule_name", "rule_order"]

RULE_NAMES = {"sam": "SAM", "asam": "ASAM", "gsam": "GSAM", "looksam": "LookSAM(5)", "esam": "ESAM", "ssam": "SSAM"}
# (p, G-RST): name, colour, symbol.
MIXES: dict[tuple[float, bool], tuple[str, str, str]] = {
    (1.0, False): ("alone", INK, "circle"),
    (0.75, False): ("RST 75 %", SKY, "triangle-up-open"),
    (0.75, True): ("G-RST 75 %", BLUE, "triangle-up"),
    (0.5, False): ("RST 50 %", ORANGE, "diamond-open"),
    (0.5, True): ("G-RST 50 %", RED, "diamond"),
}


def rule_name(row: ConfigSummary) -> str:
    """Return the name of the ascent rule, with its radius where it is not the recipe's."""
    name = RULE_NAMES[row.config.rule]
    return f"{name}, ρ {row.config.rho:g}" if "rho" in row.config.params else name


def mix_of(row: ConfigSummary) -> tuple[float, bool]:
    """Return the probability of a constant schedule and whether gamma is above 1."""
    return float(row.config.schedule["p"]), row.config.gamma_gnr > 1.0


def figure(rows: Rows) -> go.Figure:
    """Draw the error of every rule alone, with RST and with G-RST, one line per rule."""
    used = [r for r in rows if not r.config.is_base]
    names = list(dict.fromkeys(rule_name(r) for r in sorted(used, key=rule_order)))
    fig = wide("validation error, %", "", 460)
    for offset, (mix, (title, color, symbol)) in enumerate(MIXES.items()):
        members = sorted((r for r in used if mix_of(r) == mix), key=lambda r: names.index(rule_name(r)))
        fig.add_scatter(
            x=style.rounded([r.error_mean for r in members]),
            y=[len(names) - 1 - names.index(rule_name(r)) + 0.26 - 0.13 * offset for r in members], mode="markers",
            error_x={"type": "data", "array": style.rounded([r.error_sem for r in members]), **BARS},
            marker={"color": color, "symbol": symbol, "size": 10}, name=title,
        )  # fmt: skip
    fig.add_vline(x=sgd(rows).error_mean, line={"color": GREY, "dash": "dash"}, annotation_text="SGD")
    fig.update_yaxes(
        tickvals=list(range(len(names))), ticktext=names[::-1], showgrid=False, range=[-0.5, len(names) - 0.5]
    )
    for edge in range(1, len(names)):
        fig.add_hline(y=edge - 0.5, line={"color": style.GRID, "width": 1})
    return fig


def rule_order(row: ConfigSummary) -> tuple[int, float, int]:
    """Return the sort key of a configuration in the table: rule, radius, scheme."""
    return list(RULE_NAMES).index(row.config.rule), row.config.rho, list(MIXES).index(mix_of(row))


def realized(search: Search, row: ConfigSummary) -> float:
    """Return the extra pairs per step that were spent."""
    trials = search.by_config()[row.config_id]
    return fmean(t.pairs for t in trials) / (search.header.steps_per_epoch * trials[0].epochs) - 1

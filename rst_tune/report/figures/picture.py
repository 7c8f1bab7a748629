"""A figure of lines and markers as a PNG, without a browser: Matplotlib draws what the Plotly figure says."""

import html
import io
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from rst_tune.files import atomic_file
from rst_tune.report.figures.style import GREY

PIXEL = 0.75
"""A CSS pixel in points."""
MARKERS = {
    "circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "triangle-down": "v", "star": "*", "cross": "P",
}  # fmt: skip
LINES = {"dash": "--", "dot": ":", "dashdot": "-.", "longdash": (0, (8, 3)), "longdashdot": (0, (8, 3, 1, 3))}


def write_picture(figure: go.Figure, path: Path, *, width: int = 900, scale: float = 1.5) -> Path:
    """Write a figure of scatter traces as a PNG of `scale` times its size and return its path."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    layout = figure.layout
    # No pyplot: it keeps every figure, and is not for threads.
    picture = Figure(figsize=(width / 96, (layout.height or 460) / 96), dpi=96 * scale, layout="constrained")
    canvas, axes = FigureCanvasAgg(picture), picture.add_subplot()
    for trace in figure.data:
        _draw_trace(axes, trace)
    for name in ("x", "y"):
        _set_axis(axes, name, layout[f"{name}axis"])
    axes.grid(color=layout.xaxis.gridcolor, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.axis("on" if figure.data else "off")
    for note in layout.annotations:
        place, where = (0.5, 0.5), "axes fraction"
        if note.x is not None:
            place, where = (10**note.x if layout.xaxis.type == "log" else note.x, note.y), "data"
        shift = (PIXEL * (note.xshift or 0), PIXEL * (note.yshift or 0))
        side: dict[str, Any] = {"ha": note.xanchor if note.xanchor in ("left", "right") else "center", "va": "center"}
        text = html.unescape(note.text)
        _plain(axes.annotate(text, place, shift, xycoords=where, textcoords="offset points", **side))
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        ordered = handles[::-1] if layout.legend.traceorder == "reversed" else handles
        look = {"loc": "outside upper left", "ncols": 6, "frameon": False, "fontsize": 9, "columnspacing": 1.2}
        for entry in picture.legend(handles=ordered, **look).get_texts():
            _plain(entry)
    with io.BytesIO() as buffer, atomic_file(path) as file:
        canvas.print_png(buffer)
        file.write(buffer.getvalue())
    return path


def _draw_trace(axes: Any, trace: go.Scatter) -> None:
    line, marker = trace.line, trace.marker
    color = marker.color or line.color or GREY
    name = marker.symbol or "circle"
    style: dict[str, Any] = {"color": color, "alpha": marker.opacity or trace.opacity}
    if "lines" in trace.mode:
        style |= {"color": line.color, "linewidth": PIXEL * (line.width or 2), "linestyle": LINES.get(line.dash, "-")}
        style["drawstyle"] = "steps-post" if line.shape == "hv" else "default"
    else:
        style["linestyle"] = "none"
    if "markers" in trace.mode:
        filled = "none" if name.endswith("-open") else color
        style |= {"marker": MARKERS[name.removesuffix("-open")], "markersize": PIXEL * (marker.size or 6)}
        style |= {"markerfacecolor": filled, "markeredgewidth": PIXEL * (marker.line.width or 1)}
    label = None if trace.showlegend is False else html.unescape(trace.name or "")
    # What is missing leaves a gap.
    xs, ys = ([float("nan") if v is None else v for v in values] for values in (trace.x, trace.y))
    sems = None if trace.error_y.array is None else [v or 0.0 for v in trace.error_y.array]
    axes.errorbar(xs, ys, yerr=sems, ecolor=trace.error_y.color, elinewidth=1, capsize=2, label=label or None, **style)


def _set_axis(axes: Any, name: str, layout: Any) -> None:
    from matplotlib.ticker import NullLocator, PercentFormatter

    axis, logarithmic = getattr(axes, f"{name}axis"), layout.type == "log"
    if logarithmic:
        axes.set(**{f"{name}scale": "log"})
        axis.set_minor_locator(NullLocator())
    if layout.tickvals is not None:
        axis.set_ticks(list(layout.tickvals), labels=layout.ticktext)
    elif layout.tickformat == ".0%":
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    if layout.range is not None:
        axes.set(**{f"{name}lim": [10**end if logarithmic else end for end in layout.range]})
    _plain(axis.set_label_text(html.unescape(layout.title.text or ""), fontsize=10))
    axis.set_tick_params(length=0, labelsize=9)


def _plain(text: Any) -> None:
    """Draw a text as it is: a name with two dollar signs is no formula."""
    text.set_parse_math(False)

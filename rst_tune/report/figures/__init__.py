"""Figures: plain data in, a Plotly figure out. The page, MLflow, a notebook and a PNG all use the same builders."""

from rst_tune.report.figures.attainment import attainment
from rst_tune.report.figures.course import hypervolume, rungs, timeline
from rst_tune.report.figures.front import compare, front
from rst_tune.report.figures.picture import to_html, write_png
from rst_tune.report.figures.space import importances, landscape, parallel, schedule, schedules

__all__ = [
    "attainment",
    "compare",
    "front",
    "hypervolume",
    "importances",
    "landscape",
    "parallel",
    "rungs",
    "schedule",
    "schedules",
    "timeline",
    "to_html",
    "write_png",
]

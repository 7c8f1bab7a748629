"""Figures: plain data in, a Plotly figure out. The page, MLflow and PNG files use the same builders."""

from rst_tune.report.figures.attainment import attainment
from rst_tune.report.figures.front import compare, front
from rst_tune.report.figures.picture import write_picture
from rst_tune.report.figures.search_figures import hypervolume, rungs, running, timeline
from rst_tune.report.figures.space import importances, landscape, parallel, schedule

__all__ = [
    "attainment", "compare", "front", "hypervolume", "importances", "landscape", "parallel", "rungs", "running",
    "schedule", "timeline", "write_picture",
]  # fmt: skip

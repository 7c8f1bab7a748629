"""p(t): the paper's families, combinators, the exact mean, and schedules with a given mean. Uses the stdlib only.

>>> constant(0.5).extra_propagation(100)
0.5
>>> with_mean("ramp-up", 0.25, 100).extra_propagation(100)
0.25
"""

from rst_tune.method.schedules.base import FAMILIES, Schedule
from rst_tune.method.schedules.combinators import Interpolate, Warmup
from rst_tune.method.schedules.families import (
    Constant,
    Cos1,
    Cos2,
    Linear,
    LinearGroup1,
    LinearGroup2,
    Piecewise,
    Sin1,
    Sin2,
)
from rst_tune.method.schedules.means import MEAN_FAMILIES, with_mean
from rst_tune.method.schedules.text import from_dict, parse

__all__ = [
    "FAMILIES",
    "MEAN_FAMILIES",
    "Schedule",
    "constant",
    "cos1",
    "cos2",
    "from_dict",
    "interpolate",
    "linear",
    "linear_group1",
    "linear_group2",
    "parse",
    "piecewise",
    "sin1",
    "sin2",
    "warmup",
    "with_mean",
]

# Lower-case names, equal to the registered ones, so that schedules read as functions.
constant, piecewise = Constant, Piecewise
linear, linear_group1, linear_group2 = Linear, LinearGroup1, LinearGroup2
cos1, cos2, sin1, sin2 = Cos1, Cos2, Sin1, Sin2
warmup, interpolate = Warmup, Interpolate

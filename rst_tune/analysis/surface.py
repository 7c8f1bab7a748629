"""The posterior error over compute and gamma around one configuration, for a map."""

from dataclasses import replace
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from rst_tune.analysis.analysis import Analysis
from rst_tune.records import TrialConfig

Array = NDArray[np.float64]

COLUMNS, ROWS = 24, 20
MIN_MEAN = 0.05  # of p(t); with less the training is nearly the base optimizer


def error_surface(analysis: Analysis) -> tuple[Array, Array, Array] | None:
    """Return values of compute, values of gamma_rst, and the errors with one row per gamma.

    Everything but the mean of p(t) and gamma is that of the recommended configuration, or, where that has no ascents
    that cost anything, of the most accurate point of the front that has. The shape of p(t) is held, so the effect is
    proportional to gamma_rst, and the strain to gamma_rst over the square root of the mean. None without a surrogate
    or such a point.
    """
    points = [p.config for p in (analysis.recommended, *reversed(analysis.points)) if p is not None]
    config = next((c for c in points if _varies(c)), None)
    if analysis.surrogate is None or config is None:
        return None
    mean = config.gamma_rst / config.gamma_gnr
    means = np.linspace(MIN_MEAN, 1.0, COLUMNS)
    tried = [t.config.gamma_rst for t in analysis.search.finished() if _varies(t.config)]
    gammas = np.geomspace(min(tried), max(max(tried), 1.01 * min(tried)), ROWS)
    times = analysis.search.header.times
    variants = [_variant(config, c / mean, g / config.gamma_rst).timed(times) for g in gammas for c in means]
    computes = np.array([variant.compute for variant in variants[:COLUMNS]])
    return computes, gammas, analysis.surrogate.errors(variants).reshape(ROWS, COLUMNS)


def _varies(config: TrialConfig) -> bool:
    numbers = (config.gamma_rst, config.gamma_gnr, config.extra_propagation, config.effect)
    return all(isfinite(number) and number > 0 for number in numbers)


def _variant(config: TrialConfig, mean: float, gamma: float) -> TrialConfig:
    """Return the configuration with the mean of p(t) and gamma_rst multiplied by these factors."""
    return replace(
        config,
        extra_propagation=config.extra_propagation * mean,
        gamma_rst=config.gamma_rst * gamma,
        gamma_gnr=config.gamma_gnr * gamma / mean,
        effect=config.effect * gamma,
        strain=config.strain * gamma / mean**0.5,
    )

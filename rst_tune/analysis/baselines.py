"""The base optimizer at several lengths ("just train longer") and SAM, and how a configuration compares with them.

A difference is called better or worse when its 95 % interval excludes 0. Value and interval are those of the joint
posterior of the two errors: most of the noise of trainings on one seed is common to them, and a configuration that was
chosen because it looked good is shrunk towards its neighbours. With one seed on either side there is no interval, and
the verdict is "one seed".
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import Literal

import numpy as np

from rst_tune.analysis.replicates import ConfigSummary, sample_errors
from rst_tune.analysis.surrogate import Surrogate
from rst_tune.records import COST_WORDS, PERCENT_ERROR, Metric

Rows = tuple[ConfigSummary, ...]
Words = Literal["better", "worse", "not distinguishable", "one seed"]

# Two trainings within this many octaves of compute count as equally expensive.
EQUAL = 0.25


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The error of a configuration minus that of a baseline, with its 95 % interval; below 0 it is better."""

    baseline: ConfigSummary
    value: float
    low: float | None
    high: float | None

    @property
    def verdict(self) -> Words:
        """What the interval supports."""
        if self.low is None or self.high is None:
            return "one seed"
        return "better" if self.high < 0 else "worse" if self.low > 0 else "not distinguishable"


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """The baselines among the summaries of a search. `curve` is the base optimizer at all its lengths, by compute."""

    rows: Rows
    surrogate: Surrogate | None
    metric: Metric = PERCENT_ERROR

    @property
    def noun(self) -> str:
        """The name of the cost: compute or time."""
        return COST_WORDS[self.rows[0].config.cost if self.rows else "compute"].noun

    @property
    def curve(self) -> Rows:
        """The base optimizer, the most replicated summary of each length."""
        lengths: dict[float, ConfigSummary] = {}
        for row in sorted((r for r in self.rows if r.config.is_base), key=lambda r: (r.config.horizon, -r.seeds)):
            lengths.setdefault(row.config.horizon, row)
        return tuple(lengths.values())

    @property
    def base(self) -> ConfigSummary | None:
        """The base optimizer at the recipe's length."""
        return next((row for row in self.curve if row.config.is_recipe), None)

    @property
    def sam(self) -> ConfigSummary | None:
        """SAM at the recipe's length: at the recipe's radius where that was trained, else the most replicated one."""
        found = [row for row in self.rows if row.config.is_sam]
        return max(found, key=lambda r: ("rho" not in r.config.params, r.seeds), default=None)

    @property
    def best_base(self) -> ConfigSummary | None:
        """The base optimizer at its best length: the cheapest within one standard error of its lowest posterior error.

        A length with one seed counts: where the budget ended before its replicates, it may still be the best one.
        """
        best = min(self.curve, key=lambda r: r.error_posterior, default=None)
        if best is None:
            return None
        limit = best.error_posterior + (best.error_sem or 0.0)
        return min((row for row in self.curve if row.error_posterior <= limit), key=lambda r: r.compute)

    @property
    def comparable(self) -> bool:
        """Whether both the base optimizer and something else were trained."""
        return bool(self.curve) and len(self.rows) > sum(row.config.is_base for row in self.rows)

    def covers(self, compute: float) -> bool:
        """Return whether the base optimizer was trained for about this compute or more."""
        return compute <= self.curve[-1].compute * 2**EQUAL

    def base_at(self, compute: float) -> ConfigSummary | None:
        """Return the base optimizer at about this compute, as measured; None where no length is near."""
        near = self._nearest(compute) if self.curve else None
        return near if near is not None and abs(log2(near.compute / compute)) <= EQUAL else None

    def predicted_base(self, compute: float) -> float | None:
        """Return the base optimizer's posterior error at this compute, between its measured lengths; else None."""
        if self.surrogate is None or not self.curve:
            return None
        if not self.curve[0].compute <= compute <= self.curve[-1].compute:
            return None
        return float(self.surrogate.errors([replace(self.curve[0].config, horizon=compute)])[0])

    def difference(self, point: ConfigSummary, baseline: ConfigSummary) -> Difference:
        """Return the difference of two summaries (see the module)."""
        value, low, high = point.error_posterior - baseline.error_posterior, None, None
        replicated = min(point.seeds_total, baseline.seeds_total) > 1
        samples = sample_errors([point, baseline], self.surrogate) if replicated else None
        if samples is not None:
            low, high = (float(end) for end in np.quantile(samples[0] - samples[1], [0.025, 0.975]))
        return Difference(baseline=baseline, value=value, low=low, high=high)

    def base_error(self, compute: float) -> float:
        """Return the lowest error that the base optimizer is expected to give for at most this compute.

        Between its trained lengths it is interpolated in logarithms; the predicted error counts where it is lower.
        """
        computes, errors = np.array([(row.compute, row.error_posterior or 1e-3) for row in self.curve]).T
        between = float(np.exp(np.interp(np.log(compute), np.log(computes), np.log(errors))))
        predicted = self.predicted_base(compute)
        cheaper = [float(error) for error in errors[computes <= compute]]
        return min([between, *cheaper, *([] if predicted is None else [predicted])])

    def gains(self, points: Sequence[ConfigSummary]) -> Rows:
        """Return the points with less error than the base optimizer of any length that costs no more.

        A point with replicates must be better in the sense of the interval, one without by its posterior error.
        """
        return tuple(p for p in points if not p.config.is_base and (not self.curve or self._is_gain(p)))

    def _is_gain(self, point: ConfigSummary) -> bool:
        """Return whether the point is better than the best length that costs no more, or about as much."""
        cheaper = [row for row in self.curve if row.compute <= point.compute * 2**EQUAL]
        rival = min(cheaper, key=lambda row: row.error_posterior, default=None) or self._nearest(point.compute)
        found, error = self.difference(point, rival), self.base_error(point.compute)
        if found.high is None:
            return point.error_posterior < error
        # The interval of the trained length, moved to the error that is expected at the point's own compute.
        return found.high + max(rival.error_posterior - error, 0.0) < 0

    def _nearest(self, compute: float) -> ConfigSummary:
        return min(self.curve, key=lambda row: abs(log2(row.compute / compute)))

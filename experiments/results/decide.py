"""Seeds until it is decided: intervals that stay valid under repeated looks, and the verdicts that follow from them.

A contrast is looked at after 8, 16, 32 and 64 seeds. The error probability of 5 % is spent over the looks (Bonferroni
spending); at each look the interval is Student's at what is spent there, a repeated confidence interval (Jennison and
Turnbull, 1984). By the union bound all intervals of a contrast together cover its mean with at least 95 % for normal
differences, so stopping at any of them is valid. Where single trainings fail, differences are too skewed for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean, stdev
from typing import Literal

from scipy import stats

__all__ = [
    "EQUIVALENT",
    "LOOKS",
    "NOT_REPRODUCED",
    "REPRODUCED",
    "Decision",
    "Kind",
    "decide",
    "interval",
    "is_skewed",
    "quantile",
]

LOOKS = {8: 0.005, 16: 0.01, 32: 0.015, 64: 0.02}
MAX_SKEW = 1.5  # the simulated coverage is 95 % up to about half of it
REPRODUCED, NOT_REPRODUCED, EQUIVALENT = "reproduced", "not reproduced", "equivalent within the margin"
Kind = Literal["less", "more", "not worse"]


@dataclass(frozen=True)
class Decision:
    """A verdict with the effect, its interval at the last look, and the number of seeds that it took.

    `skewed` says that single trainings dominate, so that the interval covers less than it claims.
    """

    verdict: str | None
    effect: float
    low: float
    high: float
    seeds: int
    skewed: bool
    needed: int = 0

    @property
    def text(self) -> str:
        """The verdict, or the estimated number of seeds that it would take."""
        return self.verdict or f"undecided after {self.seeds} seeds; about {self.needed:,} would decide"


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return mean, low and high at a look, which is the number of values."""
    center, half = fmean(values), quantile(len(values)) * stdev(values) / len(values) ** 0.5
    return center, center - half, center + half


def quantile(look: int) -> float:
    """Return Student's quantile for what is spent at a look."""
    return float(stats.t.ppf(1 - LOOKS[look] / 2, look - 1))


def decide(differences: Sequence[float], kind: Kind, margin: float) -> Decision | None:
    """Return the decision at the first look that decides, else at the last one; None before the first look.

    `kind` is the claim about the mean: below 0, above 0, or at most `margin`.
    """
    decision = None
    for look in LOOKS:
        if look > len(differences):
            break
        seen = differences[:look]
        effect, low, high = interval(seen)
        verdict = judge(low, high, kind, margin)
        needed = 0 if verdict else _needed(seen, kind, margin)
        decision = Decision(verdict, effect, low, high, look, is_skewed(seen), needed)
        if verdict:
            break
    return decision


def is_skewed(values: Sequence[float]) -> bool:
    """Return whether the sample is too skewed for Student's interval."""
    return bool(abs(stats.skew(values)) > MAX_SKEW)


def judge(low: float, high: float, kind: Kind, margin: float) -> str | None:
    """Return the verdict of an interval; None while it is open."""
    if kind == "more":
        low, high = -high, -low
    if kind == "not worse":
        return REPRODUCED if high < margin else NOT_REPRODUCED if low > 0 else None
    if high < 0:
        return REPRODUCED
    if low > 0:
        return NOT_REPRODUCED
    return EQUIVALENT if -margin < low and high < margin else None


def _needed(values: Sequence[float], kind: Kind, margin: float) -> int:
    """Return the look that would decide at this mean and deviation, or the seeds beyond the last one."""
    effect, spread = fmean(values), stdev(values)
    distance = max(effect, margin - effect) if kind == "not worse" else max(abs(effect), margin - abs(effect))
    for look in LOOKS:
        if look > len(values) and quantile(look) * spread < distance * look**0.5:
            return look
    return max(max(LOOKS) + 1, ceil((quantile(max(LOOKS)) * spread / max(distance, 1e-9)) ** 2))

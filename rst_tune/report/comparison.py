"""Two or more searches against each other, as plain data: hypervolume with intervals, and what each cost buys."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rst_tune.analysis import fronts, noise, pareto
from rst_tune.analysis.fronts import Front
from rst_tune.analysis.noise import ConfigSummary
from rst_tune.analysis.records import Search
from rst_tune.errors import InputError

__all__ = ["Cell", "Comparison", "Entry", "Level", "compare", "drawn_fronts"]

LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
DRAWS = 400


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One search: its front, and its hypervolume against the reference all of them share."""

    name: str
    front: Front
    hypervolume: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The lowest error a search reaches within a cost, and the difference to the first search."""

    error: float | None
    sem: float | None
    difference: float | None = None
    half_width: float | None = None


@dataclass(frozen=True, kw_only=True)
class Level:
    """One cost, and a cell for every search."""

    extra_propagation: float
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Searches beside each other; differences are against the first."""

    entries: tuple[Entry, ...]
    reference: tuple[float, float] | None
    by_cost: tuple[Level, ...]


def compare(searches: Mapping[str, Search]) -> Comparison:
    """Return the comparison of named searches; the reference is the worst of theirs, so that it bounds them all."""
    if len(searches) < 2:
        raise InputError(f"a comparison needs two searches, but got {len(searches)}: name another directory")
    found = {name: fronts.delivered(search) for name, search in searches.items()}
    references = [front.reference for front in found.values() if front.reference]
    reference = (max(r[0] for r in references), max(r[1] for r in references)) if references else None
    entries = tuple(_entry(name, front, reference) for name, front in found.items())
    levels = tuple(_level(list(found.values()), cost) for cost in LEVELS)
    filled = tuple(level for level in levels if any(cell.error is not None for cell in level.cells))
    return Comparison(entries=entries, reference=reference, by_cost=filled)


def _entry(name: str, front: Front, reference: tuple[float, float] | None) -> Entry:
    if reference is None or not front.points:
        return Entry(name=name, front=front, hypervolume=None, interval=None)
    volume = pareto.hypervolume([(p.error_mean, p.extra_propagation) for p in front.points], reference)
    drawn = [pareto.hypervolume(points, reference) for points in drawn_fronts(front.points)]
    low, high = np.quantile(drawn, [0.05, 0.95]) if drawn else (math.nan, math.nan)
    return Entry(name=name, front=front, hypervolume=volume, interval=(float(low), float(high)) if drawn else None)


def drawn_fronts(points: Sequence[ConfigSummary], count: int = DRAWS) -> list[np.ndarray]:
    """Return the points (error, cost) as they might truly be, drawn from what the seeds say; none without seeds."""
    belief = noise.beliefs_of(points)
    if belief is None:
        return []
    costs = np.array([p.extra_propagation for p in points])
    return [np.column_stack([errors, costs]) for errors in belief.draws(count).T]


def _level(found: Sequence[Front], cost: float) -> Level:
    best = [_best(front.points, cost) for front in found]
    return Level(extra_propagation=cost, cells=tuple(_cell(point, best[0]) for point in best))


def _best(points: Sequence[ConfigSummary], cost: float) -> ConfigSummary | None:
    affordable = [p for p in points if p.extra_propagation <= cost + 1e-9]
    return min(affordable, key=lambda p: p.error_mean, default=None)


def _cell(point: ConfigSummary | None, first: ConfigSummary | None) -> Cell:
    if point is None:
        return Cell(error=None, sem=None)
    if first is None or first is point:
        return Cell(error=point.error_mean, sem=point.error_sem)
    known = point.error_sem is not None and first.error_sem is not None
    half = 1.96 * math.hypot(point.error_sem or 0.0, first.error_sem or 0.0) if known else None
    gap = point.error_mean - first.error_mean
    return Cell(error=point.error_mean, sem=point.error_sem, difference=gap, half_width=half)

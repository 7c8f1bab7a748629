"""Two or more searches against each other: hypervolume with intervals, attainment, best error at each cost.

The intervals come from draws of the joint belief of each search's delivered front, so they hold the noise between
seeds and nothing else: not what another run of the same search would have drawn. A front of single runs has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rst_tune.analysis import pareto
from rst_tune.analysis.fronts import Front, delivered
from rst_tune.analysis.noise import beliefs_about
from rst_tune.analysis.records import Search
from rst_tune.errors import InputError

__all__ = ["Comparison", "CostDifference", "Entry", "compare"]

Array = NDArray[np.float64]

DRAWS = 1000
SURFACES = 25
COSTS = tuple(round(0.1 * k, 1) for k in range(11))


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One search: its front, and its hypervolume against the common reference with a 95 % interval."""

    name: str
    front: Front
    hypervolume: float
    low: float | None
    high: float | None
    pairs: float


@dataclass(frozen=True, kw_only=True)
class CostDifference:
    """The best error of one search at most at `cost`, minus that of the first search; below 0 it is better."""

    name: str
    cost: float
    difference: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All searches against the first. `attainment` maps a name to rectangles where it or the first attains more.

    A rectangle is (error from, cost from, error to, cost to, difference); a positive difference is the first's.
    """

    reference: tuple[float, float] | None
    entries: tuple[Entry, ...]
    differences: tuple[CostDifference, ...]
    attainment: dict[str, Array]
    caveats: tuple[str, ...]


def compare(searches: Sequence[Search], names: Sequence[str] | None = None) -> Comparison:
    """Compare searches; the first is the one the others are held against."""
    if len(searches) < 2:
        raise InputError(f"a comparison needs two searches, but {len(searches)} was given: name another one")
    names = _unique(names or [search.directory.name or str(search.directory) for search in searches])
    fronts = [delivered(search) for search in searches]
    references = [front.reference for front in fronts if front.reference]
    # The farthest corner, so that no search loses points to another one's reference.
    reference = (max(r[0] for r in references), max(r[1] for r in references)) if references else None
    samples = [_sampled(front) for front in fronts]
    entries = [
        _entry(name, front, sample, search.pairs, reference)
        for name, front, sample, search in zip(names, fronts, samples, searches, strict=True)
    ]
    others = [(n, f, s) for n, f, s in zip(names[1:], fronts[1:], samples[1:], strict=True) if f.points]
    first = (fronts[0], samples[0])
    return Comparison(
        reference=reference,
        entries=tuple(entries),
        differences=tuple(d for n, f, s in others if first[0].points for d in _per_cost(n, first, (f, s))),
        attainment={n: _attainment(first, (f, s)) for n, f, s in others if first[0].points},
        caveats=tuple(_caveats(names, fronts, searches)),
    )


def _unique(names: Sequence[str]) -> list[str]:
    return [f"{name} ({k + 1})" if list(names).count(name) > 1 else name for k, name in enumerate(names)]


def _costs(front: Front) -> Array:
    return np.array([point.extra_propagation for point in front.points])


def _means(front: Front) -> Array:
    return np.array([point.error_expected for point in front.points])


def _sampled(front: Front) -> Array | None:
    """Return draws of the front's true errors, (points, draws); None where the noise is unknown."""
    belief = beliefs_about(front.points, front.summaries)
    return None if belief is None else belief.draws(DRAWS)


def _entry(name: str, front: Front, sample: Array | None, pairs: float, reference: tuple[float, float] | None) -> Entry:
    cost = _costs(front)
    value = pareto.hypervolume(np.column_stack([_means(front), cost]), reference) if reference and len(cost) else 0.0
    low = high = None
    if sample is not None and reference:
        areas = [pareto.hypervolume(np.column_stack([errors, cost]), reference) for errors in sample.T]
        low, high = (float(q) for q in np.quantile(areas, [0.025, 0.975]))
    return Entry(name=name, front=front, hypervolume=value, low=low, high=high, pairs=pairs)


Side = tuple[Front, Array | None]


def _best(errors: Array, costs: Array, cost: float) -> Array:
    """Return the lowest error at most at `cost`, along the first axis; infinite where nothing is that cheap."""
    able = costs <= cost + 1e-9
    return np.asarray(np.min(errors[able], axis=0)) if able.any() else np.full(errors.shape[1:], np.inf)


def _per_cost(name: str, first: Side, other: Side) -> list[CostDifference]:
    rows = []
    for cost in COSTS:
        mine, theirs = (float(_best(_means(f), _costs(f), cost)) for f, _ in (other, first))
        if not np.isfinite([mine, theirs]).all():
            continue
        low = high = None
        if other[1] is not None and first[1] is not None:
            # The two searches' draws are independent, so one is reversed.
            gap = _best(other[1], _costs(other[0]), cost) - _best(first[1], _costs(first[0]), cost)[::-1]
            low, high = (float(q) for q in np.quantile(gap, [0.025, 0.975]))
        rows.append(CostDifference(name=name, cost=cost, difference=mine - theirs, low=low, high=high))
    return rows


def _attainment(first: Side, other: Side) -> Array:
    return pareto.attainment_difference(_surfaces(first), _surfaces(other), intervals=SURFACES)


def _surfaces(side: Side) -> list[Array]:
    """Return equally many fronts for each side: draws where there are any, else the one front again and again."""
    front, sample = side
    columns = [_means(front)] * SURFACES if sample is None else list(sample.T[:SURFACES])
    return [np.column_stack([errors, _costs(front)]) for errors in columns]


def _caveats(names: Sequence[str], fronts: Sequence[Front], searches: Sequence[Search]) -> list[str]:
    notes = []
    for name, front in zip(names, fronts, strict=True):
        notes += [f"{name}: {note}" for note in front.caveats]
    tasks = {repr(dict(search.header).get("experiment", {}).get("task")) for search in searches}
    if len(tasks) > 1:
        notes.append("the searches have different tasks: their errors are not of one kind")
    return notes

"""Two or more searches against each other: hypervolume with intervals, attainment, best error at equal compute.

The intervals come from samples of the joint posterior of each delivered front. They cover the noise between seeds and
nothing else: not what another run of the same search would have sampled. A front of single runs has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rst_tune.analysis import pareto
from rst_tune.analysis.analysis import Analysis
from rst_tune.analysis.replicates import sample_errors
from rst_tune.errors import InputError

Array = NDArray[np.float64]

SAMPLES = 1000
SURFACES = 25


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One search: its analysis, and its hypervolume against the common reference with a 95 % interval."""

    name: str
    analysis: Analysis
    hypervolume: float
    low: float | None
    high: float | None
    pairs: float


@dataclass(frozen=True, kw_only=True)
class CostDifference:
    """The lowest error of one search at most at a compute of `cost`, minus that of the first; below 0 it is better."""

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


@dataclass(frozen=True)
class _Front:
    """A delivered front as arrays."""

    analysis: Analysis

    @cached_property
    def costs(self) -> Array:
        return np.array([point.compute for point in self.analysis.points])

    @cached_property
    def errors(self) -> Array:
        return np.array([point.error_posterior for point in self.analysis.points])

    @cached_property
    def samples(self) -> Array | None:
        """Samples of the true errors, (points, samples); None where the noise is unknown."""
        noisy = any(row.seeds_total > 1 for row in self.analysis.summaries)
        return sample_errors(self.analysis.points, self.analysis.surrogate, SAMPLES) if noisy else None

    def lowest(self, errors: Array, cost: float) -> Array:
        """Return the lowest error at most at `cost`, along the first axis; infinite where nothing is that cheap."""
        able = self.costs <= cost + 1e-9
        return np.asarray(np.min(errors[able], axis=0)) if able.any() else np.full(errors.shape[1:], np.inf)

    def surfaces(self) -> list[Array]:
        """Return `SURFACES` fronts: samples where there are any, else copies of the one front."""
        columns = [self.errors] * SURFACES if self.samples is None else list(self.samples.T[:SURFACES])
        return [np.column_stack([errors, self.costs]) for errors in columns]


def compare(analyses: Sequence[Analysis], names: Sequence[str] | None = None) -> Comparison:
    """Compare searches with the first of them."""
    if len(analyses) < 2:
        raise InputError(f"a comparison needs two searches, but {len(analyses)} was given: name another one")
    if len(costs := {analysis.search.cost for analysis in analyses}) > 1:
        raise InputError(f"searches are compared over one cost, but theirs are {', '.join(sorted(costs))}: give --cost")
    given = list(names or [str(a.search.directory.name or a.search.directory) for a in analyses])
    unique = [f"{name} ({k + 1})" if given.count(name) > 1 else name for k, name in enumerate(given)]
    references = [analysis.reference for analysis in analyses if analysis.reference]
    # The farthest corner, so that no search loses points to the reference of another one.
    reference = (max(r[0] for r in references), max(r[1] for r in references)) if references else None
    first, *others = [_Front(analysis) for analysis in analyses]
    known = [(n, f) for n, f in zip(unique[1:], others, strict=True) if f.analysis.points and first.analysis.points]
    caveats = [f"{name}: {note}" for name, analysis in zip(unique, analyses, strict=True) for note in analysis.caveats]
    tasks = {repr(analysis.search.header.experiment.get("task")) for analysis in analyses}
    different = ["the searches have different tasks: their errors are not comparable"] if len(tasks) > 1 else []
    return Comparison(
        reference=reference,
        entries=tuple(_entry(n, f, reference) for n, f in zip(unique, (first, *others), strict=True)),
        differences=tuple(row for name, front in known for row in _differences(name, first, front)),
        attainment={n: pareto.attainment_difference(first.surfaces(), f.surfaces(), SURFACES) for n, f in known},
        caveats=(*caveats, *different),
    )


def _entry(name: str, front: _Front, reference: tuple[float, float] | None) -> Entry:
    value, low, high = 0.0, None, None
    if reference is not None:
        value = pareto.hypervolume(np.column_stack([front.errors, front.costs]), reference)
        if front.samples is not None:
            columns = front.samples.T
            areas = [pareto.hypervolume(np.column_stack([errors, front.costs]), reference) for errors in columns]
            low, high = _interval(areas)
    pairs = front.analysis.search.pairs
    return Entry(name=name, analysis=front.analysis, hypervolume=value, low=low, high=high, pairs=pairs)


def _interval(values: Sequence[float] | Array) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def _differences(name: str, first: _Front, other: _Front) -> list[CostDifference]:
    rows = []
    for cost in _steps(first, other):
        difference = float(other.lowest(other.errors, cost)) - float(first.lowest(first.errors, cost))
        if not np.isfinite(difference):
            continue
        low = high = None
        if other.samples is not None and first.samples is not None:
            # The samples of two searches are independent but made with one seed, so one side is reversed.
            low, high = _interval(other.lowest(other.samples, cost) - first.lowest(first.samples, cost)[::-1])
        rows.append(CostDifference(name=name, cost=cost, difference=difference, low=low, high=high))
    return rows


def _steps(first: _Front, other: _Front) -> list[float]:
    """Return the values of compute at which two searches are compared: tenths at one length, else half octaves."""
    costs = np.concatenate([first.costs, other.costs])
    if costs.min() >= 1.0 and costs.max() <= 2.0:
        return [round(1 + 0.1 * k, 1) for k in range(11)]
    low, high = np.floor(2 * np.log2(costs.min())), np.ceil(2 * np.log2(costs.max()))
    return [float(f"{2.0 ** (k / 2):.3g}") for k in np.arange(low, high + 1)]

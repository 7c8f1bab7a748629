"""Fronts against brute force, and the cases where there is little or nothing to compare."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rst_tune.analysis import pareto
from rst_tune.analysis.analysis import analyze
from rst_tune.records import load
from tests.analysis.builders import runs, search_of, trial
from tests.analysis.synthetic import write_search

GRID = st.integers(0, 8).map(lambda k: k / 4)
COMPUTE = st.integers(0, 8).map(lambda k: 2.0 ** (k / 4))
POINTS = st.lists(st.tuples(GRID, COMPUTE), min_size=1, max_size=12)
REFERENCE = (2.5, 2.0**2.25)


def dominated(point, points):
    return any(q[0] <= point[0] and q[1] <= point[1] and q != point for q in points)


def brute_area(points):
    """Count the cells of a quarter and a quarter octave below the reference that some point covers."""
    xs = np.arange(0, REFERENCE[0], 0.25)
    ys = np.arange(0, 2.25, 0.25)
    return sum(any(e <= x and np.log2(c) <= y + 1e-9 for e, c in points) for x in xs for y in ys) * 0.0625


@given(POINTS)
@settings(deadline=None)
def test_front_is_what_nothing_dominates(points):
    assert pareto.nondominated(points).tolist() == [not dominated(p, points) for p in points]


@given(POINTS)
@settings(deadline=None)
def test_hypervolume_is_the_covered_area(points):
    assert pareto.hypervolume(points, REFERENCE) == pytest.approx(brute_area(points))


@given(POINTS)
@settings(deadline=None)
def test_contribution_is_what_the_front_loses_without_the_point(points):
    members = [p for p, m in zip(points, pareto.nondominated(points), strict=True) if m]
    for point, value in zip(points, pareto.contributions(points, REFERENCE), strict=True):
        without = list(members)
        if point in without:
            without.remove(point)
        assert value == pytest.approx(brute_area(members) - brute_area(without))


def test_points_that_are_not_finite_are_on_no_front():
    points = [[np.nan, 1.0], [3.0, 2**0.5], [np.inf, 1.1], [4.0, np.nan]]
    assert pareto.nondominated(points).tolist() == [False, True, False, False]
    assert pareto.hypervolume(points, (4.0, 2.0)) == pytest.approx(0.5)
    assert pareto.contributions(points, (4.0, 2.0)).tolist() == pytest.approx([0.0, 0.5, 0.0, 0.0])


def test_nothing_gives_nothing():
    assert pareto.nondominated([]).tolist() == []
    assert pareto.hypervolume([], (1.0, 1.0)) == 0.0
    assert pareto.contributions([], (1.0, 1.0)).tolist() == []
    assert pareto.knee([]) is None


@pytest.mark.parametrize(
    ("points", "index"),
    [
        ([[5.0, 1.0], [4.9, 1.5], [3.0, 1.6], [2.9, 2.0]], 2),
        ([[5.0, 1.0], [4.9, 0.25], [2.8, 0.5], [2.7, 4.0]], 2),
        ([[5.0, 1.0], [3.0, 2.0]], 1),
        ([[3.0, 1.5], [3.0, 1.2]], 1),
        ([[np.nan, 1.0], [7.0, 1.3]], 1),
    ],
)
def test_knee(points, index):
    assert pareto.knee(points) == index


def test_attainment_difference_has_the_sign_of_the_better_side():
    left, right = [[[1.0, 0.0]]] * 4, [[[2.0, 0.0]]] * 4
    rectangles = pareto.attainment_difference(left, right, intervals=4)
    assert rectangles.tolist() == [[1.0, 0.0, 2.0, np.inf, 4.0]]
    assert pareto.attainment_difference(right, left, intervals=4)[0, -1] == -4.0
    assert pareto.attainment_difference(left, left).shape == (0, 5)


@given(POINTS)
@settings(deadline=None)
def test_a_front_point_by_point_is_the_front_of_all(points):
    front = pareto.IncrementalFront()
    for error, cost in points:
        before = front.points
        assert front.add(error=error, cost=cost) == (front.points != before)
    members = {p for p, m in zip(points, pareto.nondominated(points), strict=True) if m}
    assert front.points == sorted(members, key=lambda p: p[1])
    for cost in (0.5, 1.0, 2.0, 4.0):
        assert front.lowest_error(cost) == min((e for e, c in points if c <= cost), default=None)


def brute_history(search, errors):
    """The hypervolume after each time at which something ended, from scratch."""
    reference, values, points = pareto.reference_point(search), {}, []
    for one in sorted((t for t in search.trials if t.ended_at), key=lambda t: t.ended_at):
        if one.finished:
            points.append((errors[one.config_id], one.compute))
        values[one.ended_at] = pareto.hypervolume(points, reference)
    return values


def test_history_equals_recomputing_from_scratch(tmp_path):
    search = load(write_search(tmp_path, trials=40))
    errors = {row.config_id: row.error_mean for row in analyze(search).summaries}
    history = pareto.hypervolume_history(search, errors)
    for time, expected in brute_history(search, errors).items():
        known = [value for at, _, value in history if at <= time]
        assert (known[-1] if known else 0.0) == pytest.approx(expected)
    assert history[-1][1] == pytest.approx(search.pairs)


def test_history_never_falls_and_ends_with_the_delivered_front(tmp_path):
    found = analyze(load(write_search(tmp_path, trials=40)))
    values = [value for _, _, value in found.hypervolume_history]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(found.hypervolume)


def test_history_without_a_surrogate_counts_what_may_be_on_the_front(tmp_path):
    search = search_of([replace(trial(0.4, 0, 2.5), ended_at=1.0)], tmp_path, "confirm")
    found = analyze(search)
    assert found.surrogate is None
    assert found.hypervolume_history[-1][2] == pytest.approx(found.hypervolume)


def test_reference_is_the_recorded_one_else_derived_from_the_base_runs(tmp_path):
    search = load(write_search(tmp_path, trials=10))
    assert pareto.reference_point(search) == (4.6, 2.2)
    derived = pareto.reference_point(replace(search, reference=None))
    base = np.mean([t.error for t in search.finished() if t.extra_propagation == 0])
    assert derived == (pytest.approx(1.1 * base), pareto.reference_compute(1.0))
    assert pareto.reference_point(replace(search, reference=None, trials=())) is None


def test_reference_without_base_runs_comes_from_the_first_finished_trial():
    trials = [trial(0.5, 0, None, status="failed"), *runs(0.5, [4.0, 5.0]), *runs(1.0, [3.0])]
    assert pareto.reference_point(search_of(trials)) == (pytest.approx(4.4), pareto.reference_compute(1.0))


def test_the_reference_comes_from_the_recipes_length_whichever_ends_first():
    short, recipe, long = (trial(0.0, 0, e, horizon=h) for h, e in ((0.25, 6.0), (1.0, 12.0), (2.0, 18.0)))
    for order in ([short, recipe, long], [long, short, recipe]):
        assert pareto.reference_point(search_of(order)) == (pytest.approx(13.2), pareto.reference_compute(2.0))

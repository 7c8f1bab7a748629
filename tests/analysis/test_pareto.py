"""Fronts against brute force, and the cases where there is little or nothing to compare."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import write_search

from rst_tune.analysis import fronts, pareto, records

GRID = st.integers(0, 8).map(lambda k: k / 4)
POINTS = st.lists(st.tuples(GRID, GRID), min_size=1, max_size=12)
REFERENCE = (2.5, 2.25)


def dominated(point, points):
    return any(q[0] <= point[0] and q[1] <= point[1] and q != point for q in points)


def brute_area(points):
    """Count the quarter cells below the reference that some point covers."""
    xs = np.arange(0, REFERENCE[0], 0.25)
    ys = np.arange(0, REFERENCE[1], 0.25)
    return sum(any(e <= x and c <= y for e, c in points) for x in xs for y in ys) * 0.0625


@given(POINTS)
def test_front_is_what_nothing_dominates(points):
    assert pareto.front(points).tolist() == [not dominated(p, points) for p in points]


@given(POINTS)
def test_hypervolume_is_the_covered_area(points):
    assert pareto.hypervolume(points, REFERENCE) == pytest.approx(brute_area(points))


@given(POINTS)
def test_contribution_is_what_the_front_loses_without_the_point(points):
    members = [p for p, m in zip(points, pareto.front(points), strict=True) if m]
    for point, value in zip(points, pareto.contributions(points, REFERENCE), strict=True):
        without = list(members)
        if point in without:
            without.remove(point)
        assert value == pytest.approx(brute_area(members) - brute_area(without))


@given(POINTS, POINTS)
def test_epsilon_is_the_least_shift_that_covers_the_target(points, target):
    expected = max(min(max(p[0] - t[0], p[1] - t[1]) for p in points) for t in target)
    assert pareto.epsilon(points, target) == pytest.approx(expected)


@given(POINTS, POINTS)
def test_igd_plus_is_the_mean_shortfall(points, target):
    short = [min(np.hypot(max(p[0] - t[0], 0), max(p[1] - t[1], 0)) for p in points) for t in target]
    assert pareto.igd_plus(points, target) == pytest.approx(np.mean(short))


def test_points_that_are_not_finite_are_on_no_front():
    points = [[np.nan, 0.0], [3.0, 0.5], [np.inf, 0.1], [4.0, np.nan]]
    assert pareto.front(points).tolist() == [False, True, False, False]
    assert pareto.hypervolume(points, (4.0, 1.0)) == pytest.approx(0.5)
    assert pareto.contributions(points, (4.0, 1.0)).tolist() == [0.0, 0.5, 0.0, 0.0]


def test_nothing_gives_nothing():
    assert pareto.front([]).tolist() == []
    assert pareto.hypervolume([], (1.0, 1.0)) == 0.0
    assert pareto.contributions([], (1.0, 1.0)).tolist() == []
    assert pareto.knee([]) is None


@pytest.mark.parametrize(
    ("points", "index"),
    [
        ([[5.0, 0.0], [4.9, 0.5], [3.0, 0.6], [2.9, 1.0]], 2),
        ([[5.0, 0.0], [3.0, 1.0]], 1),
        ([[3.0, 0.5], [3.0, 0.2]], 1),
        ([[np.nan, 0.0], [7.0, 0.3]], 1),
    ],
)
def test_knee(points, index):
    assert pareto.knee(points) == index


def test_attainment_is_reached_by_that_share_of_the_fronts():
    fronts = [[[4.0, 0.0]], [[3.0, 0.0]], [[2.0, 0.0]], [[1.0, 0.0]]]
    surfaces = pareto.attainment(fronts, (25, 50, 100))
    assert {p: s[:, 0].tolist() for p, s in surfaces.items()} == {25: [1.0], 50: [2.0], 100: [4.0]}


def test_attainment_difference_has_the_sign_of_the_better_side():
    left, right = [[[1.0, 0.0]]] * 4, [[[2.0, 0.0]]] * 4
    rectangles = pareto.attainment_difference(left, right, intervals=4)
    assert rectangles.tolist() == [[1.0, 0.0, 2.0, np.inf, 4.0]]
    assert pareto.attainment_difference(right, left, intervals=4)[0, -1] == -4.0
    assert pareto.attainment_difference(left, left).shape == (0, 5)


def brute_history(search):
    """The hypervolume after each time at which something ended, from scratch."""
    reference, values, groups = pareto.reference_of(search), {}, {}
    for trial in sorted((t for t in search.trials if t.ended), key=lambda t: t.ended):
        if trial.finished:
            groups.setdefault(trial.config_id, []).append(trial)
        means = [(np.mean([t.error for t in records.counted(g)]), g[0].extra_propagation) for g in groups.values()]
        values[trial.ended] = pareto.hypervolume(means, reference)
    return values


def test_history_equals_recomputing_from_scratch(tmp_path):
    search = records.load(write_search(tmp_path, trials=40))
    history = pareto.hypervolume_history(search)
    for time, expected in brute_history(search).items():
        known = [value for at, _, value in history if at <= time]
        assert (known[-1] if known else 0.0) == pytest.approx(expected)
    assert history[-1][1] == pytest.approx(search.pairs)


def test_history_of_what_is_believed_never_falls_and_ends_with_the_delivered_front(tmp_path):
    search = records.load(write_search(tmp_path, trials=40))
    front = fronts.delivered(search)
    history = pareto.hypervolume_history(search, {row.config_id: row.error_expected for row in front.summaries})
    values = [value for _, _, value in history]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(front.hypervolume)


def test_reference_is_the_recorded_one_else_derived_from_the_base_runs(tmp_path):
    search = records.load(write_search(tmp_path, trials=10))
    assert pareto.reference_of(search) == (4.6, 1.1)
    derived = pareto.reference_of(replace(search, reference=None))
    base = np.mean([t.error for t in search.finished() if t.extra_propagation == 0])
    assert derived[0] > base
    assert derived[1] == pareto.COST_REFERENCE
    assert pareto.reference_of(replace(search, reference=None, trials=())) is None

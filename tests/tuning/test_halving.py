from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rst_tune.analysis.pareto import IncrementalFront
from rst_tune.analysis.rungs import RungRegression
from rst_tune.errors import InputError
from rst_tune.tuning import halving
from rst_tune.tuning.experiment import Stopping, load_experiment
from rst_tune.tuning.halving import Decision, RungTable, make_stopper, pareto_order, pareto_place
from tests.tuning.simulated import World, experiment, misleading, pairs_of, simulate, telling, true_hypervolume

RUNG = (3, 9)
STOPPERS = get_args(Stopping.model_fields["name"].annotation)

points_of = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30)


def decide(stopper: str, table: RungTable, key: str) -> Decision:
    """Return what a stopper as an experiment names it decides at epoch 3."""
    return make_stopper(Stopping(name=stopper), 3).decide(table, key, RUNG)


def goes_on(stopper: str, rung: np.ndarray, newcomer: tuple[float, float]) -> bool:
    table = RungTable()
    for i, (error, cost) in enumerate(rung):
        table.add(f"old{i}", RUNG, error, cost)
    table.add("new", RUNG, *newcomer)
    return not decide(stopper, table, "new").stop


def random_rung(rng: np.random.Generator) -> np.ndarray:
    """Errors that fall with the cost, and much that is no good: as in a search."""
    count = int(rng.integers(12, 60))
    cost = rng.uniform(0.05, 1.0, count)
    return np.column_stack([5 + 4 * np.exp(-3 * cost) + rng.exponential(2.0, count), cost])


def is_dominated(rung: np.ndarray, point: tuple[float, float]) -> bool:
    return bool(np.any(np.all(rung <= point, axis=1)))


def test_pareto_asha_keeps_the_nondominated_and_stops_the_dominated_and_asha_loses_the_cheap_end():
    rng = np.random.default_rng(0)
    kept: dict[str, list[bool]] = {name: [] for name in ("front", "dominated", "deep", "cheap", "cheap asha")}
    for _ in range(2000):
        rung = random_rung(rng)
        newcomer = tuple(random_rung(rng)[0])
        decision = goes_on("pareto-asha", rung, newcomer)
        kept["dominated" if is_dominated(rung, newcomer) else "front"].append(decision)
        if np.mean(np.all(rung <= newcomer, axis=1)) > 0.2:  # a fifth of the rung is better in both
            kept["deep"].append(decision)
        cheapest = (9.0 + rng.exponential(1.0), 0.01)
        kept["cheap"].append(goes_on("pareto-asha", rung, cheapest))
        kept["cheap asha"].append(goes_on("asha", rung, cheapest))
    chance = {name: float(np.mean(decisions)) for name, decisions in kept.items()}
    assert chance["front"] > 0.94, chance  # the rest is cut where the front fills more than a third of the rung
    assert chance["dominated"] < 0.15, chance
    assert chance["deep"] < 0.01, chance
    assert chance["cheap"] == 1.0, chance
    assert chance["cheap asha"] < 0.15, chance


@given(points_of)
@settings(max_examples=60, deadline=None)
def test_the_place_of_a_point_is_its_place_in_the_order(points):
    array = np.unique(np.array(points, dtype=float), axis=0)
    order = pareto_order(array)
    places = [pareto_place(array, row) for row in range(len(array))]
    assert [places[row] for row in order] == sorted(places)
    assert all(place <= 1 + list(order).index(row) for row, place in enumerate(places))


@given(points_of)
@settings(max_examples=60, deadline=None)
def test_the_incremental_front_has_the_lowest_error_at_no_more_than_a_cost(points):
    front = IncrementalFront()
    for cost, error in points:
        front.add(error=error, cost=cost)
    for cost in range(10):
        cheaper = [e for c, e in points if c <= cost]
        assert front.lowest_error(cost) == (min(cheaper) if cheaper else None)


def test_the_regression_is_least_squares_of_logarithms():
    rng = np.random.default_rng(1)
    regression, rows = RungRegression(), []
    for _ in range(40):
        rung, cost = float(rng.uniform(5, 50)), float(rng.uniform(0, 1))
        log_final = 0.9 * np.log(rung) - 0.5 * cost + 0.1 * float(rng.normal())
        regression.add(rung, cost, float(np.exp(log_final)))
        rows.append((1.0, np.log(rung), cost, log_final))
    table = np.array(rows)
    weights = np.linalg.lstsq(table[:, :3], table[:, 3], rcond=None)[0]
    assert regression.expected(20.0, 0.5) == pytest.approx(np.exp([1.0, np.log(20.0), 0.5] @ weights))
    assert regression.correlation() == pytest.approx(1.0, abs=0.2)


def fed(finals: list[tuple[float, float, float]]) -> RungTable:
    table = RungTable()
    for i, (rung, final, cost) in enumerate(finals):
        table.add(f"done{i}", RUNG, rung, cost)
        table.finish(f"done{i}", final, cost)
    return table


def test_the_correlation_of_each_rung_is_known_once_it_can_be():
    table = fed([(10.0 - i, 5.0 + i, 0.5) for i in range(8)])
    table.add("new", (6, 9), 3.0, 0.5)
    assert table.correlations() == {1: None, 3: pytest.approx(-1.0)}


def test_an_unknown_stopper_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'pareto-asha'"):
        load_experiment("digits", ["stopping.name=pareto_asha"])


def outcome(stopper: str, world: World, seed: int) -> tuple[float, float]:
    trials = ("budget={trials: 80}", "sampler.name=random", "confirm.enabled=false")
    search = simulate(experiment(f"stopping.name={stopper}", f"seed={seed}", *trials), world, workers=2)
    return true_hypervolume(search, world), pairs_of(search.trials)


@pytest.mark.parametrize("seed", range(3))
def test_rungs_that_mislead_cost_asha_much(seed):
    world = World(rung=misleading)
    full, asha = (outcome(name, world, seed)[0] for name in ("none", "asha"))
    assert asha < 0.9 * full


@pytest.mark.parametrize("seed", range(3))
def test_pareto_asha_saves_half_of_the_pairs_where_rungs_tell(seed):
    world = World(rung=telling)
    full, halved = (outcome(name, world, seed) for name in ("none", "pareto-asha"))
    assert halved[1] <= 0.5 * full[1]
    assert halved[0] >= 0.9 * full[0]


def test_every_stopper_is_documented():
    assert set(STOPPERS) == {"pareto-asha", "asha", "none"}
    assert all(f"`{name}`" in (halving.__doc__ or "") for name in STOPPERS)


@pytest.mark.parametrize("name", STOPPERS)
def test_every_stopper_is_a_class_of_its_own_with_the_settings_of_the_experiment(name: str):
    stopper = make_stopper(Stopping(name=name), 4)
    kinds = {"pareto-asha": halving.ParetoAsha, "asha": halving.Asha}
    assert type(stopper) is kinds.get(name, halving.NoStopping)
    assert getattr(stopper, "reduction_factor", 4) == 4

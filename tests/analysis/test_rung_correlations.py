import dataclasses

from rst_tune.analysis.records import Search, Trial
from rst_tune.analysis.rungs import rung_correlations


def trial(number: int, early: float, final: float | None) -> Trial:
    return Trial(
        key=str(number), number=number, role="search", config_id=f"c{number}", config={"extra_propagation": 0.5},
        seed=0, epochs=9, full=True, drawn=0.0, error=final, rungs={3: early},
        status="complete" if final is not None else "stopped",
    )  # fmt: skip


def search(trials, tmp_path) -> Search:
    return Search(directory=tmp_path, header={}, trials=tuple(trials))


def test_a_rung_that_ranks_backwards_has_correlation_minus_one(tmp_path):
    (found,) = rung_correlations(search([trial(i, 10.0 + i, 9.0 - i) for i in range(6)], tmp_path))
    assert (found.epoch, found.trials) == (3, 6)
    assert found.correlation == -1.0
    assert str(found) == "epoch 3: -1.00 (6 trials)"


def test_stopped_trials_say_nothing_and_few_are_not_enough(tmp_path):
    few = [trial(i, 10.0 + i, 5.0 + i) for i in range(4)] + [trial(9, 80.0, None)]
    (found,) = rung_correlations(search(few, tmp_path))
    assert (found.trials, found.correlation) == (4, None)


def test_a_short_training_of_the_same_configuration_and_seed_is_a_rung_too(tmp_path):
    short = [dataclasses.replace(trial(i, 10.0 + i, 10.0 + i), key=f"s{i}", full=False, epochs=3) for i in range(6)]
    whole = [dataclasses.replace(trial(i, 0.0, 5.0 + i), rungs={}) for i in range(6)]
    (found,) = rung_correlations(search(short + whole, tmp_path))
    assert found.correlation == 1.0

"""Which configurations are replicated, and what is reserved for it."""

from dataclasses import replace

import pytest

from rst_tune.records import Role, Status, Trial, TrialConfig
from rst_tune.tuning.confirmation import Confirmation, spread_points
from rst_tune.tuning.experiment import Confirm
from rst_tune.tuning.model import SearchModel

REFERENCE = (14.0, 2.2)


def trial(name, cost, error, **changes):
    schedule = {"family": "constant", "p": cost}
    config = TrialConfig(
        family="constant", schedule=schedule, extra_propagation=cost, gamma_gnr=1.0, gamma_rst=cost, rho=0.1,
        effect=cost, strain=cost**0.5,
    )  # fmt: skip
    about = {"key": name, "number": 0, "role": Role.SEARCH, "config_id": name, "config": config, "seed": 0, "epochs": 1}
    about |= {"full_horizon": True, "sampled_at": 0.0, "ended_at": 1.0, "pairs": 1.0}
    return Trial(**(about | {"status": Status.COMPLETE, "error": error} | changes))


BASE, SAM = trial("base", 0.0, 12.0), trial("sam", 1.0, 9.0)
CROWD = [trial(f"around-{i}", 0.5 + i / 100, 6.0 + i / 100) for i in range(8)]
CHEAP = trial("cheap", 0.1, 8.0)


def confirmation(trials, **settings):
    model = SearchModel()
    for one in trials:
        model.observe(one)
    return Confirmation(Confirm(**settings), {"base": BASE.config, "sam": SAM.config}, model)


def replicate(one, seed):
    return trial(one.config_id, one.extra_propagation, one.error, role=Role.CONFIRM, seed=1000 + seed)


def test_a_few_points_hold_most_of_the_front_and_the_baselines_of_the_answer_come_after_them():
    due = confirmation([BASE, SAM, CHEAP, *CROWD])
    names = due.chosen(REFERENCE)
    assert len([name for name in names if name.startswith("around")]) == 1, "its neighbours add nothing"
    assert {"cheap", "base", "sam"} <= set(names)
    assert names[-1] == "sam", "dominated, but the answer compares with it"
    assert [due.missing(n) for n in names if n in ("base", "sam")] == [2, 2], "their first seed was not selected"
    assert {due.missing(n) for n in names if n not in ("base", "sam")} == {3}


def test_of_the_base_optimizers_lengths_the_best_one_is_compared_with():
    short, long = (
        replace(trial(name, 0.0, error), config=replace(BASE.config, horizon=length))
        for name, error, length in (("short", 13.5, 0.2), ("long", 9.0, 2.0))
    )
    due = confirmation([BASE, SAM, CHEAP, *CROWD, short, long])
    due._baselines = {t.config_id: t.config for t in (BASE, SAM, short, long)}
    chosen = due.chosen((11.0, 1.6))
    assert chosen[-2:] == ["long", "sam"]
    assert not {"base", "short"} & set(chosen)


def test_only_what_finished_in_the_search_is_replicated():
    stopped = trial("stopped", 0.1, 1.0, status=Status.STOPPED)
    assert confirmation([stopped, CROWD[0]]).chosen(None) == ["around-0"]
    assert confirmation([stopped]).chosen(None) == []


def test_the_reserve_is_the_compute_of_the_missing_replicates_and_shrinks_with_each():
    trials = [BASE, SAM, CHEAP, *CROWD]
    due = confirmation(trials)
    compute = {t.config_id: t.compute for t in trials}
    needed = sum(due.missing(name) * compute[name] for name in due.chosen(REFERENCE))
    assert due.reserve(REFERENCE) == pytest.approx(needed)
    before = due.reserve(REFERENCE)
    due.update(replicate(CHEAP, 0))
    assert due.reserve(REFERENCE) == pytest.approx(before - CHEAP.compute)
    due.update(replicate(CHEAP, 0))
    assert due.reserve(REFERENCE) == pytest.approx(before - CHEAP.compute), "one seed counts once"
    assert confirmation(trials, enabled=False).reserve(REFERENCE) == 0.0


def test_missing_seeds_come_first_then_the_fewest_and_nothing_beyond_the_most():
    due = confirmation([BASE, SAM, CHEAP, *CROWD], min_seeds=2, max_seeds=3)
    missing, given = {name: due.missing(name) for name in due.chosen(REFERENCE)}, []
    while (chosen := due.next(REFERENCE, running=())) is not None:
        given.append(chosen)
        due.update(trial(chosen, 0.0, 1.0, role=Role.CONFIRM, seed=1000 + due.seeds(chosen)))
    assert given[: sum(missing.values())] == [name for name, count in missing.items() for _ in range(count)]
    assert {given.count(name) for name in missing} == {3}


def test_beyond_the_least_a_configuration_is_trained_on_one_seed_at_a_time():
    due = confirmation([BASE, SAM, CHEAP, *CROWD], min_seeds=1, max_seeds=3)
    names = due.chosen(REFERENCE)
    for name in names:
        for seed in range(due.missing(name)):
            due.update(trial(name, 0.0, 1.0, role=Role.CONFIRM, seed=1000 + seed))
    assert due.next(REFERENCE, running=names) is None
    assert due.next(REFERENCE, running=names[1:]) == names[0]


def test_a_point_that_turns_out_worse_gives_way_to_the_next_one():
    lucky = [trial("lucky", 0.3, 4.5)]
    trials = [BASE, SAM, CHEAP, *CROWD, *lucky]
    assert "lucky" in set(confirmation(trials).chosen(REFERENCE))
    again = [trial("lucky", 0.3, 9.0, role=Role.CONFIRM, seed=1000 + k) for k in range(6)]
    again += [replicate(one, seed) for one in (CHEAP, CROWD[0]) for seed in range(6)]
    names = set(confirmation([*trials, *again]).chosen(REFERENCE))
    assert "lucky" not in names
    assert any(name.startswith("around") for name in names)


def test_spread_points_are_those_that_hold_most_of_the_hypervolume():
    front = [(10.0, 1.0), (6.0, 1.4), (5.99, 1.41), (4.0, 2.0), (20.0, 0.9), (9.0, 1.5)]
    assert sorted(spread_points(front, REFERENCE, 8)) == [0, 1, 3], "no point that adds next to nothing or is dominated"
    assert spread_points(front, REFERENCE, 1) == [1]
    assert spread_points(front, REFERENCE, 2)[0] == 1, "the most important first"
    assert spread_points([], REFERENCE, 3) == []
    assert spread_points([(50.0, 1.0)], REFERENCE, 3) == [], "nothing below the reference point"

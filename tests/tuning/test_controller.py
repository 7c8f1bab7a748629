"""The whole search without Ray: phases, budget, resumption, promotion, seeds, confirmation, and who is on a front."""

from collections import Counter
from pathlib import Path

import pytest
from optuna.storages import InMemoryStorage
from simulated import (
    STEPS,
    Killed,
    MemoryRecord,
    World,
    blind,
    conductor_of,
    drive,
    experiment,
    misleading,
    noise,
    pairs_of,
    simulate,
    telling,
)

from rst_tune.analysis import fronts
from rst_tune.analysis.records import Search, config_id
from rst_tune.tuning.conductor import CONFIRM_SEED, Conductor
from rst_tune.tuning.priors import SAM, SGD

SMALL = ("budget={trials: 14}", "confirm={seeds: 4, first: 2, candidates: 3}")


def phases(record: MemoryRecord) -> list[str]:
    return [event["name"] for event in record.events if event["event"] == "phase"]


def state(search: Search) -> list[tuple]:
    """Return what must not depend on interruptions: everything but times and places."""
    names = ("key", "role", "status", "error", "pairs", "rungs", "halted", "test_error", "seed", "epochs")
    return [tuple(getattr(t, name) for name in names) for t in search.trials]


def test_a_search_goes_through_its_phases_and_reads_the_test_set_last():
    record = MemoryRecord()
    search = drive(conductor_of(experiment(*SMALL), record), World(rung=telling), workers=2)
    assert phases(record) == ["confirm", "test", "done"]
    assert search.done
    kinds = [event["event"] for event in record.events]
    assert "test" not in kinds[: kinds.index("phase", kinds.index("phase") + 1)]
    tested = [t for t in search.trials if t.test_error is not None]
    assert tested == [t for t in search.trials if t.role == "confirm" and t.finished]
    assert min(t.seed for t in tested) >= CONFIRM_SEED


def test_the_ends_and_the_priors_come_first_and_the_ends_are_confirmed_whatever_they_score():
    search = simulate(experiment(*SMALL), World(rung=telling))
    drawn = [t for t in search.trials if t.role == "search"]
    assert [t.config_id for t in drawn[:2]] == [config_id(SGD), config_id(SAM)]
    assert [t.config["coordinates"].get("c") for t in drawn[2:5]] == [0.25, 0.1, 0.05]
    assert {config_id(SGD), config_id(SAM)} <= {t.config_id for t in search.trials if t.role == "confirm"}


@pytest.mark.parametrize("workers", [1, 4])
def test_every_pair_is_charged_and_the_budget_holds(workers):
    exp = experiment("budget={pairs: 6000}", "confirm={share: 0.4, first: 2, seeds: 4, candidates: 3}")
    conductor = conductor_of(exp, MemoryRecord())
    search = drive(conductor, World(rung=telling), workers=workers)
    assert conductor.spent() == pytest.approx(pairs_of(search.trials))
    assert any(t.status == "stopped" and t.pairs > 0 for t in search.trials)
    dearest = 9 * STEPS * 2
    searching = pairs_of(t for t in search.trials if t.role == "search")
    assert 3600 <= searching <= 3600 + workers * dearest
    assert pairs_of(search.trials) <= 6000 + workers * dearest


def test_a_budget_in_device_hours_counts_seconds_times_gpus():
    exp = experiment("budget={device_hours: 0.2}", "confirm.enabled=false", "resources.gpu=2")
    conductor = conductor_of(exp, MemoryRecord())
    search = drive(conductor, World(rung=telling), workers=2)
    assert conductor.spent() == pytest.approx(sum(t.seconds for t in search.trials) * 2 / 3600)
    assert 0.2 <= conductor.spent() < 0.25


TINY = ("budget={trials: 9}", "confirm={seeds: 3, first: 2, candidates: 2}")
CASES = {
    "prefix": (*TINY, "stopping={name: guarded, minimum: 3}"),
    "rescaled": (*TINY, "fidelity.kind=rescaled", "stopping={name: pareto-asha}"),
    "seeds": (*TINY, "seeds=2", "stopping={name: guarded, minimum: 3}"),
    "pairs": ("budget={pairs: 2500}", TINY[1]),
    "believing": ("budget={trials: 13}", TINY[1], "stopping.name=none"),  # enough finish for the sampler to believe
}


@pytest.fixture
def lasting_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the study's storage outlive the driver, without the time a file takes."""
    storage = InMemoryStorage()
    monkeypatch.setattr(
        "rst_tune.tuning.study._storage", lambda url, directory: storage if directory else InMemoryStorage()
    )


@pytest.mark.usefixtures("lasting_storage")
@pytest.mark.parametrize("writes", [True, False], ids=["killed-after-writing", "killed-before-writing"])
@pytest.mark.parametrize("case", CASES)
def test_killed_at_every_event_it_ends_as_if_undisturbed(case: str, writes: bool):
    """Each life writes that a worker took the trial and one event more; the next event is lost or the last."""
    exp, world = experiment(*CASES[case]), World(rung=telling)
    undisturbed = drive(conductor_of(exp, MemoryRecord()), world)
    events: list[dict] = []
    search = None
    while search is None and len(events) < 2000:
        record = MemoryRecord(events, lives=1 if writes else 2, writes=writes)
        try:
            search = drive(conductor_of(exp, record, Path("lasting")), world)
        except Killed:
            continue
    assert search is not None
    assert state(search) == state(undisturbed)
    assert search.reference == undisturbed.reference
    assert Counter(e["event"] for e in events)["end"] == len(undisturbed.trials)


@pytest.mark.usefixtures("lasting_storage")
def test_after_a_kill_with_many_workers_nothing_is_lost_and_nothing_is_done_twice():
    exp, world = experiment(*SMALL), World(rung=blind)
    events: list[dict] = []
    for lives in (17, 23, 31, None):
        try:
            search = drive(conductor_of(exp, MemoryRecord(events, lives=lives), Path("lasting")), world, workers=3)
        except Killed:
            continue
    ended = [event["key"] for event in events if event["event"] == "end"]
    assert len(ended) == len(set(ended)) == len(search.trials)
    assert len({t.config_id for t in search.trials if t.role == "search"}) == 14


def test_rescaled_promotes_whole_short_trainings_and_only_full_ones_are_finished():
    exp = experiment(*SMALL, "fidelity.kind=rescaled", "stopping.name=pareto-asha")
    search = simulate(exp, World(rung=telling))
    searching = [t for t in search.trials if t.role == "search"]
    by_epochs = Counter(t.epochs for t in searching)
    assert set(by_epochs) == {1, 3, 9}
    assert by_epochs[1] == 14 > by_epochs[3] > by_epochs[9] > 0
    assert all(t.status == "complete" for t in searching)
    assert all(t.finished == (t.epochs == 9) for t in searching)
    for trial in searching:
        if trial.epochs > 1:
            shorter = [t for t in searching if t.config_id == trial.config_id and t.epochs < trial.epochs]
            assert shorter
            assert not any(t.halted for t in shorter)


def test_the_guard_learns_from_rescaled_runs_too():
    exp = experiment("budget={trials: 60}", "fidelity.kind=rescaled", "confirm.enabled=false", "sampler.name=random")
    conductor = conductor_of(exp, MemoryRecord())
    search = drive(conductor, World(rung=telling))
    assert any(t.halted for t in search.trials)
    assert conductor.rungs.correlations()[3] == pytest.approx(1.0, abs=0.3)


def test_further_seeds_of_a_judged_search_are_trained_only_once_the_first_has_finished():
    exp = experiment("budget={trials: 40}", "seeds=3", "confirm.enabled=false", "sampler.name=random")
    search = simulate(exp, World(rung=telling), workers=3)
    for trials in {
        t.config_id: [s for s in search.trials if s.config_id == t.config_id] for t in search.trials
    }.values():
        assert len(trials) == (3 if trials[0].finished else 1)
        assert [t.seed for t in trials] == [trials[0].seed + k for k in range(len(trials))]
        assert not any(t.rungs for t in trials[1:])
    assert len({t.seed for t in search.trials}) == len(search.trials), "every configuration has its own seeds"
    assert any(t.status == "stopped" for t in search.trials)


def test_without_stopping_all_seeds_are_trained_at_once():
    exp = experiment("budget={trials: 5}", "seeds=3", "confirm.enabled=false", "stopping.name=none")
    search = simulate(exp, World(), workers=15)
    assert Counter(t.config_id for t in search.trials) == dict.fromkeys({t.config_id for t in search.trials}, 3)


def test_confirmation_settles_who_is_on_the_front():
    world = World(rung=telling, sd=0.05)
    search = simulate(experiment("budget={trials: 40}", "confirm={first: 2, seeds: 10, candidates: 6}"), world)
    front = fronts.delivered(search)
    seeds = Counter(t.config_id for t in search.trials if t.role == "confirm")
    confirmed = [row for row in front.summaries if row.seeds > 1]
    assert len(confirmed) == len(seeds) == 6
    for row in confirmed:
        assert row.seeds == seeds[row.config_id]
        assert row.p_nondominated >= 0.95 or row.p_nondominated <= 0.05 or row.seeds == 10
    assert sum(point.seeds > 1 for point in front.points) >= 3
    assert front.recommended.seeds > 1
    assert min(seeds.values()) < 10, "a settled candidate gets no further seeds"


@pytest.mark.parametrize("stopper", ["asha", "pareto-asha", "guarded"])
@pytest.mark.parametrize("kind", ["prefix", "rescaled"])
def test_a_front_never_contains_a_trial_that_was_not_trained_to_its_full_horizon(stopper: str, kind: str):
    """The rungs look far better than any end: whatever were told half-trained would be the whole front."""

    def tempting(world, config, seed, share):
        return 0.1 + 0.05 * abs(noise(config["schedule"], seed, share))

    exp = experiment(f"stopping={{name: {stopper}, minimum: 3}}", f"fidelity.kind={kind}", "budget={trials: 60}")
    record = MemoryRecord()
    conductor = conductor_of(exp, record)
    search = drive(conductor, World(rung=tempting), workers=4)
    halted = [t for t in search.trials if t.halted]
    if stopper != "guarded":
        assert len(halted) > 30, "this scheduler stops most trials"
    finished = {t.config_id for t in search.trials if t.finished}
    horizon = exp.task.recipe.epochs
    assert all(t.epochs == horizon and t.status == "complete" for t in search.trials if t.finished)
    front = fronts.delivered(search)
    assert front.points
    assert {p.config_id for p in front.points} <= finished
    assert min(p.error_mean for p in front.points) > 1.0
    told = conductor._study.study.best_trials
    assert told
    assert {t.user_attrs["config_id"] for t in told} <= finished


def test_diverged_failed_and_out_of_memory_trials_are_charged_and_never_on_a_front():
    fates = {0: "complete", 1: "diverged", 2: "failed"}

    def fate(config, seed):
        return fates[int(config["extra_propagation"] * 100) % 3] if 0 < config["extra_propagation"] < 1 else "complete"

    conductor = conductor_of(experiment(*SMALL), MemoryRecord())
    search = drive(conductor, World(fate=fate), workers=2)
    assert {t.status for t in search.trials} >= {"complete", "diverged", "failed"}
    assert all(t.pairs > 0 for t in search.trials)
    good = {t.config_id for t in search.trials if t.status == "complete"}
    assert {p.config_id for p in fronts.delivered(search).points} <= good


def test_a_small_space_that_is_drawn_out_ends_the_search_and_is_confirmed():
    space = "space={coordinates: cost, families: [constant], extra_propagation: [0.5, 1.0], gamma_rst: [0.5, 1.0]}"
    exp = experiment("budget={pairs: 100000}", space, "confirm={first: 2, seeds: 3, candidates: 3}")
    search = simulate(exp, World())
    assert len({t.config_id for t in search.trials if t.role == "search"}) == 6
    assert search.done
    assert any(t.role == "confirm" for t in search.trials)


def test_the_correlations_of_the_rungs_are_in_the_record():
    record = MemoryRecord()
    drive(
        conductor_of(experiment("budget={trials: 30}", "stopping.name=none", "confirm.enabled=false"), record),
        World(rung=misleading),
    )
    [end] = [e for e in record.events if e["event"] == "phase"]
    assert end["rung_correlations"][3] < -0.5


def test_concurrent_bounds_what_is_out():
    conductor: Conductor = conductor_of(experiment(*SMALL, "resources.concurrent=2"), MemoryRecord())
    assert conductor.next_plan() is not None
    assert conductor.next_plan() is not None
    assert conductor.next_plan() is None
    assert conductor.running == 2

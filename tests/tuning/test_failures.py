"""Trials that fail or get lost, as the search records, charges and retries them; and the reference point."""

from pathlib import Path

import pytest
from optuna.storages import InMemoryStorage

from rst_tune.analysis.pareto import derive_reference
from rst_tune.records import Event, Search, Status, TrialEnded, TrialStarted, config_id
from rst_tune.tuning.backend.protocol import TrialReport, TrialTask
from rst_tune.tuning.backend.simulator import InMemoryLog
from rst_tune.tuning.controller import MAX_FAILURES_IN_A_ROW, SearchController, SearchFailedError
from rst_tune.tuning.points import SGD
from rst_tune.tuning.space import TaskScale, trial_config
from tests.tuning.simulated import STEPS, DyingLog, Killed, World, controller_of, drive, experiment, simulate, telling

LASTING = Path("lasting")
# As many random samples as there may be failures in a row: with the surrogate, proposals depend on what finished.
SMALL = ("budget={trials: 7}", "confirm={max_seeds: 2, min_seeds: 2, candidates: 2}", "sampler.n_startup_trials=5")
PAIRS = ("budget={pairs: 2500}", SMALL[1])
FREE = "reference_point={compute: 2.2}"  # no error is given: it comes from the search
REASON = "RuntimeError: mat1 and mat2 shapes cannot be multiplied"


@pytest.fixture(autouse=True)
def _lasting_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the study's storage outlive the driver."""
    storage = InMemoryStorage()
    monkeypatch.setattr(
        "rst_tune.tuning.study._storage", lambda url, directory: storage if directory else InMemoryStorage()
    )


def started(controller: SearchController) -> TrialTask:
    task = controller.next_task()
    assert isinstance(task, TrialTask)
    controller.on_trial_start(task.key, node="n1")
    return task


def fail(config, seed) -> Status:
    return Status.FAILED


def results(search: Search) -> list[tuple]:
    return [(t.key, t.role, t.status, t.error, t.pairs, t.test_error) for t in search.trials]


def test_an_error_in_training_is_recorded_with_its_message_and_what_it_spent_is_charged():
    controller = controller_of(experiment(*PAIRS), InMemoryLog())
    task = started(controller)
    report = TrialReport(key=task.key, status=Status.FAILED, epoch=3, error=9.0, pairs=45.0, seconds=4.5, reason=REASON)
    assert not controller.on_report(report)
    [trial] = controller.search().trials
    assert (trial.status, trial.reason, trial.error) == (Status.FAILED, REASON, None)
    assert (trial.pairs, trial.seconds, controller.spent) == (45.0, 4.5, 45.0)
    assert controller.running == 0


def test_a_lost_worker_is_recorded_charged_and_trained_again_on_resume():
    exp, events = experiment(*PAIRS), []
    controller = controller_of(exp, InMemoryLog(events), LASTING)
    task = started(controller)
    assert controller.on_report(TrialReport(key=task.key, status=Status.RUNNING, epoch=2, error=30.0, pairs=20.0))
    controller.on_trial_lost(task.key, "the node died")
    [trial] = controller.search().trials
    assert (trial.status, trial.reason, trial.pairs) == (Status.LOST, "the node died", 20.0)
    assert controller.spent == 20.0
    assert not controller.on_report(TrialReport(key=task.key, status=Status.COMPLETE, error=1.0)), "it has ended"

    resumed = controller_of(exp, InMemoryLog(events), LASTING)
    assert resumed.spent == 0.0, "what it has spent is counted when it ends, with the rest of its training"
    assert started(resumed) == task
    assert resumed.search().trials[0].status is Status.RUNNING
    again = controller_of(exp, InMemoryLog(events), LASTING)
    search = drive(again, World(rung=telling))
    assert search.done
    assert results(search) == results(simulate(exp, World(rung=telling)))
    assert again.spent == pytest.approx(search.pairs)


@pytest.mark.parametrize("sampler", ["front", "tpe"])
def test_a_search_in_which_everything_failed_raises_and_a_resume_ends_as_if_undisturbed(sampler: str):
    exp, events = experiment(*SMALL, f"sampler.name={sampler}"), []
    with pytest.raises(SearchFailedError, match=f"{MAX_FAILURES_IN_A_ROW} trials in a row failed"):
        drive(controller_of(exp, InMemoryLog(events), LASTING), World(fate=fail))
    assert sum(isinstance(e, TrialEnded) for e in events) == MAX_FAILURES_IN_A_ROW
    controller = controller_of(exp, InMemoryLog(events), LASTING)
    search = drive(controller, World(rung=telling))
    assert search.done
    assert results(search) == results(simulate(exp, World(rung=telling)))
    told = {identity: state for identity, state in controller._study.states().items() if state != "PRUNED"}
    assert set(told.values()) == {"COMPLETE"}, "the study agrees with the log"


def test_fewer_trials_than_that_all_failed_raise_as_well_and_no_phase_is_entered():
    exp, events = experiment("budget={trials: 3}", SMALL[1]), []
    with pytest.raises(SearchFailedError, match="all 3 trials failed"):
        drive(controller_of(exp, InMemoryLog(events), LASTING), World(fate=fail))
    search = drive(controller_of(exp, InMemoryLog(events), LASTING), World())
    assert search.done
    assert {t.status for t in search.trials} == {Status.COMPLETE}


def test_a_search_that_trained_anything_does_not_train_failed_trials_again():
    def some(config, seed) -> Status:
        return Status.FAILED if 0 < config.extra_propagation < 1 else Status.COMPLETE

    exp, events = experiment("budget={trials: 5}", SMALL[1]), []
    first = drive(controller_of(exp, DyingLog(events, lives=None), LASTING), World(fate=some))
    assert first.done
    before = len(events)
    second = drive(controller_of(exp, InMemoryLog(events), LASTING), World())
    assert results(second) == results(first)
    assert len(events) == before


@pytest.mark.parametrize("writes", [True, False], ids=["killed-after-writing", "killed-before-writing"])
def test_killed_at_every_event_of_the_retries_all_failed_trials_are_trained_again(writes: bool):
    exp, world, events = experiment(*SMALL), World(rung=telling), list[Event]()
    with pytest.raises(SearchFailedError):
        drive(controller_of(exp, InMemoryLog(events), LASTING), World(fate=fail))
    search = None
    while search is None and len(events) < 2000:
        try:
            log = DyingLog(events, lives=1 if writes else 2, writes=writes)
            search = drive(controller_of(exp, log, LASTING), world)
        except Killed:
            continue
    assert search is not None
    assert results(search) == results(simulate(exp, world))


def test_trials_that_are_retried_show_as_running():
    exp, events = experiment(*SMALL), []
    with pytest.raises(SearchFailedError):
        drive(controller_of(exp, InMemoryLog(events), LASTING), World(fate=fail))
    controller = controller_of(exp, InMemoryLog(events), LASTING)
    task = started(controller)
    assert isinstance(events[-1], TrialStarted)
    assert controller.search().trials[0].key == task.key
    assert controller.search().trials[0].status is Status.RUNNING


# --- the reference point ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)])
def test_the_reference_point_does_not_depend_on_which_trial_finishes_first(order, seeds):
    """It is that of the base optimizer's first seed, whoever finishes before it."""
    exp = experiment("budget={trials: 4}", "confirm.enabled=false", f"seeds={seeds}", "stopping.name=none", FREE)
    controller, world = controller_of(exp, InMemoryLog()), World()
    tasks = [started(controller) for _ in range(4)]
    for i in order:
        task = tasks[i]
        error = world.end(task.config, task.seed)
        controller.on_report(TrialReport(key=task.key, status=Status.COMPLETE, epoch=9, error=error, pairs=9.0 * STEPS))
    base = trial_config(SGD, TaskScale(epochs=9, steps_per_epoch=STEPS, rho=0.2))
    assert config_id(tasks[0].config.params) == config_id(SGD)
    expected = derive_reference(world.end(base, tasks[0].seed))
    assert controller.search().reference == (pytest.approx(expected), 2.2)


def test_where_the_base_optimizer_fails_the_first_that_finished_stands_in_for_it():
    controller, world = controller_of(experiment(*SMALL, FREE), InMemoryLog()), World()
    base, sam = started(controller), started(controller)
    error = world.end(sam.config, sam.seed)
    controller.on_report(TrialReport(key=sam.key, status=Status.COMPLETE, epoch=9, error=error))
    assert controller.search().reference is None
    controller.on_report(TrialReport(key=base.key, status=Status.FAILED, reason=REASON))
    third = started(controller)
    controller.on_report(TrialReport(key=third.key, status=Status.COMPLETE, epoch=9, error=50.0))
    assert controller.search().reference == (pytest.approx(derive_reference(error)), 2.2)

"""The whole search without Ray: phases, budget, resuming, failures, seeds, confirmation, and what is on a front."""

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from optuna.storages import InMemoryStorage

from rst_tune.analysis.analysis import analyze
from rst_tune.records import (
    Event,
    Phase,
    PhaseEntered,
    Role,
    Search,
    SearchStarted,
    Status,
    TestRead,
    TrialEnded,
    TrialSampled,
    config_id,
)
from rst_tune.tuning.backend.protocol import TrialReport, TrialTask
from rst_tune.tuning.backend.simulator import InMemoryLog, SimulatedTraining, SimulatorBackend
from rst_tune.tuning.controller import CONFIRM_SEED, SearchController
from rst_tune.tuning.points import SAM, SGD
from tests.tuning.simulated import (
    STEPS,
    DyingLog,
    Killed,
    World,
    blind,
    controller_of,
    drive,
    experiment,
    misleading,
    noise,
    pairs_of,
    simulate,
    telling,
)

LASTING = Path("lasting")
SMALL = ("budget={trials: 14}", "confirm={max_seeds: 4, min_seeds: 2, candidates: 3}")


def phases(log: InMemoryLog) -> list[Phase]:
    return [event.phase for event in log.events if isinstance(event, PhaseEntered)]


def state(search: Search) -> list[tuple]:
    """Return what must not depend on interruptions: everything but times and places."""
    names = ("key", "role", "status", "error", "pairs", "rungs", "stopped_by_rung", "test_error", "seed", "epochs")
    return [tuple(getattr(t, name) for name in names) for t in search.trials]


def test_a_search_goes_through_its_phases_and_reads_the_test_set_last():
    log = InMemoryLog()
    search = drive(controller_of(experiment(*SMALL), log), World(rung=telling), workers=2)
    assert phases(log) == [Phase.CONFIRM, Phase.TEST, Phase.DONE]
    assert search.done
    testing = next(i for i, e in enumerate(log.events) if isinstance(e, PhaseEntered) and e.phase is Phase.TEST)
    assert not any(isinstance(event, TestRead) for event in log.events[:testing])
    tested = [t for t in search.trials if t.test_error is not None]
    replicates = [t for t in search.trials if t.role is Role.CONFIRM and t.finished]
    rows = analyze(search).summaries
    shown = {r.config_id for r in rows if r.on_front or r.settled or r.config.is_baseline}
    assert tested == [t for t in replicates if t.config_id in shown]
    assert min(t.seed for t in tested) >= CONFIRM_SEED


def test_the_test_set_is_not_read_for_what_is_not_shown(monkeypatch):
    monkeypatch.setattr(SearchController, "_shown_configs", lambda _: {config_id(SAM)})
    search = simulate(experiment(*SMALL), World(rung=telling))
    assert {t.config_id for t in search.trials if t.test_error is not None} == {config_id(SAM)}
    assert len({t.config_id for t in search.trials if t.role is Role.CONFIRM and t.finished}) > 1


def test_the_baselines_come_first_and_are_always_confirmed():
    search = simulate(experiment(*SMALL), World(rung=telling))
    sampled = [t for t in search.trials if t.role is Role.SEARCH]
    assert [t.config_id for t in sampled[:2]] == [config_id(SGD), config_id(SAM)]
    assert {config_id(SGD), config_id(SAM)} <= {t.config_id for t in search.trials if t.role is Role.CONFIRM}


@pytest.mark.parametrize("workers", [1, 4])
def test_every_pair_is_charged_the_budget_holds_and_the_front_is_replicated(workers):
    """What the replicates of the front take is reserved during the search."""
    confirm = "confirm={min_seeds: 3, max_seeds: 4, candidates: 3}"
    exp = experiment("budget={pairs: 6000}", confirm, "stopping.name=pareto-asha")
    controller = controller_of(exp, InMemoryLog())
    search = drive(controller, World(rung=telling), workers=workers)
    assert controller.spent == pytest.approx(pairs_of(search.trials))
    assert any(t.status is Status.STOPPED and t.pairs > 0 for t in search.trials)
    dearest = 9 * STEPS * 2
    assert 6000 - workers * dearest <= controller.spent <= 6000 + workers * dearest
    shown = analyze(replace(search, header=SearchStarted(experiment=exp.public())))
    settled = [point for point in shown.points if point.settled]
    assert len(settled) >= 2
    assert min(point.seeds for point in settled) >= 3
    assert shown.recommended in settled


def test_a_proposed_replicate_is_a_trial_of_the_search_on_the_next_shared_fresh_seed():
    exp, log = experiment(*CASES["replicates"]), InMemoryLog()
    search = drive(controller_of(exp, log), World(rung=telling))
    end = next(i for i, e in enumerate(log.events) if isinstance(e, PhaseEntered) and e.phase is Phase.CONFIRM)
    sampled = [e for e in log.events[:end] if isinstance(e, TrialSampled)]
    proposed = [e for e in sampled if e.role is Role.CONFIRM]
    assert proposed, "replicates are proposed during the search"
    assert {e.config_id for e in proposed} <= {e.config_id for e in sampled if e.role is Role.SEARCH}
    assert all(not t.rungs for t in search.trials if t.role is Role.CONFIRM), "a replicate is never stopped"
    for identity in {t.config_id for t in search.trials if t.role is Role.CONFIRM}:
        seeds = [t.seed for t in search.trials if t.config_id == identity and t.role is Role.CONFIRM]
        assert seeds == [exp.seed + CONFIRM_SEED + k for k in range(len(seeds))]


def test_sampled_configurations_take_turns_with_a_few_seeds_and_a_grid_has_one():
    space = "space={parametrization: cost, families: [constant], extra_propagation: [0.5, 0.7], gamma_rst: [0.5, 1.0]}"
    exp = experiment("budget={trials: 8}", "confirm.enabled=false", "sampler.name=random", "seed=7")
    assert [t.seed for t in simulate(exp, World()).trials] == [7, 8, 9, 10] * 2
    grid = experiment("budget={trials: 8}", "confirm.enabled=false", "sampler.name=grid", "seed=7", space)
    assert {t.seed for t in simulate(grid, World()).trials} == {7}


@pytest.mark.parametrize(("gpus", "workers", "devices"), [(0.25, 1, 0.25), (0.25, 2, 0.5), (1, 4, 4), (0, 3, 3)])
def test_a_budget_in_device_hours_counts_seconds_times_the_devices_of_a_trial(gpus, workers, devices):
    """A quarter of a GPU is charged as a quarter, and every worker of a trial is charged."""
    resources = f"resources={{gpus_per_worker: {gpus}, workers: {workers}}}"
    exp = experiment(
        f"budget={{device_hours: {0.1 * devices}}}", "confirm.enabled=false", "sampler.name=random", resources
    )
    controller = controller_of(exp, InMemoryLog())
    search = drive(controller, World(rung=telling), workers=2)
    assert controller.spent == pytest.approx(sum(t.seconds for t in search.trials) * devices / 3600)
    assert 0.1 * devices <= controller.spent < 0.125 * devices
    shown = replace(search, header=SearchStarted(experiment=exp.public()))
    assert shown.device_hours == pytest.approx(controller.spent), "budget and status count the same hours"


TINY = ("budget={trials: 9}", "confirm={max_seeds: 3, min_seeds: 2, candidates: 2}")
CASES = {
    "prefix": (*TINY, "stopping={name: pareto-asha}"),
    "pareto-asha": (*TINY, "stopping={name: pareto-asha}"),
    "tpe": (*TINY, "sampler.name=tpe"),
    "seeds": (*TINY, "seeds=2", "stopping={name: pareto-asha}"),
    "pairs": ("budget={pairs: 2500}", TINY[1]),
    "lengths": (*TINY, "space=compute", "sampler.name=random", "stopping={name: pareto-asha}"),
    "compute": ("budget={trials: 14}", TINY[1], "space=compute", "stopping={name: pareto-asha}"),
    # A narrow space: what is there was soon tried, and which of it is best is not known.
    "replicates": (
        "budget={pairs: 5000}",
        "confirm={max_seeds: 3, min_seeds: 2, candidates: 3}",
        "space={parametrization: cost, families: [constant], extra_propagation: {low: 0.5, high: 0.55}, gamma_rst: 1}",
    ),
    "surrogate": ("budget={trials: 13}", TINY[1], "stopping.name=none"),  # enough finish for the sampler's surrogate
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
    undisturbed = simulate(exp, world)
    events: list[Event] = []
    search = None
    while search is None and len(events) < 2000:
        log = DyingLog(events, lives=1 if writes else 2, writes=writes)
        try:
            search = drive(controller_of(exp, log, LASTING), world)
        except Killed:
            continue
    assert search is not None
    assert state(search) == state(undisturbed)
    assert search.reference == undisturbed.reference
    assert sum(isinstance(event, TrialEnded) for event in events) == len(undisturbed.trials)


class ReportsEpochs(SimulatorBackend):
    """Sends the metrics of all epochs with each report, as a worker does that was started again."""

    def _report(self, task: TrialTask, training: SimulatedTraining, epoch: int) -> TrialReport:
        seeds = [float(task.seed + e) for e in range(1, epoch + 1)]
        return replace(super()._report(task, training, epoch), epoch_metrics={"loss": seeds})


@pytest.mark.usefixtures("lasting_storage")
@pytest.mark.parametrize("writes", [True, False], ids=["killed-after-writing", "killed-before-writing"])
def test_killed_at_many_events_the_histories_are_whole(writes: bool):
    """A simulated training begins anew in each life, so some lives have to be long enough for a whole one."""
    exp, world = experiment(*CASES["prefix"]), World(rung=telling)
    undisturbed = controller_of(exp, InMemoryLog())
    ReportsEpochs(world).run_trials(undisturbed)
    events: list[Event] = []
    for lives in itertools.cycle(range(2, 8)):
        log = DyingLog(events, lives=lives, writes=writes)
        try:
            controller = controller_of(exp, log, LASTING)
            ReportsEpochs(world).run_trials(controller)
        except Killed:
            continue
        search = controller.search()
        break
    assert state(search) == state(undisturbed.search())
    for trial in search.trials:
        epochs = trial.epochs if trial.status is Status.COMPLETE else max(trial.rungs)
        assert trial.history == {"loss": [float(trial.seed + e) for e in range(1, epochs + 1)]}


@pytest.mark.usefixtures("lasting_storage")
def test_after_a_kill_with_many_workers_nothing_is_lost_and_nothing_is_done_twice():
    exp, world = experiment(*SMALL), World(rung=blind)
    events: list[Event] = []
    for lives in (17, 23, 31, None):
        try:
            search = drive(controller_of(exp, DyingLog(events, lives=lives), LASTING), world, workers=3)
        except Killed:
            continue
    ended = [event.key for event in events if isinstance(event, TrialEnded)]
    assert len(ended) == len(set(ended)) == len(search.trials)
    assert len({t.config_id for t in search.trials if t.role is Role.SEARCH}) == 14


def test_further_seeds_of_a_judged_search_are_trained_only_once_the_first_has_finished():
    judged = ("seeds=3", "confirm.enabled=false", "sampler.name=random", "stopping.name=pareto-asha")
    exp = experiment("budget={trials: 40}", *judged)
    search = simulate(exp, World(rung=telling), workers=3)
    for trials in {
        t.config_id: [s for s in search.trials if s.config_id == t.config_id] for t in search.trials
    }.values():
        assert len(trials) == (3 if trials[0].finished else 1)
        assert [t.seed for t in trials] == [trials[0].seed + k for k in range(len(trials))]
        assert not any(t.rungs for t in trials[1:])
    assert {t.seed for t in search.trials} == {exp.seed, exp.seed + 1, exp.seed + 2}, "shared by all"
    assert any(t.status is Status.STOPPED for t in search.trials)


def test_without_stopping_all_seeds_are_trained_at_once():
    exp = experiment("budget={trials: 5}", "seeds=3", "confirm.enabled=false", "stopping.name=none")
    search = simulate(exp, World(), workers=15)
    assert Counter(t.config_id for t in search.trials) == dict.fromkeys({t.config_id for t in search.trials}, 3)


def test_the_answer_is_about_replicated_points_once_the_search_has_ended():
    """In a budget of configurations the replicates are free, so each gets the most seeds."""
    exp = experiment("budget={trials: 40}", "confirm={min_seeds: 2, max_seeds: 5, candidates: 6}")
    search = simulate(exp, World(rung=telling, sd=0.05))
    front = analyze(replace(search, header=SearchStarted(experiment=exp.public())))
    seeds = Counter(t.config_id for t in search.trials if t.role is Role.CONFIRM)
    settled = [point for point in front.points if point.settled]
    assert {point.config_id for point in settled} <= set(seeds)
    assert len(settled) >= 2
    assert max(seeds.values()) == 5
    baseline = front.recommended.config.is_baseline
    assert front.recommended.seeds == seeds[front.recommended.config_id] + baseline, "its first seed was not selected"


@pytest.mark.parametrize("stopper", ["asha", "pareto-asha"])
def test_a_front_never_contains_a_trial_that_was_not_trained_to_its_full_horizon(stopper: str):
    """The rungs look far better than any end: whatever were told half-trained would be the whole front."""

    def tempting(world, config, seed, share):
        return 0.1 + 0.05 * abs(noise(config.schedule, seed, share))

    exp = experiment(f"stopping.name={stopper}", "budget={trials: 60}")
    controller = controller_of(exp, InMemoryLog())
    search = drive(controller, World(rung=tempting), workers=4)
    stopped = [t for t in search.trials if t.stopped_by_rung]
    assert len(stopped) > 30, "this stopper stops most trials"
    finished = {t.config_id for t in search.trials if t.finished}
    horizon = exp.task.recipe.epochs
    assert all(t.epochs == horizon and t.status is Status.COMPLETE for t in search.trials if t.finished)
    front = analyze(search)
    assert front.points
    assert {p.config_id for p in front.points} <= finished
    assert min(p.error_mean for p in front.points) > 1.0
    told = controller._study.study.best_trials
    assert told
    assert {t.user_attrs["config_id"] for t in told} <= finished


def test_diverged_failed_and_out_of_memory_trials_are_charged_and_never_on_a_front():
    fates = (Status.COMPLETE, Status.DIVERGED, Status.OUT_OF_MEMORY, Status.FAILED)

    def fate(config, seed):
        c = config.extra_propagation
        return fates[int(c * 100) % 4] if 0 < c < 1 else Status.COMPLETE

    search = simulate(experiment("budget={trials: 30}", SMALL[1]), World(fate=fate), workers=2)
    assert {t.status for t in search.trials} >= set(fates)
    assert all(t.pairs > 0 for t in search.trials)
    good = {t.config_id for t in search.trials if t.status is Status.COMPLETE}
    assert {p.config_id for p in analyze(search).points} <= good


def test_a_small_space_that_is_exhausted_ends_the_search_and_is_confirmed():
    space = "space={parametrization: cost, families: [constant], extra_propagation: [0.5, 1.0], gamma_rst: [0.5, 1.0]}"
    exp = experiment("budget={pairs: 100000}", space, "confirm={min_seeds: 2, max_seeds: 3, candidates: 3}")
    search = simulate(exp, World())
    found = {t.config.identity for t in search.trials if t.role is Role.SEARCH}
    assert len(found) == 5, "the base optimizer, SAM, which is one of the four, and the other three"
    assert search.done
    assert any(t.role is Role.CONFIRM for t in search.trials)


def test_the_correlations_of_the_rungs_are_in_the_log():
    log = InMemoryLog()
    exp = experiment("budget={trials: 30}", "stopping.name=none", "confirm.enabled=false")
    drive(controller_of(exp, log), World(rung=misleading))
    [end] = [event for event in log.events if isinstance(event, PhaseEntered)]
    assert end.rung_correlations[3] < -0.5


LENGTHS = ("space=compute", "budget={trials: 40}", "sampler.name=random")


def test_trainings_of_every_length_are_whole_ones_and_judged_among_their_own():
    search = simulate(experiment(*LENGTHS, "stopping={name: asha}", SMALL[1]), World(rung=telling), workers=2)
    sampled = [t for t in search.trials if t.role is Role.SEARCH]
    assert {t.config.rule for t in sampled} == {"sam", "s2sam"}
    assert len({round(t.config.rho, 6) for t in sampled}) > 20
    assert len({t.epochs for t in sampled}) > 5
    for trial in sampled:
        assert trial.config.horizon == trial.epochs / 9
        assert trial.config.total_steps == trial.epochs * STEPS
        assert set(trial.rungs) <= {-(-trial.epochs // 9), -(-trial.epochs // 3)} - {trial.epochs}
        if trial.finished:
            assert trial.pairs == pytest.approx(9 * STEPS * trial.compute)
    shortest = [t for t in sampled if t.epochs == 1]
    assert shortest
    assert all(t.finished and not t.rungs for t in shortest), "too short for a rung: not judged"


def test_the_base_optimizer_is_trained_at_five_lengths_and_what_the_answer_compares_with_is_confirmed():
    exp = experiment(*LENGTHS, SMALL[1])
    search = simulate(exp, World(rung=telling), workers=2)
    base = {t.epochs for t in search.trials if t.role is Role.SEARCH and t.config.is_base}
    assert base == {1, 3, 5, 9, 18}
    confirmed = {t.config_id for t in search.trials if t.role is Role.CONFIRM}
    assert config_id(SAM) in confirmed
    assert any(t.config.is_base for t in search.trials if t.config_id in confirmed), "the base optimizer's best length"
    assert search.reference is not None
    assert search.reference[1] == pytest.approx(4 * 2**0.1), "beyond SAM for the longest training"


def test_a_budget_in_plain_trainings_counts_pairs_over_those_of_the_recipe():
    exp = experiment("space=compute", "budget={trainings: 30}", SMALL[1], "sampler.name=random")
    controller = controller_of(exp, InMemoryLog())
    search = drive(controller, World(rung=telling))
    assert controller.spent == pytest.approx(pairs_of(search.trials) / (9 * STEPS))
    assert 0.75 * 30 <= controller.spent <= 30 + 4


def test_max_concurrent_trials_bounds_what_is_out():
    controller = controller_of(experiment(*SMALL, "resources.max_concurrent_trials=2"), InMemoryLog())
    assert controller.next_task() is not None
    assert controller.next_task() is not None
    assert controller.next_task() is None
    assert controller.running == 2

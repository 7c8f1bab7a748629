from pathlib import Path

import pytest
from optuna.trial import TrialState

from rst_tune.records import Role, Status, Trial, config_id
from rst_tune.tuning.points import SAM
from rst_tune.tuning.space import TaskScale, trial_config
from rst_tune.tuning.study import JOURNAL_NAME, PendingTrials, SearchStudy, optuna_outcome
from tests.tuning.simulated import experiment

POINT = {"family": "constant", "c": 0.5, "gamma_rst": 1.0, "rule": "sam"}


PRUNED = (TrialState.PRUNED, None)


def complete(error: float, cost: float) -> tuple[TrialState, tuple[float, float]]:
    return TrialState.COMPLETE, (error, cost)


def ended(status: Status, error: float | None = 5.0, seed: int = 0) -> Trial:
    config = trial_config(POINT, TaskScale(epochs=9, steps_per_epoch=10, rho=0.1))
    return Trial(
        key=f"a-e9-s{seed}", number=seed, role=Role.SEARCH, config_id=config_id(POINT), config=config, seed=seed,
        epochs=9, full_horizon=True, sampled_at=0.0, ended_at=1.0, status=status, error=error,
    )  # fmt: skip


def sample(study: SearchStudy, number: int) -> dict:
    """Return the parameters of a new configuration, sampled after `number` trials."""
    params, is_replicate = study.sample(PendingTrials(sampled=number))
    assert not is_replicate
    return params


def told(study: SearchStudy, state: TrialState) -> list:
    return study.study.get_trials(states=(state,))


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (Status.COMPLETE, TrialState.COMPLETE),
        (Status.STOPPED, TrialState.PRUNED),
        (Status.DIVERGED, TrialState.PRUNED),
        (Status.OUT_OF_MEMORY, TrialState.PRUNED),
        (Status.FAILED, TrialState.FAIL),
        (Status.LOST, TrialState.FAIL),
    ],
)
def test_only_what_was_trained_to_the_end_is_told_as_complete(status: Status, state: TrialState):
    study = SearchStudy(experiment(), None)
    identity = config_id(sample(study, 0))
    study.tell(identity, optuna_outcome([ended(status)]))
    [trial] = study.study.get_trials()
    assert trial.state is state
    assert trial.values == ([5.0, 1.5] if status is Status.COMPLETE else None)
    assert bool(study.study.best_trials) == (status is Status.COMPLETE)
    study.tell(identity, complete(1.0, 0.5))  # twice: ignored
    assert study.states() == {identity: state.name}


def test_both_objectives_are_minimised_and_dominated_trials_are_not_best():
    study = SearchStudy(experiment(), None)
    values = [(5.0, 0.5), (4.0, 0.6), (6.0, 0.7)]
    for number, value in enumerate(values):
        study.tell(config_id(sample(study, number)), complete(*value))
    assert sorted(t.values for t in study.study.best_trials) == [[4.0, 0.6], [5.0, 0.5]]


@pytest.mark.parametrize("sampler", ["tpe", "gp", "nsga2", "random"])
def test_a_sample_depends_on_seed_number_and_what_was_told_alone(sampler: str, tmp_path: Path):
    exp = experiment(f"sampler.name={sampler}", "space=constant")

    def draws(study: SearchStudy, numbers: range) -> list[dict]:
        points = []
        for number in numbers:
            points.append(sample(study, number))
            study.tell(config_id(points[-1]), complete(points[-1]["c"] ** 2 + 1, points[-1]["c"]))
        return points

    whole = draws(SearchStudy(exp, None), range(8))
    first = draws(SearchStudy(exp, tmp_path), range(5))
    resumed = SearchStudy(exp, tmp_path)
    resumed.reconcile({config_id(p): p for p in first})
    assert first + draws(resumed, range(5, 8)) == whole
    assert (
        draws(SearchStudy(experiment(f"sampler.name={sampler}", "space=constant", "seed=1"), None), range(1))
        != whole[:1]
    )


def test_a_given_point_is_learnt_from_and_one_outside_the_space_is_not():
    study = SearchStudy(experiment(), None)
    study.enqueue(POINT)
    study.enqueue(SAM)
    study.enqueue(POINT)
    [trial] = study.study.get_trials()
    assert trial.params == {"family": "constant", "c": 0.5, "gamma_rst": 1.0, "rho": 1.0}, "at the recipe's radius"


def test_the_journal_is_durable_and_the_study_comes_back_from_it(tmp_path: Path):
    exp = experiment()
    study = SearchStudy(exp, tmp_path)
    points = [sample(study, number) for number in range(3)]
    study.tell(config_id(points[0]), complete(5.0, 0.5))
    study.tell(config_id(points[1]), PRUNED)
    assert (tmp_path / JOURNAL_NAME).stat().st_size > 0
    again = SearchStudy(exp, tmp_path)
    again.reconcile({config_id(p): p for p in points})
    assert list(again.states().values()) == ["COMPLETE", "PRUNED", "RUNNING"]
    again.tell(config_id(points[2]), complete(4.0, 0.4))
    assert list(again.states().values()) == ["COMPLETE", "PRUNED", "COMPLETE"]


def test_the_dashboard_has_a_readable_name_metric_names_and_what_is_trained(tmp_path: Path):
    for _ in range(2):
        study = SearchStudy(experiment(), tmp_path).study
    assert study.study_name == f"{experiment().name}-{experiment().search_id[:8]}"
    assert study.metric_names == ["error", "compute"]
    assert study.user_attrs["task"]["model"]["name"]
    assert "budget" in study.user_attrs
    assert (tmp_path / JOURNAL_NAME).read_text().count('"task"') == 1, "they are written once"


def test_a_sample_that_the_log_never_saw_is_told_as_failed_and_sampled_again(tmp_path: Path):
    exp = experiment()
    lost = sample(SearchStudy(exp, tmp_path), 0)
    study = SearchStudy(exp, tmp_path)
    study.reconcile({})
    assert [t.state for t in study.study.get_trials()] == [TrialState.FAIL]
    assert sample(study, 0) == lost
    third = SearchStudy(exp, tmp_path)
    third.reconcile({config_id(lost): lost})
    assert third.states() == {config_id(lost): "RUNNING"}


def test_a_point_queued_at_the_kill_is_not_sampled_later(tmp_path: Path):
    exp = experiment()
    SearchStudy(exp, tmp_path).study.enqueue_trial({"family": "constant", "c": 0.123, "gamma_rst": 0.4})
    study = SearchStudy(exp, tmp_path)
    study.reconcile({})
    assert sample(study, 0)["c"] != 0.123
    assert not told(study, TrialState.WAITING)


def test_a_lost_journal_is_rebuilt_from_the_event_log(tmp_path: Path):
    exp = experiment("space=rules")
    points = [sample(SearchStudy(exp, None), number) for number in range(5)]
    study = SearchStudy(exp, tmp_path)
    study.reconcile({config_id(p): p for p in points})
    for point in points:
        study.tell(config_id(point), complete(5.0, point["c"]))
    assert [t.params["c"] for t in told(study, TrialState.COMPLETE)] == [p["c"] for p in points]


def test_a_point_that_is_sampled_twice_is_told_once():
    study = SearchStudy(
        experiment("space={families: [constant], extra_propagation: [0.5, 0.6], gamma_rst: [1.0]}"), None
    )
    identities = [config_id(sample(study, number)) for number in range(6)]
    for identity in identities:
        study.tell(identity, complete(5.0, 0.5))
    assert len(told(study, TrialState.COMPLETE)) == len(set(identities)) == 2
    assert len(told(study, TrialState.FAIL)) == 4


def test_a_configuration_is_the_mean_of_its_seeds_and_the_first_that_did_not_finish_decides():
    seeds = [ended(Status.COMPLETE, 4.0, 0), ended(Status.COMPLETE, 6.0, 1)]
    assert optuna_outcome(seeds) == complete(5.0, 1.5)
    assert optuna_outcome([*seeds, ended(Status.DIVERGED, None, 2), ended(Status.FAILED, None, 3)]) == PRUNED
    assert optuna_outcome([ended(Status.LOST, None), *seeds]) == (TrialState.FAIL, None)


def broken_tail(lines: list[bytes]) -> bytes:
    return b"".join(lines[:-1]) + lines[-1][: len(lines[-1]) // 2]


def broken_middle(lines: list[bytes]) -> bytes:
    return b"".join([*lines[:4], lines[4][:10] + b"\n", *lines[5:]])


@pytest.mark.parametrize("damage", [broken_tail, broken_middle])
def test_a_damaged_study_is_filled_again_from_the_event_log(tmp_path, damage):
    exp = experiment()
    study = SearchStudy(exp, tmp_path)
    sampled = {config_id(point): point for point in (sample(study, number) for number in range(3))}
    study.tell(next(iter(sampled)), complete(5.0, 0.5))
    journal = tmp_path / JOURNAL_NAME
    journal.write_bytes(damage(journal.read_bytes().splitlines(keepends=True)))
    with pytest.warns(UserWarning, match=JOURNAL_NAME):
        repaired = SearchStudy(exp, tmp_path)
    repaired.reconcile(sampled)
    assert set(repaired.states()) == set(sampled)
    for identity in sampled:
        repaired.tell(identity, complete(5.0, 0.5))
    assert set(repaired.states().values()) == {"COMPLETE"}
    assert config_id(sample(repaired, 3)) not in sampled


def test_two_searches_of_one_experiment_on_one_database_do_not_touch_each_other(tmp_path: Path):
    exp = experiment(f"sampler.storage=sqlite:///{tmp_path / 'shared.db'}", "sampler.name=random")
    one = SearchStudy(exp, tmp_path / "one", "search-1")
    identity = config_id(sample(one, 0))
    two = SearchStudy(exp, tmp_path / "two", "search-2")
    two.reconcile({})  # a trial that its own log does not have is reported as failed
    one.tell(identity, complete(5.0, 0.5))
    assert one.states() == {identity: "COMPLETE"}
    assert two.study.get_trials() == []

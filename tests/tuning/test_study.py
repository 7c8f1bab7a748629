from pathlib import Path

import pytest
from optuna.trial import TrialState
from simulated import experiment

from rst_tune.analysis.records import config_id
from rst_tune.tuning.priors import SAM
from rst_tune.tuning.study import JOURNAL_NAME, SearchStudy

POINT = {"family": "constant", "c": 0.5, "gamma_rst": 1.0, "rule": "sam"}


def told(study: SearchStudy, state: TrialState) -> list:
    return study.study.get_trials(states=(state,))


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("complete", TrialState.COMPLETE),
        ("stopped", TrialState.PRUNED),
        ("diverged", TrialState.PRUNED),
        ("failed", TrialState.FAIL),
    ],
)
def test_only_what_was_trained_to_the_end_is_told_as_complete(status: str, state: TrialState):
    study = SearchStudy(experiment(), None)
    identity = config_id(study.draw(0))
    study.tell(identity, status, (5.0, 0.5))
    [trial] = study.study.get_trials()
    assert trial.state is state
    assert trial.values == ([5.0, 0.5] if status == "complete" else None)
    assert bool(study.study.best_trials) == (status == "complete")
    study.tell(identity, "complete", (1.0, 0.5))  # twice: passed over
    assert study.states() == {identity: state.name}


def test_both_objectives_are_minimised_and_dominated_trials_are_not_best():
    study = SearchStudy(experiment(), None)
    values = [(5.0, 0.5), (4.0, 0.6), (6.0, 0.7)]
    for number, value in enumerate(values):
        study.tell(config_id(study.draw(number)), "complete", value)
    assert sorted(t.values for t in study.study.best_trials) == [[4.0, 0.6], [5.0, 0.5]]


@pytest.mark.parametrize("sampler", ["tpe", "gp", "nsga2", "random"])
def test_a_draw_depends_on_seed_number_and_what_was_told_alone(sampler: str, tmp_path: Path):
    exp = experiment(f"sampler.name={sampler}", "space=constant")

    def draws(study: SearchStudy, numbers: range) -> list[dict]:
        points = []
        for number in numbers:
            points.append(study.draw(number))
            study.tell(config_id(points[-1]), "complete", (points[-1]["c"] ** 2 + 1, points[-1]["c"]))
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


def test_a_prior_is_learnt_from_and_a_point_outside_the_space_is_not():
    study = SearchStudy(experiment(), None)
    study.take(POINT)
    study.take(SAM)
    study.take(POINT)
    [trial] = study.study.get_trials()
    assert trial.params == {"family": "constant", "c": 0.5, "gamma_rst": 1.0}


def test_the_journal_is_durable_and_the_study_comes_back_from_it(tmp_path: Path):
    exp = experiment()
    study = SearchStudy(exp, tmp_path)
    points = [study.draw(number) for number in range(3)]
    study.tell(config_id(points[0]), "complete", (5.0, 0.5))
    study.tell(config_id(points[1]), "stopped", (5.0, 0.5))
    assert (tmp_path / JOURNAL_NAME).stat().st_size > 0
    again = SearchStudy(exp, tmp_path)
    again.reconcile({config_id(p): p for p in points})
    assert list(again.states().values()) == ["COMPLETE", "PRUNED", "RUNNING"]
    again.tell(config_id(points[2]), "complete", (4.0, 0.4))
    assert list(again.states().values()) == ["COMPLETE", "PRUNED", "COMPLETE"]


def test_a_draw_that_the_record_never_saw_is_told_as_failed_and_drawn_again(tmp_path: Path):
    exp = experiment()
    lost = SearchStudy(exp, tmp_path).draw(0)
    study = SearchStudy(exp, tmp_path)
    study.reconcile({})
    assert [t.state for t in study.study.get_trials()] == [TrialState.FAIL]
    assert study.draw(0) == lost
    third = SearchStudy(exp, tmp_path)
    third.reconcile({config_id(lost): lost})
    assert third.states() == {config_id(lost): "RUNNING"}


def test_a_point_queued_at_the_kill_is_not_handed_out_later(tmp_path: Path):
    exp = experiment()
    SearchStudy(exp, tmp_path).study.enqueue_trial({"family": "constant", "c": 0.123, "gamma_rst": 0.4})
    study = SearchStudy(exp, tmp_path)
    study.reconcile({})
    assert study.draw(0)["c"] != 0.123
    assert not told(study, TrialState.WAITING)


def test_a_lost_journal_is_rebuilt_from_what_the_record_drew(tmp_path: Path):
    exp = experiment("space=rules")
    points = [SearchStudy(exp, None).draw(number) for number in range(5)]
    study = SearchStudy(exp, tmp_path)
    study.reconcile({config_id(p): p for p in points})
    for point in points:
        study.tell(config_id(point), "complete", (5.0, point["c"]))
    assert [t.params["c"] for t in told(study, TrialState.COMPLETE)] == [p["c"] for p in points]


def test_a_point_that_is_drawn_twice_is_told_once():
    study = SearchStudy(
        experiment("space={families: [constant], extra_propagation: [0.5, 0.6], gamma_rst: [1.0]}"), None
    )
    identities = [config_id(study.draw(number)) for number in range(6)]
    for identity in identities:
        study.tell(identity, "complete", (5.0, 0.5))
    assert len(told(study, TrialState.COMPLETE)) == len(set(identities)) == 2
    assert len(told(study, TrialState.FAIL)) == 4

"""Trials that hang, diverge, raise or need too much memory: recorded with their reason, never on the front."""

import json

import pytest

from rst_tune.records import Status, load
from tests.faults.agreement import assert_study_agrees, states
from tests.faults.fault_models import MOODS
from tests.faults.harness import EXPERIMENT, assert_whole, driver, run, starts, write_experiment

LIMIT_MINUTES = 1  # long enough for a good trial in a new process on a busy machine


@pytest.fixture(scope="module")
def moody(cluster, tmp_path_factory):
    """A search in which trial 1 runs out of memory, 2 diverges, 3 hangs, 4 raises and the machine fails 5 once."""
    folder = tmp_path_factory.mktemp("moody")
    (folder / "moods").mkdir()
    task = {
        **EXPERIMENT["task"],
        "model": {"name": "tests.faults.fault_models:moody", "options": {"folder": str(folder / "moods")}},
    }
    resources = {**EXPERIMENT["resources"], "time_limit_minutes": LIMIT_MINUTES}
    space = {"base": "grst", "baselines": False}
    path = write_experiment(folder, task=task, space=space, resources=resources, budget={"trials": 8},
                            stopping={"name": "none"})  # fmt: skip
    run(path, folder / "output", cluster.address)
    return folder / "output"


EXPECTED = {
    "out of memory": (Status.OUT_OF_MEMORY, "CUDA out of memory", "PRUNED"),
    "nan": (Status.DIVERGED, "the loss or the metric was not finite", "PRUNED"),
    "hang": (
        Status.FAILED,
        f'not finished within the time limit of {LIMIT_MINUTES * 60:g} s; it was at: File "',
        "FAIL",
    ),
    "raise": (Status.FAILED, "ValueError: the teapot is empty", "FAIL"),
}


@pytest.mark.parametrize("mood", EXPECTED)
def test_a_bad_trial_is_recorded_with_its_reason_and_the_search_goes_on(moody, mood, say):
    status, reason, told = EXPECTED[mood]
    number = next(n for n, m in MOODS.items() if m == mood)
    trial = load(moody).trials[number]
    assert (trial.status, trial.reason[: len(reason)]) == (status, reason)
    assert states(moody)[trial.config_id] == [told], "what the study was told"
    assert mood != "hang" or "fault_models.py" in trial.reason, "the place where it hung"
    assert not trial.finished
    front = json.loads((moody / "front.json").read_text())
    assert front
    assert trial.key not in {row["trial_key"] for row in front}
    names = {"hang": "a trial that hangs", "nan": "a loss that is NaN", "raise": "an exception in the training"}
    say(names.get(mood, "out of memory on a device"), 1)


def test_the_others_are_whole(moody):
    assert_whole(moody)
    others = [t for n, t in enumerate(load(moody).trials) if MOODS.get(n) not in EXPECTED]
    assert len(others) >= 3
    assert {t.status for t in others} == {Status.COMPLETE}


def test_an_error_of_the_machine_is_not_one_of_the_trial(moody, say):
    (number,) = (n for n, m in MOODS.items() if m == "machine")
    trial = load(moody).trials[number]
    assert [start["key"] for start in starts(moody)].count(trial.key) == 2
    assert trial.status is Status.COMPLETE
    say("an error of the machine in a worker", 1)


@pytest.mark.parametrize(("kind", "status"), [("ValueError", Status.FAILED), ("OSError", Status.LOST)])
def test_a_search_in_which_everything_fails_exits_1_and_resumes(cluster, tmp_path, kind, status, say):
    fault, output = tmp_path / "fault", tmp_path / "output"
    fault.write_text(kind)
    task = {
        **EXPERIMENT["task"],
        "model": {"name": "tests.faults.fault_models:faulty", "options": {"file": str(fault)}},
    }
    resources = {**EXPERIMENT["resources"], "max_failures": 0}
    path = write_experiment(tmp_path, task=task, resources=resources, budget={"trials": 3}, confirm={"enabled": False})
    with driver(path, output, cluster.address) as search:
        assert search.wait() == 1, search.text
        said = search.text
    assert f"all 3 trials failed; the last one: {kind}: the cable is loose" in said
    assert "resume with: rst-tune run" in said
    assert "Traceback" not in said
    trials = load(output).trials
    assert {(trial.status, trial.reason) for trial in trials} == {(status, f"{kind}: the cable is loose")}
    assert not load(output).done
    fault.unlink()
    run(path, output, cluster.address)
    search = load(output)
    assert search.done
    assert {trial.status for trial in search.trials} <= {Status.COMPLETE, Status.STOPPED}
    assert {trial.key for trial in trials} <= {trial.key for trial in search.trials}
    assert_study_agrees(output, at_least=1)
    say(f"every trial fails ({status}), the cause is removed", 3)

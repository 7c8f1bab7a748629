"""Trials that hang, diverge or need too much memory: recorded with their reason, never on the front."""

import json

import pytest

from rst_tune.records import Status, load
from tests.faults.agreement import states
from tests.faults.fault_models import MOODS
from tests.faults.harness import EXPERIMENT, assert_whole, run, write_experiment

LIMIT_MINUTES = 0.5  # long enough for a good trial on a busy machine


@pytest.fixture(scope="module")
def moody(cluster, tmp_path_factory):
    """A search in which the second trial runs out of memory, the third diverges and the fourth hangs."""
    folder = tmp_path_factory.mktemp("moody")
    (folder / "moods").mkdir()
    task = {
        **EXPERIMENT["task"],
        "model": {"name": "tests.faults.fault_models:moody", "options": {"folder": str(folder / "moods")}},
    }
    resources = {**EXPERIMENT["resources"], "time_limit_minutes": LIMIT_MINUTES}
    space = {"base": "grst", "baselines": False}
    path = write_experiment(folder, task=task, space=space, resources=resources, budget={"trials": 6},
                            stopping={"name": "none"})  # fmt: skip
    run(path, folder / "output", cluster.address)
    return folder / "output"


EXPECTED = {
    "out of memory": (Status.OUT_OF_MEMORY, "CUDA out of memory", "PRUNED"),
    "nan": (Status.DIVERGED, "the loss was not finite", "PRUNED"),
    "hang": (
        Status.FAILED,
        f'not finished within the time limit of {LIMIT_MINUTES * 60:g} s; it was at: File "',
        "FAIL",
    ),
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
    say({"hang": "a trial that hangs", "nan": "a loss that is NaN"}.get(mood, "out of memory on a device"), 1)


def test_the_others_are_whole(moody):
    assert_whole(moody)
    others = [t for n, t in enumerate(load(moody).trials) if n not in MOODS]
    assert len(others) >= 3
    assert {t.status for t in others} == {Status.COMPLETE}

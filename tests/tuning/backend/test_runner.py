"""Damaged files, full disks and hung trials without Ray: the cheap half of the fault table."""

import json
import shutil

import pytest

from rst_tune.analysis.records import config_id
from rst_tune.training import metrics
from rst_tune.training.data import load_dataset
from rst_tune.training.task import Task
from rst_tune.tuning.experiment import load_experiment
from rst_tune.tuning.job import Job, Shop, checkpoint_folder
from rst_tune.tuning.study import JOURNAL_NAME, SearchStudy

TASK = Task.model_validate(
    {
        "data": {"name": "digits", "validation": 200, "train_size": 256},
        "model": {"name": "mlp-tiny"},
        "recipe": {"base": "digits", "epochs": 4},
    }
)
CONFIG = {
    "schedule": {"family": "constant", "p": 0.5},
    "gamma_gnr": 2.0,
    "rule": "sam",
    "rule_options": {},
    "rho": 0.1,
}
PLAN = {"kind": "train", "key": "a-e4-s0", "config": CONFIG, "seed": 0, "epochs": 4, "rungs": (2,), "keep": True}


@pytest.fixture
def shop(tmp_path):
    return Shop(task=TASK, data=load_dataset(TASK.data), directory=tmp_path, checkpoint_seconds=0.0, time_limit=7.0)


def finish(job: Job) -> dict:
    while (result := job.advance())["status"] == "running":
        pass
    return result


def measured(result: dict) -> dict:
    """Return everything but times."""
    content = json.loads(result["payload"])
    return {name: values for name, values in content["history"].items() if name not in metrics.TIMINGS}


def test_a_trial_that_was_saved_at_a_rung_is_judged_there_before_it_goes_on(shop):
    first = Job(PLAN, shop)
    assert [first.advance()["epoch"], first.advance()["epoch"]] == [1, 2]
    second = Job(PLAN, shop)  # who saved it may have died before anybody judged it
    assert [second.advance()["epoch"], second.advance()["epoch"]] == [2, 3]
    again = finish(second)
    shutil.rmtree(checkpoint_folder(shop.directory, PLAN["key"]))
    assert measured(again) == measured(finish(Job(PLAN, shop)))


def test_a_damaged_checkpoint_is_set_aside_and_the_trial_begins_anew(shop):
    calm = finish(Job(PLAN, shop))
    Job(PLAN, shop).discard()
    Job(PLAN, shop).advance()
    path = checkpoint_folder(shop.directory, PLAN["key"]) / "run.pt"
    path.write_bytes(path.read_bytes()[:-500])
    result = finish(Job(PLAN, shop))
    assert measured(result) == measured(calm)
    (aside,) = (shop.directory / "damaged").iterdir()
    assert json.loads(result["payload"])["reason"].startswith(f"a damaged checkpoint was set aside as {aside.name}")


@pytest.mark.parametrize("blocked", ["checkpoints", "models"])
def test_what_cannot_be_saved_stops_the_search_and_fails_no_trial(shop, blocked):
    (shop.directory / blocked).write_text("a file where a folder should be")
    result = finish(Job(PLAN, shop))
    assert result["status"] == "storage"
    assert f"{shop.directory / blocked}" in result["reason"]
    assert "cannot be written" in result["reason"]


def test_a_hung_trial_says_where_it_was(shop):
    job = Job(PLAN, shop)
    assert not job.hung()
    job.hang_file.parent.mkdir(parents=True)
    threads = [["io.py", "queue.py"], ["mine.py", "loop.py"]]
    heading = "Thread 0x1 (most recent call first):\n"
    frames = ["".join(f'  File "{name}", line 9 in f\n' for name in thread) for thread in threads]
    job.hang_file.write_text("Timeout (0:00:07)!\n" + "\n".join(heading + each for each in frames))
    assert job.hung()
    reason = json.loads(job.out_of_time()["payload"])["reason"]
    assert reason == 'no end within the time limit of 7 s; it was at: File "mine.py", line 9 in f'


def broken_tail(lines: list[bytes]) -> bytes:
    return b"".join(lines[:-1]) + lines[-1][: len(lines[-1]) // 2]


def broken_middle(lines: list[bytes]) -> bytes:
    return b"".join([*lines[:4], lines[4][:10] + b"\n", *lines[5:]])


@pytest.mark.parametrize("damage", [broken_tail, broken_middle])
def test_a_damaged_study_is_told_again_from_the_record(tmp_path, damage):
    experiment = load_experiment("digits")
    study = SearchStudy(experiment, tmp_path)
    drawn = {config_id(point): point for point in (study.draw(number) for number in range(3))}
    study.tell(next(iter(drawn)), "complete", (5.0, 0.5))
    journal = tmp_path / JOURNAL_NAME
    journal.write_bytes(damage(journal.read_bytes().splitlines(keepends=True)))
    with pytest.warns(UserWarning, match=JOURNAL_NAME):
        mended = SearchStudy(experiment, tmp_path)
    mended.reconcile(drawn)
    assert set(mended.states()) == set(drawn)
    for identity in drawn:
        mended.tell(identity, "complete", (5.0, 0.5))
    assert set(mended.states().values()) == {"COMPLETE"}
    assert config_id(mended.draw(3)) not in drawn

"""The event log is read back after what happens to files."""

import json
from dataclasses import replace

import pytest

from rst_tune import records
from rst_tune.errors import InputError
from rst_tune.method import schedules
from rst_tune.records import Phase, PhaseEntered, Status, TrialEnded
from rst_tune.records.log import NAMED_LINES
from tests.analysis.synthetic import write_search


def test_everything_written_is_read_back(tmp_path):
    search = records.load(write_search(tmp_path, trials=30))
    statuses = {t.status for t in search.trials}
    assert {"complete", "stopped", "diverged"} <= statuses
    assert search.done
    assert search.reference == (4.6, 2.2)
    assert {t.role for t in search.trials} == {"search", "confirm"}
    done = next(t for t in search.trials if t.status is Status.COMPLETE)
    assert done.started_at < done.ended_at
    assert done.history["validation_error"][-1] == done.error
    assert len(done.preview.curve) == len(done.preview.coins) == 100


def test_a_torn_last_line_is_named_and_the_rest_goes_on(tmp_path):
    path = write_search(tmp_path, trials=5) / records.LOG_NAME
    whole = len(records.load(tmp_path).trials)
    with path.open("ab") as file:
        file.write(b'{"event": "tri')
    with pytest.warns(UserWarning, match="damaged line"):
        assert len(records.load(tmp_path).trials) == whole
    writer = records.EventLog(tmp_path)
    writer.append(PhaseEntered(phase=Phase.SEARCH))
    writer.close()
    assert json.loads(path.read_bytes().splitlines()[-1])["phase"] == "search"
    with pytest.warns(UserWarning, match="damaged line"):
        assert records.load(tmp_path).phase == "search"


def test_an_event_of_no_trial_is_named(tmp_path):
    writer = records.EventLog(tmp_path)
    writer.append(TrialEnded(key="nobody", status=Status.COMPLETE))
    writer.close()
    with pytest.warns(UserWarning, match="unknown trial"):
        assert records.load(tmp_path).trials == ()


def test_a_directory_without_a_log_says_what_to_give(tmp_path):
    with pytest.raises(InputError, match=r"events\.jsonl"):
        records.load(tmp_path / "nowhere")


@pytest.mark.filterwarnings("ignore:.*damaged line")
def test_a_log_without_an_event_is_no_search(tmp_path):
    (tmp_path / records.LOG_NAME).write_text('{"foo": 1}\n')
    with pytest.raises(InputError, match="no line of it is one"):
        records.load(tmp_path)
    (tmp_path / records.LOG_NAME).write_text("")
    assert records.load(tmp_path).trials == (), "a search that has just begun"


def test_of_many_damaged_lines_the_first_are_named_and_the_others_counted(tmp_path):
    path = write_search(tmp_path, trials=5) / records.LOG_NAME
    path.write_bytes(path.read_bytes() + b"damage\n" * 500)
    with pytest.warns(UserWarning, match="damaged line") as caught:
        assert records.load(tmp_path).trials
    assert len(caught) == NAMED_LINES + 1
    assert f"{500 - NAMED_LINES} more" in str(caught[-1].message)


def test_an_impossible_result_is_not_finished(tmp_path):
    done = next(t for t in records.load(write_search(tmp_path, trials=3)).trials if t.finished)
    assert not replace(done, error=float("inf")).finished
    assert not replace(done, error=float("nan")).finished
    assert not replace(done, error=-1.0).finished


def test_the_synthetic_schedules_are_schedules_of_the_package(tmp_path):
    for trial in records.load(write_search(tmp_path, trials=40)).trials:
        mean = schedules.from_dict(trial.config.schedule).extra_propagation(1000)
        assert mean == pytest.approx(trial.extra_propagation, abs=1e-6)


@pytest.mark.parametrize(("field", "value"), [("seed", 10**30), ("seed", -1), ("epochs", 2**63), ("number", -5)])
def test_a_number_that_no_search_writes_makes_a_damaged_line(tmp_path, field, value):
    path = write_search(tmp_path, trials=6) / records.LOG_NAME
    whole = len(records.load(tmp_path).trials)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    next(line for line in lines if line["event"] == "trial")[field] = value
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.warns(UserWarning, match="damaged line"):
        assert len(records.load(tmp_path).trials) == whole - 1

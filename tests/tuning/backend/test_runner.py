"""What a worker does, without Ray: slices, checkpoints, damaged files, full disks, errors and hung trials."""

import shutil
from dataclasses import replace

import pytest
import torch

from rst_tune.errors import InputError
from rst_tune.records import Status, TrialConfig
from rst_tune.training import metrics
from rst_tune.training.loop import Run
from rst_tune.training.task import Task
from rst_tune.training.workload import ClassifierWorkload
from rst_tune.tuning.backend.protocol import TaskKind, TrialReport, TrialTask
from rst_tune.tuning.backend.runner import StorageError, TrialContext, TrialRunner, checkpoint_folder, model_path

TASK = Task.model_validate(
    {
        "data": {"name": "digits", "validation": 200, "train_size": 256},
        "model": {"name": "mlp-tiny"},
        "recipe": {"base": "digits", "epochs": 4},
    }
)
CONFIG = TrialConfig(
    family="constant",
    schedule={"family": "constant", "p": 0.5},
    extra_propagation=0.5,
    gamma_gnr=2.0,
    gamma_rst=1.0,
    rho=0.1,
)
TASK_OF_TRIAL = TrialTask(
    kind=TaskKind.TRAIN, key="a-e4-s0", config=CONFIG, seed=0, epochs=4, rungs=(2,), replicate=True
)


@pytest.fixture
def context(tmp_path):
    workload = ClassifierWorkload.load(TASK)
    return TrialContext(workload=workload, directory=tmp_path, checkpoint_seconds=0.0, time_limit=7.0)


def reports(runner: TrialRunner) -> list[TrialReport]:
    """Return all reports up to the end."""
    found = [runner.advance()]
    while found[-1].status is Status.RUNNING:
        found.append(runner.advance())
    return found


def measured(found: list[TrialReport]) -> dict[str, list[float]]:
    """Return the history that the reports add up to: everything but times."""
    history: dict[str, list[float]] = {}
    for report in found:
        for name, column in report.epoch_metrics.items():
            history[name] = [*history.get(name, [])[: report.first_epoch - 1], *column]
    return {name: column for name, column in history.items() if name not in metrics.TIMINGS}


def test_each_epoch_is_reported_once_and_a_whole_history_arrives(context):
    found = reports(TrialRunner(TASK_OF_TRIAL, context))
    assert [(r.first_epoch, r.epoch) for r in found] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert [len(r.epoch_metrics["validation_error"]) for r in found] == [1, 1, 1, 1]
    assert found[-1].error == found[-1].epoch_metrics["validation_error"][-1]
    assert model_path(context.directory, TASK_OF_TRIAL.key).exists()


def test_a_trial_that_was_saved_at_a_rung_is_judged_there_before_it_goes_on(context):
    first = TrialRunner(TASK_OF_TRIAL, context)
    assert [first.advance().epoch, first.advance().epoch] == [1, 2]
    second = TrialRunner(TASK_OF_TRIAL, context)  # the worker that saved it may have died before the decision
    again = reports(second)
    assert [(r.first_epoch, r.epoch) for r in again] == [(1, 2), (3, 3), (4, 4)]
    shutil.rmtree(checkpoint_folder(context.directory, TASK_OF_TRIAL.key))
    assert measured(again) == measured(reports(TrialRunner(TASK_OF_TRIAL, context)))


def test_a_damaged_checkpoint_is_set_aside_and_the_trial_begins_anew(context):
    undisturbed = reports(TrialRunner(TASK_OF_TRIAL, context))
    shutil.rmtree(checkpoint_folder(context.directory, TASK_OF_TRIAL.key))
    TrialRunner(TASK_OF_TRIAL, context).advance()
    path = checkpoint_folder(context.directory, TASK_OF_TRIAL.key) / "run.pt"
    path.write_bytes(path.read_bytes()[:-500])
    found = reports(TrialRunner(TASK_OF_TRIAL, context))
    assert measured(found) == measured(undisturbed)
    (aside,) = (context.directory / "damaged").iterdir()
    assert found[-1].reason.startswith(f"a damaged checkpoint was set aside as {aside.name}")


@pytest.mark.parametrize("blocked", ["checkpoints", "models"])
def test_what_cannot_be_saved_is_an_error_of_the_storage_and_fails_no_trial(context, blocked):
    (context.directory / blocked).write_text("a file where a folder should be")
    with pytest.raises(StorageError, match="cannot be written") as caught:
        reports(TrialRunner(TASK_OF_TRIAL, context))
    assert f"{context.directory / blocked}" in str(caught.value)


def test_a_hung_trial_says_where_it_was(context):
    runner = TrialRunner(TASK_OF_TRIAL, context)
    assert not runner.exceeded_time_limit()
    runner.hang_file.parent.mkdir(parents=True)
    threads = [["io.py", "queue.py"], ["mine.py", "loop.py"]]
    heading = "Thread 0x1 (most recent call first):\n"
    frames = ["".join(f'  File "{name}", line 9 in f\n' for name in thread) for thread in threads]
    runner.hang_file.write_text("Timeout (0:00:07)!\n" + "\n".join(heading + each for each in frames))
    assert runner.exceeded_time_limit()
    report = runner.time_limit_report()
    assert report.status is Status.FAILED
    assert report.reason == 'not finished within the time limit of 7 s; it was at: File "mine.py", line 9 in f'


def break_in_epoch(monkeypatch: pytest.MonkeyPatch, number: int, error: Exception) -> None:
    """Let every training raise in the middle of an epoch."""
    whole = Run.epoch

    def epoch(run: Run) -> None:
        if run.epoch_index + 1 == number:
            run.steps(1)
            raise error
        whole(run)

    monkeypatch.setattr(Run, "epoch", epoch)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (ValueError("expected 3 channels, got 1"), Status.FAILED, "ValueError: expected 3 channels, got 1"),
        (RuntimeError("shapes cannot be multiplied"), Status.FAILED, "RuntimeError: shapes cannot be multiplied"),
        (InputError("mixup needs two images"), Status.FAILED, "mixup needs two images"),
        (torch.OutOfMemoryError("CUDA out of memory. 2 TiB\nmore"), Status.OUT_OF_MEMORY, "CUDA out of memory. 2 TiB"),
    ],
)
def test_an_error_in_training_is_a_report_with_its_message_and_all_pairs_up_to_it(
    context, monkeypatch, error, status, reason
):
    break_in_epoch(monkeypatch, 3, error)
    found = reports(TrialRunner(TASK_OF_TRIAL, context))
    last = found[-1]
    assert (last.status, last.reason, last.epoch) == (status, reason, 2)
    assert last.pairs > found[-2].pairs > 0, "the pairs of the broken epoch count as well"
    assert last.seconds > 0


@pytest.mark.parametrize(
    "error",
    [
        OSError(5, "Input/output error"),
        MemoryError(),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("[gloo] Connection closed by peer"),
    ],
)
def test_an_error_of_the_machine_is_raised_so_that_another_process_tries_again(context, monkeypatch, error):
    break_in_epoch(monkeypatch, 3, error)
    runner = TrialRunner(TASK_OF_TRIAL, context)
    with pytest.raises(type(error)):
        reports(runner)
    monkeypatch.undo()
    again = reports(TrialRunner(TASK_OF_TRIAL, context))
    assert again[-1].status is Status.COMPLETE
    assert again[0].first_epoch == 1, "the report that carried these epochs may be lost"


def test_a_model_that_cannot_be_built_fails_with_its_message_and_nothing_is_charged(context, monkeypatch):
    def broken(*_, **__):
        raise TypeError("net() missing 1 required positional argument: 'width'")

    monkeypatch.setattr("rst_tune.training.workload.Run", broken)
    report = TrialRunner(TASK_OF_TRIAL, context).advance()
    assert (report.status, report.pairs) == (Status.FAILED, 0.0)
    assert report.reason == "TypeError: net() missing 1 required positional argument: 'width'"


def test_the_test_set_is_read_with_the_saved_model_and_a_damaged_one_is_a_reason(context):
    task = replace(TASK_OF_TRIAL, kind=TaskKind.TEST, rungs=())
    reports(TrialRunner(TASK_OF_TRIAL, context))
    tested = TrialRunner(task, context).advance()
    assert 0 <= tested.error <= 100
    path = model_path(context.directory, task.key)
    path.write_bytes(path.read_bytes()[:-500])
    failed = TrialRunner(task, context).advance()
    assert failed.error is None
    assert failed.reason

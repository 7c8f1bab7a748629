"""The driver's half of the Ray backend, without a cluster: messages, losses, room for trials."""

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray.exceptions import RayTaskError
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from rst_tune.errors import InputError
from rst_tune.records import Status
from rst_tune.tuning import doctor
from rst_tune.tuning.backend import ray as module
from rst_tune.tuning.backend.protocol import DONE, TaskKind, TestReport, TrialReport, TrialTask
from rst_tune.tuning.backend.ray import DriverState, MessageScheduler, RayBackend, TaskSearcher, cluster_slots
from rst_tune.tuning.backend.resources import Resources
from rst_tune.tuning.backend.runner import checkpoint_folder
from rst_tune.tuning.backend.trainable import MESSAGE, TASK, StorageUnavailable, TaskTaken
from tests.tuning.backend.test_runner import CONFIG

TRAIN = TrialTask(kind=TaskKind.TRAIN, key="a-e4-s0", config=CONFIG, seed=0, epochs=4)
TEST = TrialTask(kind=TaskKind.TEST, key="a-e4-s0", config=CONFIG, seed=0, epochs=4)


@dataclass
class Controller:
    """Notes what it is told."""

    tasks: list = field(default_factory=list)
    calls: list = field(default_factory=list)
    goes_on: bool = True

    def next_task(self):
        task = self.tasks.pop(0)
        if isinstance(task, Exception):
            raise task
        return task

    def on_trial_start(self, key, **where):
        self.calls.append(("start", key, where))

    def on_report(self, report):
        self.calls.append(("report", report))
        return self.goes_on

    def on_trial_lost(self, key, reason):
        self.calls.append(("lost", key, reason))

    def on_test_report(self, report):
        self.calls.append(("test", report))


def state_of(tmp_path: Path, task: TrialTask, **about) -> DriverState:
    state = DriverState(Controller(**about), tmp_path)
    state.tasks["t1"] = task
    folder = checkpoint_folder(tmp_path, task.key)
    folder.mkdir(parents=True)
    (folder / "run.pt").touch()
    return state


def send(state: DriverState, message: object) -> str:
    trial = SimpleNamespace(trial_id="t1")
    return MessageScheduler(state).on_trial_result(None, trial, {MESSAGE: message})


def test_a_start_is_recorded_for_a_training_and_not_for_a_test(tmp_path: Path):
    taken = TaskTaken(key="a-e4-s0", node="n1", worker="17")
    state = state_of(tmp_path, TRAIN)
    assert send(state, taken) == TrialScheduler.CONTINUE
    assert state.controller.calls == [("start", "a-e4-s0", {"node": "n1", "worker": "17", "ray_trial": "t1"})]
    state.tasks["t1"], state.controller.calls = TEST, []
    assert send(state, taken) == TrialScheduler.CONTINUE
    assert state.controller.calls == []


@pytest.mark.parametrize("goes_on", [True, False])
def test_the_checkpoint_of_an_ended_trial_is_removed_after_its_end_is_recorded(tmp_path: Path, goes_on: bool):
    state = state_of(tmp_path, TRAIN, goes_on=goes_on)
    answer = send(state, TrialReport(key=TRAIN.key, status=Status.RUNNING, epoch=1))
    assert answer == (TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP)
    assert checkpoint_folder(tmp_path, TRAIN.key).exists() == goes_on


def test_a_lost_trial_has_the_real_error_and_keeps_its_checkpoint(tmp_path: Path):
    state = state_of(tmp_path, TRAIN)
    error = RayTaskError("step", "Traceback ...", OSError(5, "Input/output error"))
    path = tmp_path / "error.pkl"
    path.write_bytes(pickle.dumps(error))
    trial = SimpleNamespace(trial_id="t1", pickled_error_file=str(path), error_file=None)
    MessageScheduler(state).on_trial_error(None, trial)
    TaskSearcher(state).on_trial_complete("t1", error=True)
    [(kind, key, reason)] = state.controller.calls
    assert (kind, key) == ("lost", TRAIN.key)
    assert "OSError" in reason
    assert "Input/output error" in reason
    assert checkpoint_folder(tmp_path, TRAIN.key).exists()
    assert not state.tasks


def test_a_worker_that_died_without_an_error_is_lost_with_the_last_line_of_rays_own_text(tmp_path: Path):
    state = state_of(tmp_path, TRAIN)
    text = tmp_path / "error.txt"
    text.write_text("Failure # 1\n\nThe actor died unexpectedly before finishing this task.\n")
    trial = SimpleNamespace(trial_id="t1", pickled_error_file=None, error_file=str(text))
    MessageScheduler(state).on_trial_error(None, trial)
    TaskSearcher(state).on_trial_complete("t1", error=True)
    assert state.controller.calls == [
        ("lost", TRAIN.key, "The actor died unexpectedly before finishing this task."),
    ]


def test_a_lost_test_is_reported_without_an_error(tmp_path: Path):
    state = state_of(tmp_path, TEST)
    TaskSearcher(state).on_trial_complete("t1", error=True)
    reason = "the worker ended without a result"
    assert state.controller.calls == [("test", TestReport(key=TEST.key, error=None, reason=reason))]


def test_one_nodes_io_error_does_not_end_the_search_and_the_drivers_own_does(tmp_path: Path):
    output = tmp_path / "output"
    state = state_of(output, TRAIN)
    message = StorageUnavailable(key=TRAIN.key, node="n2", reason="/mnt/run.pt cannot be written: I/O error")
    assert send(state, message) == TrialScheduler.CONTINUE
    assert state.fatal is None
    state.directory = tmp_path / "gone"
    assert send(state, message) == TrialScheduler.STOP
    assert isinstance(state.fatal, OSError)
    assert "cannot be written" in str(state.fatal)
    assert state.controller.calls == [], "no trial failed"


def test_an_error_of_the_driver_stops_everything_and_the_first_one_is_kept(tmp_path: Path):
    full = OSError(28, "No space left on device")
    state = state_of(tmp_path, TRAIN, tasks=[TRAIN, None, full, DONE])
    searcher = TaskSearcher(state)
    assert searcher.suggest("t2") == {TASK: TRAIN}
    assert searcher.suggest("t3") is None
    assert searcher.suggest("t4") == Searcher.FINISHED
    assert state.fatal is full
    assert send(state, TrialReport(key=TRAIN.key, status=Status.RUNNING)) == TrialScheduler.STOP
    assert state.controller.calls == []
    assert state.fatal is full


# --- room -------------------------------------------------------------------------------------------------------

SMALL_NODE, BIG_NODE = {"CPU": 2.0}, {"CPU": 8.0, "GPU": 2.0}


@pytest.mark.parametrize(
    ("nodes", "resources", "slots"),
    [
        ([SMALL_NODE], {}, 2),
        ([SMALL_NODE, BIG_NODE], {"cpus_per_worker": 2}, 5),
        ([SMALL_NODE], {"gpus_per_worker": 1}, 0),
        ([BIG_NODE], {"gpus_per_worker": 0.25}, 8),
        ([BIG_NODE], {"gpus_per_worker": 0.5, "workers": 2}, 2),
        ([SMALL_NODE, SMALL_NODE], {"cpus_per_worker": 2, "workers": 2}, 1),
        ([], {}, 0),
    ],
)
def test_slots_are_the_trials_that_fit_at_a_time(monkeypatch, nodes, resources, slots):
    monkeypatch.setattr(module, "_nodes", lambda: nodes)
    assert cluster_slots(Resources(**resources)) == slots


def test_more_resources_than_the_cluster_has_are_refused_with_what_is_there_and_what_is_asked(monkeypatch):
    monkeypatch.setattr(module, "_nodes", lambda: [SMALL_NODE, SMALL_NODE])
    backend = RayBackend(None, Resources(gpus_per_worker=1, cpus_per_worker=4, workers=2))
    with pytest.raises(InputError) as caught:
        backend.wait_for_room(0.0, print)
    message = str(caught.value)
    assert message.startswith(
        "a trial needs 2 workers of 4 CPU and 1 GPU each, but the cluster has 2 nodes (2 CPU and 0"
    )
    assert "lower resources.cpus_per_worker, gpus_per_worker or workers" in message


def test_with_an_autoscaler_it_waits_says_so_and_uses_the_node_that_joins(monkeypatch):
    asked, said, nodes = [], [], [SMALL_NODE]
    monkeypatch.setattr(module, "_nodes", lambda: nodes)
    monkeypatch.setattr("ray.autoscaler.sdk.request_resources", lambda bundles: asked.append(bundles))
    monkeypatch.setattr(module.time, "sleep", lambda _: nodes.append(BIG_NODE))
    backend = RayBackend(None, Resources(gpus_per_worker=1))
    backend.wait_for_room(5.0, said.append)
    assert asked == [[{"CPU": 1.0, "GPU": 1.0}]]
    assert "waiting up to 5 minutes" in said[0]
    assert backend.slots == 2


def test_a_node_that_joins_later_is_counted(monkeypatch):
    nodes, clock = [SMALL_NODE], [0.0]
    monkeypatch.setattr(module, "_nodes", lambda: nodes)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    backend = RayBackend(None, Resources())
    assert backend.slots == 2
    nodes.append(BIG_NODE)
    assert backend.slots == 2, "it is not counted for every task"
    clock[0] += module.SLOTS_SECONDS + 1
    assert backend.slots == 10


def test_the_slots_of_this_machine_count_workers_and_fractions_of_gpus(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(doctor.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(doctor.torch.cuda, "device_count", lambda: 1)
    assert doctor.slots_of(Resources(cpus_per_worker=2), None) == 4
    assert doctor.slots_of(Resources(cpus_per_worker=1, gpus_per_worker=0.25), None) == 4
    assert doctor.slots_of(Resources(cpus_per_worker=1, gpus_per_worker=0.5, workers=2), None) == 1
    assert doctor.slots_of(Resources(gpus_per_worker=1, workers=2), None) == 0

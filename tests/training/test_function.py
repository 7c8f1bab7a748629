"""A user's training function: slices, exact resume, random state, messages, and how it reaches a worker."""

import math
import pickle
import random
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import own_functions
import pytest
import torch
from torch import nn

from rst_tune.errors import InputError
from rst_tune.records import Metric
from rst_tune.training import metrics
from rst_tune.training.checkpoint import CheckpointError
from rst_tune.training.function import FunctionTask, FunctionWorkload
from rst_tune.training.function_run import FunctionRun, RunSpec
from rst_tune.training.task import Method
from rst_tune.training.user_code import UserCode
from rst_tune.training.workload import LEAST_STEPS

HALF = Method(schedule={"family": "constant", "p": 0.5}, gamma_gnr=2.0)
EPOCHS = 5


def make_run(function=own_functions.regression, **changes) -> FunctionRun:
    given = {"name": "own", "method": HALF, "metric": Metric(name="RMSE", unit=""), "rho": 0.05, "seed": 3}
    return FunctionRun(RunSpec(**{**given, "epochs": EPOCHS, "function": function, **changes}))


def finish(run) -> dict[str, list[float]]:
    while not run.finished:
        run.epoch()
    return {name: values for name, values in run.history.items() if name not in metrics.TIMINGS}


def weights(run) -> list[float]:
    return [float(v) for p in run.model.state_dict().values() for v in p.flatten()]


def test_a_training_is_run_epoch_by_epoch_and_has_exact_pairs():
    run = make_run()
    first = run.epoch()
    assert run.epoch_index == 1
    assert not run.finished
    assert {"RMSE", "averaged", "pairs", "seconds"} <= set(first)
    finish(run)
    assert run.status == "complete"
    assert run.error == run.last_metrics["RMSE"]
    assert run.pairs == run.optimizer.t + run.optimizer.ascents
    assert run.optimizer.t == EPOCHS * own_functions.STEPS
    assert run.extra_propagation == pytest.approx(0.5)


@pytest.mark.parametrize("at", range(1, EPOCHS))
def test_a_resumed_training_is_the_same_to_the_last_bit(tmp_path: Path, at: int):
    whole = make_run()
    expected = finish(whole)
    first = make_run()
    for _ in range(at):
        first.epoch()
    first.save(tmp_path / "run.pt")
    first.close()
    torch.manual_seed(99)  # another process has another random state
    second = make_run()
    second.restore(tmp_path / "run.pt")
    assert second.epoch_index == at
    assert finish(second) == expected
    assert weights(second) == weights(whole)


def test_interleaved_trainings_do_not_disturb_each_other_nor_the_process():
    expected = [finish(make_run(seed=seed)) for seed in (1, 2)]
    torch.manual_seed(5), np.random.seed(5), random.seed(5)
    before = (torch.rand(()), np.random.rand(), random.random())
    torch.manual_seed(5), np.random.seed(5), random.seed(5)
    runs = [make_run(seed=seed) for seed in (1, 2)]
    for _ in range(EPOCHS):
        for run in runs:
            run.epoch()
    assert [finish(run) for run in runs] == expected
    assert (torch.rand(()), np.random.rand(), random.random()) == before


def test_what_follows_the_loop_runs_for_the_test_alone(tmp_path: Path):
    notes = []
    run = make_run(options={"log": lambda kind, _: notes.append(kind)})
    finish(run)
    assert notes == ["epoch"] * EPOCHS
    run.save(tmp_path / "model.pt")
    run.close()
    assert notes[-1] == "end", "a stopped function leaves its `finally` blocks"
    assert "test" not in notes
    tested = make_run(options=run.spec.options)
    tested.restore(tmp_path / "model.pt")
    test_error = tested.test()["test_error"]
    assert test_error == own_functions.rmse(run.model, *own_functions.make_data(64, seed=5))


def test_a_stopped_training_leaves_no_thread_behind():
    before = threading.active_count()
    runs = [make_run() for _ in range(3)]
    for run in runs:
        run.epoch()
        run.close()
    assert threading.active_count() == before


def test_a_metric_that_is_not_finite_ends_the_training_as_diverged():
    run = make_run(partial(own_functions.regression, lr=1e30))
    finish(run)
    assert run.status == "diverged"
    assert all(map(math.isfinite, run.history.get("RMSE", [])))


def test_a_maximized_metric_is_flipped_once():
    def train(trial):
        model = nn.Linear(1, 1)
        opt = trial.optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, steps_per_epoch=1)
        for _ in trial.epochs():
            opt.step(lambda: model(torch.ones(1, 1)).square().mean())
            trial.report(accuracy=0.75)
        return 0.5

    run = make_run(train, metric=Metric(name="accuracy", unit="", direction="maximize"))
    finish(run)
    assert (run.error, run.last_metrics["accuracy"], run.test()["test_error"]) == (0.25, 0.75, 0.5)


# --- wrong functions --------------------------------------------------------------------------------------------


def wrong(body):
    """Return a function whose loop does `body(trial, opt, step)`."""

    def train(trial):
        model = nn.Linear(1, 1)
        opt = trial.optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, steps_per_epoch=2)
        for _ in trial.epochs():
            body(trial, opt, lambda: opt.step(lambda: model(torch.ones(1, 1)).square().mean()))

    return train


def never_reports(trial, opt, step):
    step(), step()


def too_seldom(trial, opt, step):
    step(), trial.report(1.0)


def too_often(trial, opt, step):
    step(), step(), step(), trial.report(1.0)


def better_than_best(trial, opt, step):
    step(), step(), trial.report(-1.0)


def another_name(trial, opt, step):
    step(), step(), trial.report(loss=1.0)


def a_text(trial, opt, step):
    step(), step(), trial.report("low")


def reserved(trial, opt, step):
    step(), step(), trial.report(1.0, pairs=3)


def exits(trial, opt, step):
    sys.exit(3)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (never_reports, r"each epoch must end with trial\.report\(.*epoch 1 did not"),
        (too_seldom, r"must take 2 optimizer steps.*epoch 1 took 1: pass steps_per_epoch=1"),
        (too_often, r"must take 2 optimizer steps.*epoch 1 took 3: pass steps_per_epoch=3"),
        (better_than_best, r"no value of RMSE may be better than 0.*set `best`"),
        (another_name, r"needs the metric 'RMSE', but got \['loss'\]"),
        (a_text, r"takes numbers, but RMSE is of type str"),
        (reserved, r"pairs are measured by the search"),
        (exits, r"must return, but it called sys\.exit\(3\)"),
    ],
)
def test_a_wrong_loop_gets_a_message_that_says_what_to_do(body, message):
    with pytest.raises(InputError, match=message):
        make_run(wrong(body)).epoch()


def no_loop(trial):
    model = nn.Linear(1, 1)
    trial.optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, steps_per_epoch=2)


def no_optimizer(trial):
    for _ in trial.epochs():
        trial.report(1.0)


def leaves(trial):
    model = nn.Linear(1, 1)
    opt = trial.optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, steps_per_epoch=1)
    for _ in trial.epochs():
        opt.step(lambda: model(torch.ones(1, 1)).square().mean())
        trial.report(1.0)
        if opt.t == 2:
            break


def stateless(trial):
    for _ in trial.epochs(counter=[0]):
        pass


def own_rho(trial):
    model = nn.Linear(1, 1)
    trial.optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, steps_per_epoch=1, rho=1.0)


def no_steps(trial):
    model = nn.Linear(1, 1)
    trial.optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_loop, r"must train in `for epoch in trial\.epochs\(\):`, but it returned without it"),
        (no_optimizer, r"must train with trial\.optimizer\(base, model, steps_per_epoch=\.\.\.\)"),
        (leaves, r"left the loop after 1 of 5 epochs: remove the break"),
        (stateless, r"trial\.epochs\(counter=\.\.\.\) takes objects with state_dict.*of type list"),
        (own_rho, r"rho come from the trial"),
        (no_steps, r"steps_per_epoch must be a whole number above 0, but got None"),
    ],
)
def test_a_wrong_function_gets_a_message_that_says_what_to_do(function, message):
    with pytest.raises(InputError, match=message):
        finish(make_run(function))


def test_the_functions_own_error_is_raised_as_it_is():
    def train(trial):
        raise KeyError("column")

    with pytest.raises(KeyError, match="column"):
        make_run(train).epoch()


def test_a_state_that_cannot_be_read_back_is_named_at_the_first_checkpoint(tmp_path: Path):
    class Keeper:
        def state_dict(self):
            return {"where": Path("a")}

        def load_state_dict(self, state):
            raise NotImplementedError

    def train(trial):
        model = nn.Linear(1, 1)
        opt = trial.optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, steps_per_epoch=1)
        for _ in trial.epochs(keeper=Keeper()):
            opt.step(lambda: model(torch.ones(1, 1)).square().mean())
            trial.report(1.0)

    run = make_run(train)
    run.epoch()
    with pytest.raises(InputError, match="the state of keeper must consist of tensors"):
        run.save(tmp_path / "run.pt")
    run.close()


@pytest.mark.parametrize("changes", [{"seed": 4}, {"epochs": 6}, {"function": own_functions.plain}])
def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path, changes: dict):
    run = make_run()
    run.epoch()
    run.save(tmp_path / "run.pt")
    run.close()
    with pytest.raises(CheckpointError):
        make_run(**changes).restore(tmp_path / "run.pt")


# --- the workload, and how it travels ---------------------------------------------------------------------------


def task(**changes) -> FunctionTask:
    return FunctionTask.of(own_functions.regression, epochs=EPOCHS, metric="RMSE", **changes)


def test_the_steps_per_epoch_are_found_before_anything_is_trained():
    notes = []
    workload = FunctionTask.of(own_functions.regression, epochs=EPOCHS, options={"log": notes.append}).workload()
    workload.check(["sam", "sam-on"])
    assert workload.steps_per_epoch == own_functions.STEPS
    assert notes == []


def test_a_rule_that_does_not_fit_the_model_is_an_input_error():
    with pytest.raises(InputError, match=r"^space\.rules: .*sam-on"):
        FunctionTask.of(no_loop, epochs=2).workload().check(["sam-on"])


def test_an_error_before_the_optimizer_is_an_input_error_with_the_remedy():
    def train(trial):
        raise FileNotFoundError("set.csv")

    with pytest.raises(InputError, match=r"FileNotFoundError: set\.csv.*task\.steps_per_epoch"):
        FunctionTask.of(train, epochs=2).workload().check(["sam"])
    FunctionTask.of(train, epochs=2, steps_per_epoch=3).workload().check(["sam"])


def test_steps_that_differ_between_trials_are_refused():
    workload = task(steps_per_epoch=own_functions.STEPS + 1).workload()
    with pytest.raises(InputError, match=r"must have the 5 steps per epoch .*this one has 4"):
        workload.start(HALF, seed=0, epochs=2).epoch()


def test_single_steps_are_timed_with_their_pairs():
    steps = task().workload().timed_steps(HALF, "cpu", seconds=0.05)
    assert len(steps) >= LEAST_STEPS
    assert {(step.pairs, step.ascent) for step in steps} == {(1.0, False), (2.0, True)}
    assert all(step.seconds > 1e-6 for step in steps)


MODULE = "from helper_of_mine import lr\n\ndef train(trial):\n    return lr\n"
LOADS = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).load()(None))"


def test_a_module_beside_the_yaml_reaches_a_node_that_does_not_have_it(tmp_path: Path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "module_of_mine.py").write_text(MODULE)
    (folder / "helper_of_mine.py").write_text("lr = 0.5\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    code = UserCode.of_name("module_of_mine:train", (str(folder),))
    assert set(code.files) == {"module_of_mine.py", "helper_of_mine.py"}
    (tmp_path / "code.pkl").write_bytes(pickle.dumps(code))
    for name in ("module_of_mine", "helper_of_mine"):
        del sys.modules[name]
    folder.rename(tmp_path / "elsewhere")
    run = [sys.executable, "-c", LOADS, str(tmp_path / "code.pkl")]
    assert subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, check=True).stdout.strip() == "0.5"


def test_a_function_without_a_module_travels_by_value(tmp_path: Path):
    rate = 0.25
    code = UserCode.of_function(lambda trial: rate)
    (tmp_path / "code.pkl").write_bytes(pickle.dumps(code))
    run = [sys.executable, "-c", LOADS, str(tmp_path / "code.pkl")]
    assert subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, check=True).stdout.strip() == "0.25"


def test_a_function_that_cannot_travel_gets_a_clear_message():
    lock = threading.Lock()
    with pytest.raises(InputError, match=r"must be picklable to reach the workers.*Create what it uses inside"):
        UserCode.of_function(lambda trial: lock)


@pytest.mark.parametrize("name", ["os:system", "no_module_of_mine:train", "a function"])
def test_a_name_that_is_no_function_of_the_users_is_refused(name: str):
    with pytest.raises((InputError, ValueError), match="training function"):
        FunctionTask(function=name, epochs=2).workload()


def test_a_workload_is_pickled_without_the_driver(tmp_path: Path):
    workload = task().workload()
    workload.check(["sam"])
    again = pickle.loads(pickle.dumps(workload))
    assert isinstance(again, FunctionWorkload)
    assert again.steps_per_epoch == own_functions.STEPS
    here, there = (finish(each.start(HALF, seed=1, epochs=2)) for each in (workload, again))
    assert here == there

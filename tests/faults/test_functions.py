"""Searches over training functions: the driver and a worker are killed, and the search ends where it would have."""

import json
import shutil
import signal
from pathlib import Path

import pytest
from ray.tune import Tuner

from rst_tune import api
from rst_tune.records import Role, load
from tests.faults import fault_functions
from tests.faults.agreement import assert_front_agrees, assert_mlflow_agrees, assert_study_agrees
from tests.faults.harness import assert_whole, checkpointed, driver, events, kill, run, starts, story, write_experiment

ACCURACY = {"name": "accuracy", "direction": "maximize"}
TASKS = {"regression": "RMSE", "text": ACCURACY, "lightning": {"name": "MSE"}}
SMALL = {
    "space": "constant",
    "budget": {"trials": 4},
    "sampler": {"name": "random"},
    "confirm": {"candidates": 1, "min_seeds": 1, "max_seeds": 1},
}


def write(folder: Path, name: str) -> Path:
    """Write the experiment, with the module of the function beside it, where no worker looks by itself."""
    folder.mkdir(parents=True)
    shutil.copy(fault_functions.__file__, folder / "my_training.py")
    task = {"function": f"my_training:{name}", "epochs": 4, "metric": TASKS[name]}
    return write_experiment(folder, name=name, task=task, tracking={"enabled": name == "regression"}, **SMALL)


@pytest.mark.parametrize("name", TASKS)
def test_a_killed_search_over_a_function_ends_with_the_same_record(cluster, tmp_path, name, long, say):
    if name != "regression" and not long:
        pytest.skip("`make faults` runs it")
    undisturbed, path = tmp_path / "undisturbed" / "output", write(tmp_path / "here", name)
    run(write(tmp_path / "undisturbed", name), undisturbed, cluster.address)
    output = tmp_path / "here" / "output"
    with driver(path, output, cluster.address) as search:
        search.until(lambda: checkpointed(output), "a checkpoint")
        kill(int(starts(output)[-1]["worker"]))
        search.until(lambda: len(starts(output)) > 1, "another attempt")
        search.until(lambda: len([e for e in events(output) if e["event"] == "end"]) > 1, "two trials")
        search.signal(signal.SIGKILL)
        search.wait()
    run(path, output, cluster.address)
    assert_whole(output)
    assert story(output) == story(undisturbed)
    assert_study_agrees(output, at_least=1)
    if name == "regression":
        assert_mlflow_agrees(output)
    assert_front_agrees(output)
    found = api.analyze(output)
    metric = found.search.metric
    assert f"{metric.name} " in found.answer
    assert "error" not in found.answer
    confirmed = [t for t in found.search.trials if t.role is Role.CONFIRM and t.finished]
    assert confirmed
    assert all(t.test_error is not None for t in confirmed), "the test set is read for replicates"
    assert all(t.test_error is None for t in found.search.trials if t.role is Role.SEARCH)
    assert metric.name in next(t.history for t in confirmed)
    say(f"a search over a function ({name}): a worker, then the driver", 2)


def test_a_search_over_a_function_says_what_is_wrong_with_it(cluster, tmp_path):
    path = write(tmp_path / "here", "regression")
    source = (tmp_path / "here" / "my_training.py").read_text()
    (tmp_path / "here" / "my_training.py").write_text(source.replace("trial.report(_rmse", "trial.report and (_rmse"))
    output = tmp_path / "here" / "output"
    with driver(path, output, cluster.address) as search:
        assert search.wait() == 1
        assert "each epoch must end with trial.report(...), but epoch 1 did not" in search.text
    (tmp_path / "here" / "my_training.py").write_text(source)
    with driver(path, output, cluster.address) as search:
        assert search.wait() == 2
        assert "holds another search (code of the function was" in search.text
    run(path, output, cluster.address, options=("--overwrite",))
    assert_whole(output)
    assert json.loads((output / "front.json").read_text())[0]["metric"] == "RMSE"
    assert load(output).done
    assert not Tuner.can_restore(str(output / "ray" / "tune")), "the event log is the truth"

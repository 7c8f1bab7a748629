"""Two gloo processes on one run: the same result as one process on the joined batch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from distributed_worker import outcome, settings

from rst_tune.training import metrics
from rst_tune.training.loop import Run

WORKER = Path(__file__).with_name("distributed_worker.py")


def train_together(folder, model, world=2):
    processes = [
        subprocess.Popen([sys.executable, str(WORKER), str(rank), str(world), str(folder), model])
        for rank in range(world)
    ]
    try:
        assert [process.wait(timeout=600) for process in processes] == [0] * world
    finally:
        for process in processes:
            process.kill()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]


@pytest.fixture(scope="module", params=["mlp-tiny", "cnn-tiny"])
def model(request):
    """Without and with batch normalization."""
    return request.param


@pytest.fixture(scope="module")
def together(tmp_path_factory, model):
    return train_together(tmp_path_factory.mktemp("together"), model)


@pytest.fixture(scope="module")
def alone(model):
    task, method = settings(model)
    run = Run(task, method, seed=3, device="cpu")
    while not run.finished:
        run.epoch()
    return outcome(run)


def test_two_processes_equal_one_on_the_joined_batch(together, alone):
    assert alone["test"]["test_error"] < 60
    for result in (process[0] for process in together):
        assert result["weights"] == pytest.approx(alone["weights"], abs=2e-5)
        assert result["test"] == pytest.approx(alone["test"], abs=1e-3)
        assert result["sharpness"] == pytest.approx(alone["sharpness"], rel=1e-3)
        assert set(result["history"]) == set(alone["history"])
        for name, values in alone["history"].items():
            assert result["history"][name] == pytest.approx(values, abs=1e-3), name


def test_both_tossed_the_same_coin(together, alone):
    first, second = (process[0] for process in together)
    assert first["coins"] == second["coins"] == alone["coins"]
    assert first["ascents"] == second["ascents"] == alone["ascents"] == sum(alone["coins"])


def test_both_hold_the_same_run_also_after_a_stop_in_the_middle(together):
    first, second = together
    assert first == second
    assert first[0] == first[1]
    assert first[0]["history"][metrics.PAIRS][-1] == 20 + first[0]["ascents"]

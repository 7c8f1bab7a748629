"""One run: exact repetition, stops in the middle, divergence, metrics."""

import json
import math
import sys

import numpy as np
import pytest
import torch

from rst_tune.errors import InputError
from rst_tune.method.ascent import RULES
from rst_tune.training import distributed, metrics
from rst_tune.training.checkpoint import CheckpointError
from rst_tune.training.loop import Run
from rst_tune.training.task import Method, Task

HALF = Method(schedule={"family": "constant", "p": 0.5}, gamma_gnr=2.0)
PLAIN = Method(schedule={"family": "constant", "p": 0.0})


def small_task(**recipe):
    model = recipe.pop("model", {"name": "cnn-tiny", "options": {"width": 4, "dropout": 0.2}})
    augment = recipe.pop("augment", ("flip", "crop", "cutout", "mixup"))
    base = {"base": "digits", "epochs": 2, "batch_size": 100, "cutout_size": 3}
    return Task.model_validate(
        {"data": {**Task().data.model_dump(), "augment": augment}, "model": model, "recipe": {**base, **recipe}}
    )


def start(digits, method=HALF, seed=0, **recipe):
    return Run(small_task(**recipe), method, seed=seed, data=digits, device="cpu")


def restored(run, path):
    run.restore(path)
    return run


def finish(run):
    while not run.finished:
        run.epoch()
    return run


def result(run):
    """Everything that must repeat bit for bit: weights, statistics, history without the clock, counters."""
    state = {name: value.clone() for name, value in run.model.state_dict().items()}
    history = {name: values for name, values in run.history.items() if name not in metrics.TIMINGS}
    return state, history, run.pairs, run.optimizer.ascents, run.test(), run.status


def assert_same(one, other):
    assert one[1:] == other[1:]
    assert all(torch.equal(one[0][name], other[0][name]) for name in one[0])


def test_a_run_measures_what_is_documented(digits):
    run = finish(start(digits))
    assert run.status == "complete"
    assert run.epoch_index == run.total_epochs == 2
    assert run.total_steps == 2 * run.steps_per_epoch == 20
    assert tuple(run.history) == metrics.EPOCH_METRICS
    assert all(len(values) == 2 for values in run.history.values())
    last = run.last_metrics
    assert last[metrics.PAIRS] == run.total_steps + run.optimizer.ascents
    assert last[metrics.REALIZED_EXTRA_PROPAGATION] == pytest.approx(run.optimizer.ascents / run.total_steps)
    assert last[metrics.EXTRA_PROPAGATION] == 0.5
    parts = [last[f"seconds_{phase}"] for phase in ("data", "pass1", "pass2", "step", "evaluation")]
    assert min(parts) > 0
    assert last[metrics.SECONDS] == pytest.approx(sum(parts))
    with pytest.raises(InputError, match="complete cannot be trained further"):
        run.epoch()


def test_the_same_seed_repeats_and_another_does_not(digits):
    first = result(finish(start(digits, seed=1)))
    assert_same(first, result(finish(start(digits, seed=1))))
    assert first[1] != result(finish(start(digits, seed=2)))[1]


def test_a_run_neither_sees_nor_changes_the_random_state_of_its_process(digits):
    alone = result(finish(start(digits)))
    finish(start(digits, seed=9))
    torch.manual_seed(123)
    state = torch.get_rng_state()
    after_another = result(finish(start(digits)))
    assert torch.equal(state, torch.get_rng_state())
    assert_same(alone, after_another)


def test_two_runs_in_turns_do_not_disturb_each_other(digits):
    expected = [result(finish(start(digits, seed=seed))) for seed in (0, 1)]
    runs = [start(digits, seed=seed) for seed in (0, 1)]
    for _ in range(2):
        for run in runs:
            run.steps(3)
        for run in runs:
            run.epoch()
    for run, wanted in zip(runs, expected, strict=True):
        assert_same(result(run), wanted)


@pytest.mark.parametrize(
    ("rule", "stop"), [*[("sam", stop) for stop in (0, 10, 13)], *[(rule, 7) for rule in RULES.names()]]
)
def test_a_continued_run_is_bit_identical(digits, tmp_path, stop, rule):
    gamma = 1.0 if RULES[rule].passes_ahead else HALF.gamma_gnr  # with one gradient there is nothing to mix
    method = HALF.model_copy(update={"rule": rule, "gamma_gnr": gamma})
    uninterrupted = result(finish(start(digits, method)))
    run = start(digits, method)
    for _ in range(stop // run.steps_per_epoch):
        run.epoch()
    run.steps(stop % run.steps_per_epoch)
    run.save(tmp_path / "run.pt")
    run.steps(2)
    continued = start(digits, method)
    continued.steps(1)
    continued.restore(tmp_path / "run.pt")
    assert continued.step_index == stop
    assert_same(result(finish(continued)), uninterrupted)


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_every_base_optimizer_continues_exactly(digits, tmp_path, optimizer):
    settings = {"optimizer": optimizer, "lr": 0.01, "weight_decay": 0.01, "warmup_epochs": 0.5, "max_grad_norm": 1.0}
    expected = result(finish(start(digits, **settings)))
    run = start(digits, **settings)
    run.steps(4)
    run.save(tmp_path / "run.pt")
    assert_same(result(finish(restored(start(digits, **settings), tmp_path / "run.pt"))), expected)
    assert expected[1][metrics.TRAIN_LOSS][1] < expected[1][metrics.TRAIN_LOSS][0]


def test_progress_trains_the_same_run_and_counts_every_step(digits):
    run = start(digits)
    seen = list(run.progress(every=4))
    assert [each.step for each in seen] == [4, 8, 10, 10, 14, 18, 20, 20]
    assert [each.metrics is not None for each in seen] == [False, False, False, True] * 2
    assert_same(result(run), result(finish(start(digits))))


def test_a_damaged_or_foreign_checkpoint_is_an_error_that_names_the_file(digits, tmp_path):
    path = tmp_path / "run.pt"
    run = start(digits)
    with pytest.raises(CheckpointError, match=r"no checkpoint at .*run\.pt"):
        run.restore(path)
    run.save(path)
    with pytest.raises(CheckpointError, match=r"run\.pt belongs to another run"):
        start(digits, seed=1).restore(path)
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"not a checkpoint", whole[:200] + b"\0" * 200 + whole[400:]):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"run\.pt"):
            run.restore(path)


def test_a_checkpoint_is_continued_after_its_data_moved_but_not_with_other_data(tmp_path):
    images, labels = np.zeros((64, 8, 8), dtype=np.uint8), np.arange(64) % 4
    arrays = {"x_train": images, "y_train": labels, "x_test": images[:16], "y_test": labels[:16]}
    recipe = {"base": "digits", "epochs": 2, "batch_size": 16}

    def start(name):
        data = {"name": "npz", "root": str(tmp_path / name), "validation": 16}
        return Run(Task.model_validate({"data": data, "recipe": recipe}), HALF)

    np.savez(tmp_path / "here.npz", **arrays)
    run = start("here.npz")
    run.epoch()
    run.save(tmp_path / "run.pt")
    (tmp_path / "here.npz").rename(tmp_path / "there.npz")
    moved = start("there.npz")
    moved.restore(tmp_path / "run.pt")
    assert moved.epoch_index == 1
    np.savez(tmp_path / "other.npz", **arrays | {"y_train": labels[::-1]})
    with pytest.raises(CheckpointError, match="belongs to another run"):
        start("other.npz").restore(tmp_path / "run.pt")


def test_a_checkpoint_cannot_run_code(digits, tmp_path, capfd):
    class Payload:
        def __reduce__(self):
            return (print, ("ran",))

    torch.save({"identity": Payload()}, tmp_path / "run.pt")
    with pytest.raises(CheckpointError, match=r"run\.pt"):
        start(digits).restore(tmp_path / "run.pt")
    assert "ran" not in capfd.readouterr().out.split()


def test_a_checkpoint_does_not_choose_the_model(digits, tmp_path, monkeypatch):
    """Only the caller names the task; a factory named in the file is compared as text."""
    run = start(digits)
    run.save(tmp_path / "run.pt")
    state = torch.load(tmp_path / "run.pt", weights_only=True)
    identity = json.loads(state["identity"])
    identity["task"]["model"]["name"] = "antigravity:fly"
    torch.save({**state, "identity": json.dumps(identity, sort_keys=True)}, tmp_path / "run.pt")
    with pytest.raises(CheckpointError, match="belongs to another run"):
        run.restore(tmp_path / "run.pt")
    assert "antigravity" not in sys.modules
    assert not hasattr(Run, "load")


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {}},
        {"model": 3},
        {"optimizer": []},
        {"optimizer": {"state": 1}},
        {"status": "asleep"},
        {"status": 1},
        {"epoch_index": "one"},
        {"epoch_index": 10**9},
        {"epoch_index": -1},
        {"epoch_index": None},
        {"step_in_epoch": 10**9},
        {"history": []},
        {"history": {"train_loss": 3}},
        {"history": {"train_loss": [1.0, 2.0, 3.0]}},
        {"loss_sums": None},
        {"seconds": 7},
    ],
)
def test_a_state_of_other_types_does_not_fit(digits, tmp_path, changes):
    run = start(digits)
    run.save(tmp_path / "run.pt")
    torch.save({**torch.load(tmp_path / "run.pt", weights_only=True), **changes}, tmp_path / "run.pt")
    with pytest.raises(CheckpointError, match=r"run\.pt does not fit this run"):
        run.restore(tmp_path / "run.pt")


def test_an_interrupted_save_leaves_the_old_checkpoint(digits, tmp_path, monkeypatch):
    run = start(digits)
    run.save(tmp_path / "run.pt")
    run.steps(3)

    def full_disk(*_):
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full_disk)
        with pytest.raises(OSError, match="no space"):
            run.save(tmp_path / "run.pt")
    assert [each.name for each in tmp_path.iterdir()] == ["run.pt"]
    assert restored(start(digits), tmp_path / "run.pt").step_index == 0


def test_a_loss_that_is_not_finite_ends_the_run_with_its_last_good_metrics(digits, tmp_path):
    run = start(digits, epochs=3)
    good = run.epoch()
    with torch.no_grad():
        next(run.model.parameters()).fill_(math.inf)
    assert run.epoch() == good == run.last_metrics
    assert run.status == "diverged"
    assert run.finished
    assert run.pairs > good[metrics.PAIRS]
    run.save(tmp_path / "run.pt")
    assert restored(start(digits, epochs=3), tmp_path / "run.pt").status == "diverged"
    json.dumps(run.history, allow_nan=False)


def test_a_rate_far_too_high_diverges_without_any_metrics(digits):
    run = start(digits, lr=1e30, model={"name": "mlp-tiny"}, augment=())
    assert run.epoch() == {}
    assert run.status == "diverged"


@pytest.mark.parametrize(
    "settings", [{"precision": "bf16"}, {"channels_last": True}, {"compile": "eager"}, {"label_smoothing": 0.1}]
)
def test_settings_of_the_loop_train_as_well(digits, settings):
    plain, changed = finish(start(digits)), finish(start(digits, **settings))
    assert changed.status == "complete"
    assert changed.pairs == plain.pairs
    assert changed.history[metrics.TRAIN_LOSS] == pytest.approx(plain.history[metrics.TRAIN_LOSS], rel=0.2)


@pytest.mark.parametrize("silent", [{"rho": 0.0}, {"gamma_gnr": 0.0}])
def test_no_radius_or_no_share_is_the_base_optimizer(digits, silent):
    run = finish(start(digits, HALF.model_copy(update=silent)))
    assert run.extra_propagation == run.last_metrics[metrics.REALIZED_EXTRA_PROPAGATION] == 0
    assert all(
        torch.equal(weight, other)
        for weight, other in zip(run.model.parameters(), finish(start(digits, PLAIN)).model.parameters(), strict=True)
    )


def test_fewer_epochs_make_a_shorter_horizon(digits):
    task = small_task(epochs=10, warmup_epochs=5.0)
    run = Run(task, PLAIN, epochs=2, data=digits)
    assert run.total_steps == 20
    rates = []
    while not run.finished:
        while run.steps(1):
            rates.append(run.optimizer.param_groups[0]["lr"])
        run.epoch()
    assert rates[:10] == pytest.approx([0.01 * step for step in range(1, 11)])
    assert rates[10:] == pytest.approx([0.05 * (1 + math.cos(math.pi * step / 10)) for step in range(10)])


def test_sharpness_is_the_loss_rise_uphill_and_leaves_the_weights(digits):
    run = start(digits)
    run.epoch()
    before = [weight.clone() for weight in run.model.parameters()]
    first, second = run.sharpness(), run.sharpness()
    assert first == second
    assert all(torch.equal(weight, old) for weight, old in zip(run.model.parameters(), before, strict=True))
    assert set(first) == {metrics.SHARPNESS, metrics.GRADIENT_NORM, metrics.SAMPLE_LOSS}
    # To first order the rise is rho times the gradient norm; a tiny rho makes that exact enough to check.
    run.rho = 1e-3
    assert run.sharpness()[metrics.SHARPNESS] == pytest.approx(1e-3 * first[metrics.GRADIENT_NORM], rel=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 1001}, "at most the number of training images"),
        ({"augment": ("resized-crop",)}, "from files"),
        ({"compile": "inductr"}, "did you mean 'inductor'"),
    ],
)
def test_what_does_not_fit_the_data_is_refused_before_training(digits, change, message):
    with pytest.raises(InputError, match=message):
        start(digits, **change)


def test_zero_epochs_are_refused(digits):
    with pytest.raises(InputError, match="`epochs` must be at least 1, got 0"):
        Run(Task(), HALF, epochs=0, data=digits)


@pytest.mark.parametrize("steps_per_epoch", [1, 10])
@pytest.mark.parametrize(("epochs", "warmup"), [(1, 0.0), (1, 0.5), (1, 0.99), (1200, 40.0)])
def test_one_epoch_is_a_training_also_with_warmup(digits, epochs, warmup, steps_per_epoch):
    task = small_task(epochs=epochs, warmup_epochs=warmup, batch_size=1000 // steps_per_epoch, optimizer="adam")
    run = finish(Run(task, HALF, epochs=1, data=digits, device="cpu"))
    assert run.status == "complete"
    assert run.step_index == run.total_steps == steps_per_epoch


@pytest.fixture
def two_devices(monkeypatch):
    """Two CUDA devices, as far as the choice of a device asks."""
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    return chosen


@pytest.mark.parametrize(
    ("given", "rank", "device"), [(None, 1, "cuda:1"), ("cuda:1", 0, "cuda:1"), ("cuda", 0, "cuda:0")]
)
def test_a_cuda_device_becomes_the_current_one(two_devices, monkeypatch, given, rank, device):
    monkeypatch.setattr(distributed, "rank", lambda: rank)
    assert distributed.select_device(given) == torch.device(device)
    assert two_devices == [torch.device(device)]


def test_the_cpu_of_a_machine_with_cuda_stays_the_cpu(two_devices):
    assert distributed.select_device("cpu") == torch.device("cpu")
    assert two_devices == []


@pytest.mark.parametrize(
    ("given", "message"), [("gpu", "must be cpu, cuda"), ("cuda:7", "does not exist"), ("", "must be cpu, cuda")]
)
def test_a_device_that_does_not_exist_is_refused(given, message, digits):
    with pytest.raises(InputError, match=message):
        Run(small_task(), HALF, data=digits, device=given)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_device_trains_in_bf16_and_times_its_phases(digits):
    run = finish(Run(small_task(), HALF, data=digits))
    assert run.device.type == "cuda"
    assert run.status == "complete"
    assert min(run.last_metrics[name] for name in metrics.TIMINGS) > 0

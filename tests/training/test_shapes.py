"""The paper's models on data of CIFAR's shape, and a run over files: a few real steps on the CPU."""

import numpy as np
import pytest
import torch
from PIL import Image

from rst_tune.training.data import load_dataset
from rst_tune.training.loop import Run
from rst_tune.training.task import Method, Task

ALWAYS = Method(schedule={"family": "constant", "p": 1.0})


@pytest.fixture(scope="module")
def cifar_like(tmp_path_factory):
    path = tmp_path_factory.mktemp("cifar") / "cifar10.npz"
    generator = np.random.default_rng(0)
    images = {name: generator.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8) for name in ("x_train", "x_test")}
    np.savez(path, **images, y_train=np.arange(40) % 10, y_test=np.arange(40) % 10)
    return str(path)


@pytest.mark.parametrize(("model", "recipe"), [("resnet18", "cifar-cnn"), ("vit-ti", "cifar-vit")])
def test_the_papers_recipes_train_on_data_of_cifars_shape(cifar_like, model, recipe):
    task = Task.model_validate(
        {
            "data": {"name": "npz", "root": cifar_like, "validation": 20},
            "model": {"name": model},
            "recipe": {"base": recipe, "epochs": 1, "warmup_epochs": 0.5, "batch_size": 10, "lr": 0.01},
        }
    )
    run = Run(task, ALWAYS, device="cpu")
    before = [weight.clone() for weight in run.model.parameters()]
    while not run.finished:
        run.epoch()
    assert run.status == "complete"
    assert run.pairs == 2 * run.total_steps == 4
    assert not any(torch.equal(old, new) for old, new in zip(before, run.model.parameters(), strict=True))
    assert all(torch.isfinite(weight).all() for weight in run.model.parameters())


@pytest.fixture
def folder_task(tmp_path):
    for part in ("train", "val"):
        for label, shade in (("dark", 40), ("light", 200)):
            (tmp_path / part / label).mkdir(parents=True)
            for number in range(8):
                pixels = np.random.default_rng(number).integers(shade - 30, shade + 30, (24, 30, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / part / label / f"{number}.png")
    data = {"name": "folder", "root": str(tmp_path), "image_size": 16, "validation": 4, "workers": 0}
    recipe = {"base": "imagenet-cnn", "epochs": 6, "batch_size": 4}
    return Task.model_validate({"data": data, "recipe": recipe})


def test_a_run_over_files_learns_and_continues_bit_for_bit(folder_task, tmp_path):
    data = load_dataset(folder_task.data)
    whole = Run(folder_task, ALWAYS, device="cpu", data=data)
    while not whole.finished:
        whole.epoch()
    assert whole.test()["test_error"] == 0
    stopped = Run(folder_task, ALWAYS, device="cpu", data=data)
    stopped.epoch()
    stopped.steps(2)
    stopped.save(tmp_path / "run.pt")
    continued = Run(folder_task, ALWAYS, device="cpu", data=data)
    continued.restore(tmp_path / "run.pt")
    while not continued.finished:
        continued.epoch()
    pairs = zip(whole.model.parameters(), continued.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert whole.sharpness() == continued.sharpness()

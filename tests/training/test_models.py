"""Every registered model: published size, output, seeded weights; and the user's own."""

import builtins

import pytest
import torch
from torch import nn

from rst_tune.errors import InputError
from rst_tune.training import models
from rst_tune.training.models import MODELS, build_model, parameter_count

CIFAR = (3, 32, 32)
IMAGENET = (3, 64, 64)

# name: (image, classes, parameters). The tiny ones are counted by hand, ResNet-50/101 are torchvision's published
# numbers, the rest are the millions published for CIFAR-10.
PUBLISHED = {
    "mlp-tiny": ((1, 8, 8), 10, 64 * 64 + 64 + 64 * 10 + 10),
    "cnn-tiny": ((1, 8, 8), 10, 9 * 16 + 2 * 9 * 16 * 16 + 3 * 32 + 16 * 10 + 10),
    "resnet18": (CIFAR, 10, 11_173_962),
    "vgg16-bn": (CIFAR, 10, 14_728_266),
    "wrn-28-10": (CIFAR, 10, 36_479_194),
    "pyramidnet-164": (CIFAR, 10, 27_216_021),
    "vit-ti": (CIFAR, 10, 5_362_762),
    "vit-s": (CIFAR, 10, 21_342_346),
    "vit-b": (CIFAR, 10, 85_152_010),
    "resnet50": (IMAGENET, 1000, 25_557_032),
    "resnet101": (IMAGENET, 1000, 44_549_160),
}


def pair(num_classes, channels=3):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes))


def too_narrow(num_classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes - 1))


def not_a_model(num_classes):
    return num_classes


@pytest.mark.parametrize("name", MODELS.names())
def test_parameter_counts_are_the_published_ones(name):
    shape, classes, published = PUBLISHED[name]
    # Shapes alone are enough to count and to run the check of the output; no number is drawn or computed.
    with torch.device("meta"):
        assert parameter_count(build_model(name, classes, shape)) == published


@pytest.mark.parametrize("name", ["mlp-tiny", "cnn-tiny", "resnet18"])
def test_weights_come_from_the_seed_alone(name):
    def weights(seed):
        return torch.cat([weight.flatten() for weight in build_model(name, 10, (1, 8, 8), seed=seed).parameters()])

    state = torch.get_rng_state()
    first = weights(1)
    assert torch.equal(state, torch.get_rng_state())
    torch.rand(3)
    assert torch.equal(first, weights(1))
    assert not torch.equal(first, weights(2))


def test_a_model_of_the_users_is_called_with_the_number_of_classes():
    model = build_model(f"{__name__}:pair", 7, CIFAR, {"channels": 3})
    assert model(torch.zeros(5, *CIFAR)).shape == (5, 7)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cnn-tny", {}, "did you mean 'cnn-tiny'"),
        ("no_such_package:factory", {}, "must be importable"),
        (f"{__name__}:no_such_factory", {}, "must be importable"),
        (f"{__name__}:PUBLISHED", {}, "can be called"),
        (f"{__name__}:not_a_model", {}, "must return a torch.nn.Module"),
        (f"{__name__}:too_narrow", {}, r"must map 2 images to shape \(2, 10\), got \(2, 9\)"),
        ("cnn-tiny", {"depth": 3}, "does not take the options"),
        ("vit-ti", {"patch_size": 5}, "multiple of `patch_size`"),
    ],
)
def test_a_wrong_model_is_refused_before_training(name, options, message):
    with pytest.raises(InputError, match=message):
        build_model(name, 10, CIFAR, options)


def test_a_model_that_cannot_take_the_images_is_refused():
    with pytest.raises(InputError, match="3 channels"):
        build_model("vgg16-bn", 10, (1, 32, 32))
    with pytest.raises(InputError, match="cannot take images"):
        build_model("vgg16-bn", 10, (3, 8, 8))


@pytest.mark.parametrize(("name", "package"), [("vit-ti", "timm"), ("wrn-28-10", "pytorchcv")])
def test_a_missing_extra_is_named(name, package, monkeypatch):
    def without(module):
        if module.split(".")[0] == package:
            raise ModuleNotFoundError(module)
        return builtins.__import__(module)

    monkeypatch.setattr(models.importlib, "import_module", without)
    with pytest.raises(InputError, match=rf"{package}, which is not installed: pip install 'rst_tune\[models\]'"):
        build_model(name, 10, CIFAR)

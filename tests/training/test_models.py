"""Every registered model: published size, output, seeded weights; and the user's own."""

import builtins
import sys

import pytest
import torch
from torch import nn
from torch.hub import load  # noqa: F401 - a module may re-export a loader

from rst_tune.errors import InputError
from rst_tune.training import models
from rst_tune.training.factories import resolve_factory
from rst_tune.training.models import MODELS, build_model, known_model
from rst_tune.training.task import ModelSpec

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


def raises(num_classes, error):
    raise getattr(builtins, error)("no")


class Fails(nn.Module):
    def forward(self, images):
        return images.no_such_attribute


def fails_later(num_classes):
    return Fails()


def not_a_model(num_classes):
    return num_classes


@pytest.mark.parametrize("name", MODELS.names())
def test_parameter_counts_are_the_published_ones(name):
    shape, classes, published = PUBLISHED[name]
    # Shapes alone are enough to count and to run the check of the output; no number is drawn or computed.
    with torch.device("meta"):
        weights = build_model(name, classes, shape).parameters()
    assert sum(weight.numel() for weight in weights if weight.requires_grad) == published


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
        (f"{__name__}:PUBLISHED", {}, "must name a function or class"),
        (f"{__name__}:load", {}, "torch.hub is a library module"),
        (f"{__name__}:raises", {"error": "KeyError"}, "does not take the options"),
        (f"{__name__}:fails_later", {}, "cannot take images"),
        (f"{__name__}:not_a_model", {}, "must return a torch.nn.Module"),
        (f"{__name__}:too_narrow", {}, r"must map 2 images to shape \(2, 10\), got \(2, 9\)"),
        ("cnn-tiny", {"depth": 3}, "does not take the options"),
        *[
            (name, {"width": width}, "`width` must be a whole number of at least 1")
            for name in ("cnn-tiny", "mlp-tiny")
            for width in ("x", -1, 0, 2.5, {"a": 1}, None, True)
        ],
        ("cnn-tiny", {"width": 10**14}, "does not take the options"),
        ("cnn-tiny", {"dropout": "x"}, "does not take the options"),
        ("mlp-tiny", {"dropout": 2}, "does not take the options"),
        ("mlp-tiny", {"classes": 3}, "does not take the options"),
        ("resnet18", {"weights": "x"}, "does not take the options"),
        ("resnet50", {"width_per_group": {}}, "does not take the options"),
        ("vit-ti", {"patch_size": 0}, "does not take the options|multiple of `patch_size`"),
        ("vit-ti", {"patch_size": "x"}, "does not take the options"),
        ("wrn-28-10", {"no_such_option": 1}, "does not take the options"),
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


@pytest.mark.parametrize(
    "name",
    [
        "torch.hub:load",
        "torch:load",
        "os:system",
        "subprocess:run",
        "runpy:run_path",
        "importlib:import_module",
        "builtins:exec",
        "pickle:load",
        "cloudpickle:load",
        "joblib:load",
        "numpy:load",
        "mlflow.pytorch:load_model",
    ],
)
def test_a_function_of_a_library_is_no_factory(name):
    for call in (known_model, resolve_factory, lambda each: build_model(each, 10, CIFAR, {"repo_or_dir": "."})):
        with pytest.raises(InputError, match=r"is a library module: a factory takes \(num_classes, \*\*options\)"):
            call(name)


@pytest.mark.parametrize("name", ["a:b.c", "a:", ":b", "a b:c", "a:b:c", "../a:b", "a..b:c", "1a:b", "a:b()", "a:b\n"])
def test_a_name_that_is_no_name_of_a_factory_is_refused(name):
    with pytest.raises(InputError, match=r"'package\.module:factory'"):
        known_model(name)


def test_a_factory_is_named_without_importing_it_and_found_beside_the_experiment(tmp_path, monkeypatch):
    ran = tmp_path / "ran"
    (tmp_path / "beside_yaml.py").write_text(
        f"open({str(ran)!r}, 'w').close()\n"
        "from torch import nn\n"
        "def pair(num_classes):\n"
        "    import beside_helper\n"
        "    return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes))\n"
    )
    (tmp_path / "beside_helper.py").write_text("")
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert known_model("beside_yaml:pair") == ModelSpec(name="beside_yaml:pair").name
    assert not ran.exists()
    with pytest.raises(InputError, match="must be importable: ModuleNotFoundError"):
        resolve_factory("beside_yaml:pair")
    assert callable(resolve_factory("beside_yaml:pair", search_path=[tmp_path]))
    assert ran.exists()
    assert build_model("beside_yaml:pair", 4, CIFAR)(torch.zeros(1, *CIFAR)).shape == (1, 4)


@pytest.mark.parametrize("content", ["raise SystemExit(3)", "1 / 0", "def f(:", "import no_such_module_at_all"])
def test_a_module_that_cannot_be_imported_is_an_input_error(content, tmp_path, monkeypatch):
    name = f"broken_{abs(hash(content))}"
    (tmp_path / f"{name}.py").write_text(content)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(InputError, match="must be importable"):
        resolve_factory(f"{name}:factory", search_path=[tmp_path])

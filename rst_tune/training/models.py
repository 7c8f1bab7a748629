"""Models by name: two tiny ones, the paper's from torchvision, timm and pytorchcv, and the user's own."""

import importlib
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rst_tune.errors import InputError
from rst_tune.registry import Registry
from rst_tune.training.factories import Factory, check_factory_name, resolve_factory

Shape = tuple[int, int, int]

MODELS: Registry[Factory] = Registry("model")
"""Factories called as `factory(classes, (channels, height, width), **options)`."""


@MODELS.register("mlp-tiny", "one hidden layer, no batch normalization")
def mlp_tiny(classes: int, shape: Shape, *, width: int = 64, dropout: float = 0.0) -> nn.Module:
    """Return a perceptron with one hidden layer."""
    _check_width(width)
    inputs = shape[0] * shape[1] * shape[2]
    layers = [nn.Flatten(), nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, classes)]
    return nn.Sequential(*layers)


@MODELS.register("cnn-tiny", "three convolutions of 16 channels with batch normalization, the embedded default")
def cnn_tiny(classes: int, shape: Shape, *, width: int = 16, dropout: float = 0.0) -> nn.Module:
    """Return three 3x3 convolutions with batch normalization, two max poolings and one average pooling."""
    _check_width(width)
    layers: list[nn.Module] = []
    channels = shape[0]
    for pooling in (nn.MaxPool2d(2), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)):
        convolution = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(width), nn.ReLU(), pooling]
        channels = width
    head = [nn.Flatten(), nn.Dropout(dropout), nn.Linear(width, classes)]
    return nn.Sequential(*layers, *head)


@MODELS.register("resnet18", "ResNet-18 with the CIFAR stem (3x3, no pooling)", "He et al., CVPR 2016")
def resnet18(classes: int, shape: Shape, **options: Any) -> nn.Module:
    """Return torchvision's ResNet-18 with its first convolution and pooling replaced for small images."""
    from torchvision.models import resnet18 as torchvision_resnet18

    model: nn.Module = torchvision_resnet18(num_classes=classes, **options)
    stem = nn.Conv2d(shape[0], 64, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")
    model.conv1, model.maxpool = stem, nn.Identity()
    return model


@MODELS.register("vgg16-bn", "VGG-16 with batch normalization, one linear layer on top", "Simonyan & Zisserman, 2015")
def vgg16_bn(classes: int, shape: Shape) -> nn.Module:
    """Return torchvision's VGG-16-BN features with global pooling and one linear layer, as used on CIFAR."""
    from torchvision.models.vgg import cfgs, make_layers

    _three_channels("vgg16-bn", shape)
    features: nn.Module = make_layers(cfgs["D"], batch_norm=True)
    for layer in features.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def _pytorchcv(name: str, classes: int, shape: Shape, **options: Any) -> nn.Module:
    provider = _optional("pytorchcv.model_provider", "pytorchcv")
    model: nn.Module = provider.get_model(name, num_classes=classes, in_channels=shape[0], in_size=shape[1:], **options)
    return model


def _timm_vit(name: str, classes: int, shape: Shape, *, patch_size: int = 4, **options: Any) -> nn.Module:
    if shape[1] != shape[2] or shape[1] % patch_size:
        raise InputError(
            f"{name} needs square images whose side is a multiple of `patch_size`, got {shape[1]}x{shape[2]} and "
            f"patch_size={patch_size}: set `patch_size` in the model's options"
        )
    model: nn.Module = _optional("timm", "timm").create_model(
        name, num_classes=classes, in_chans=shape[0], img_size=shape[1], patch_size=patch_size, **options
    )
    return model


def _torchvision(name: str, classes: int, shape: Shape, **options: Any) -> nn.Module:
    from torchvision import models

    _three_channels(name, shape)
    model: nn.Module = models.get_model(name, num_classes=classes, **options)
    return model


MODELS.add("wrn-28-10", partial(_pytorchcv, "wrn28_10_cifar10"), "WideResNet-28-10", "Zagoruyko & Komodakis, 2016")
MODELS.add(
    "pyramidnet-164",
    partial(_pytorchcv, "pyramidnet164_a270_bn_cifar10"),
    "PyramidNet-164, widening 270, bottleneck",
    "Han et al., CVPR 2017",
)
for _size, _name in (("ti", "tiny"), ("s", "small"), ("b", "base")):
    MODELS.add(
        f"vit-{_size}",
        partial(_timm_vit, f"vit_{_name}_patch16_224"),
        f"ViT-{_size.title()} with patches of 4 for 32x32 images",
        "Dosovitskiy et al., ICLR 2021",
    )
MODELS.add("resnet50", partial(_torchvision, "resnet50"), "ResNet-50 for ImageNet", "He et al., CVPR 2016")
MODELS.add("resnet101", partial(_torchvision, "resnet101"), "ResNet-101 for ImageNet", "He et al., CVPR 2016")


def known_model(name: str) -> str:
    """Return `name` if it is registered or written as `package.module:factory`. Nothing is imported."""
    if ":" in name:
        return check_factory_name(name)
    MODELS[name]
    return name


def build_model(
    name: str, classes: int, shape: Shape, options: Mapping[str, Any] | None = None, *, seed: int = 0
) -> nn.Module:
    """Return the model with weights drawn from `seed` alone. The global random state is not changed.

    A user's `package.module:factory` is imported and called as `factory(num_classes=classes, **options)`: who builds
    a task from a file decides before whether that file may name code.
    """
    options = options or {}
    factory = (
        partial(resolve_factory(name), num_classes=classes) if ":" in name else partial(MODELS[name], classes, shape)
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        try:
            model = factory(**options)
        except InputError:
            raise
        except Exception as error:  # a factory checks its options in its own way, with errors of any kind
            raise InputError(
                f"model {name!r} does not take the options {options}: {type(error).__name__}: {error}"
            ) from error
    return _checked(name, model, classes, shape)


def _checked(name: str, model: object, classes: int, shape: Shape) -> nn.Module:
    """Return the model after checking with one forward pass that it maps these images to the classes."""
    if not isinstance(model, nn.Module):
        raise InputError(f"the factory {name!r} must return a torch.nn.Module, it returned {type(model).__name__}")
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            output = model.eval()(torch.zeros(2, *shape))
    except Exception as error:  # a forward pass is code of the model
        raise InputError(f"model {name!r} cannot take images of shape {shape}: {error}") from error
    if not isinstance(output, Tensor) or output.shape != (2, classes):
        found = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InputError(f"model {name!r} must map 2 images to shape {(2, classes)}, got {found}")
    return model.train()


def _optional(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"this model comes from {package}, which is not installed: pip install 'rst_tune[models]'"
        ) from error


def _three_channels(name: str, shape: Shape) -> None:
    if shape[0] != 3:
        raise InputError(f"{name} takes images of 3 channels, these have {shape[0]}: choose resnet18 or cnn-tiny")


def _check_width(width: object) -> None:
    if not isinstance(width, int) or isinstance(width, bool) or width < 1:
        raise InputError(f"`width` must be a whole number of at least 1, got {width!r}")

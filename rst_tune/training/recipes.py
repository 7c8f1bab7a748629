"""Recipes as data: the paper's three tables of hyperparameters, and the recipe of the embedded task.

The paper gives neither the momentum of SGD (0.9 here, as in the SAM paper) nor the mixup alpha (0.2 here).
Its weight decay for Adam is applied decoupled from the gradient: added to the gradient, 0.03 would dominate the loss.
"""

from typing import Any

from rst_tune.registry import Registry

RECIPES: Registry[dict[str, Any]] = Registry("recipe")

_PAPER = "RST paper, appendix 'Training Details'"

_CIFAR_CNN: dict[str, Any] = {
    "epochs": 200,
    "batch_size": 256,
    "optimizer": "sgd",
    "lr": 0.1,
    "momentum": 0.9,
    "weight_decay": 0.001,
    "rho": 0.1,
    "augment": ("flip", "crop"),
}

RECIPES.add(
    "digits",
    {
        "epochs": 20,
        "batch_size": 64,
        "optimizer": "sgd",
        "lr": 0.1,
        "momentum": 0.9,
        "weight_decay": 0.0,
        "rho": 0.2,
        "augment": (),
    },
    "the embedded task, trains in seconds on one core",
)
RECIPES.add("cifar-cnn", _CIFAR_CNN, "convolutional nets on CIFAR, 200 epochs of SGD", _PAPER)
RECIPES.add(
    "cifar-pyramidnet",
    {**_CIFAR_CNN, "weight_decay": 0.0005},
    "cifar-cnn with the weight decay the paper uses for PyramidNet",
    _PAPER,
)
RECIPES.add(
    "cifar-vit",
    {
        "epochs": 1200,
        "warmup_epochs": 40.0,
        "batch_size": 256,
        "optimizer": "adam",
        "lr": 0.0005,
        "weight_decay": 0.03,
        "decoupled_weight_decay": True,
        "rho": 0.1,
        "augment": ("flip", "crop", "mixup"),
    },
    "vision transformers on CIFAR, 1200 epochs of Adam with warm-up and mixup",
    _PAPER,
)
RECIPES.add(
    "imagenet-cnn",
    {
        "epochs": 100,
        "batch_size": 512,
        "optimizer": "sgd",
        "lr": 0.2,
        "momentum": 0.9,
        "weight_decay": 0.0001,
        "rho": 0.05,
        "augment": ("resized-crop", "flip"),
    },
    "convolutional nets on ImageNet, 100 epochs of SGD",
    _PAPER,
)

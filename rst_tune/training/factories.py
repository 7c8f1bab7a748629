"""Code of the user's own, named `package.module:function`: a model factory or a training function.

Naming one is data; importing one runs code.
"""

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch import nn

from rst_tune.errors import InputError

Factory = Callable[..., nn.Module]

FACTORY_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
NOT_FACTORIES = frozenset(
    {
        *sys.stdlib_module_names,
        *("torch", "numpy", "scipy", "pandas", "sklearn", "joblib", "cloudpickle", "dill"),
        *("ray", "mlflow", "optuna", "huggingface_hub", "transformers", "pip", "setuptools", "pkg_resources"),
    }
)
"""Top-level modules whose functions run commands, unpickle files or load code (torch.hub.load, runpy.run_path)."""


def check_factory_name(name: str, kind: str = "model") -> str:
    """Return `name` if it is written as `package.module:factory` and may be imported. Nothing is imported.

    >>> check_factory_name("my_models:wide")
    'my_models:wide'
    """
    if not FACTORY_NAME.fullmatch(name):
        raise InputError(
            f"a {kind} of your own must be given as 'package.module:factory', a function of that module, got {name!r}"
        )
    _refuse_library(name, name.partition(":")[0], kind)
    return name


def resolve_factory(
    name: str, search_path: Iterable[str | os.PathLike[str]] = (), kind: str = "model"
) -> Callable[..., Any]:
    """Import the module of `package.module:factory` and return the factory. This runs the user's code.

    The directories of `search_path`, such as that of the experiment's YAML file, are appended to `sys.path` and
    stay there, because a factory may import its helpers when it is called. A failed import is an InputError.
    """
    module, _, attribute = check_factory_name(name, kind).partition(":")
    for folder in (str(Path(each).absolute()) for each in search_path):
        if folder not in sys.path:
            sys.path.append(folder)
    try:
        factory: Any = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # the module is code and may raise anything
        raise InputError(
            f"the {kind} {name!r} must be importable: {type(error).__name__}: {error}. Install its package or put the "
            "module beside the experiment's file"
        ) from error
    if not callable(factory):
        raise InputError(f"{name!r} must name a function or class, it is of type {type(factory).__name__}")
    # A module may re-export a loader of a library under its own name.
    _refuse_library(name, getattr(factory, "__module__", None) or module, kind)
    return factory  # type: ignore[no-any-return]


def _refuse_library(name: str, module: str, kind: str) -> None:
    if module.partition(".")[0] in NOT_FACTORIES:
        raise InputError(
            f"{name!r} must be a {kind} factory of your own, and {module} is a library module: a factory takes "
            "(num_classes, **options) and returns a torch.nn.Module; write one in a module of yours that makes the call"
            if kind == "model"
            else f"{name!r} must be a {kind} of your own, and {module} is a library module: write one that calls it"
        )

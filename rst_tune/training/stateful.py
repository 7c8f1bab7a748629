"""The state of a user's objects and of the global random generators, as plain data that a checkpoint can hold."""

import io
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rst_tune.errors import InputError


def check_stateful(name: str, each: Any) -> None:
    """Raise where the state of an object cannot be saved."""
    generator = isinstance(each, torch.Generator | np.random.Generator | random.Random)
    if not generator and not all(callable(getattr(each, f, None)) for f in ("state_dict", "load_state_dict")):
        raise InputError(
            f"trial.epochs({name}=...) takes objects with state_dict and load_state_dict, or random generators, but "
            f"{name} is of type {type(each).__name__}: give the object one of its own, or keep it out and rebuild it"
        )


def get_state(each: Any) -> Any:
    """Return the state of a stateful object as plain data."""
    if isinstance(each, torch.Generator):
        return each.get_state()
    if isinstance(each, np.random.Generator):
        return _plain(each.bit_generator.state)
    return each.getstate() if isinstance(each, random.Random) else each.state_dict()


def set_state(each: Any, state: Any) -> None:
    """Set the state that `get_state` returned."""
    if isinstance(each, torch.Generator):
        each.set_state(state)
    elif isinstance(each, np.random.Generator):
        each.bit_generator.state = _arrays(state)
    elif isinstance(each, random.Random):
        each.setstate(state)
    else:
        each.load_state_dict(state)


def _plain(value: Any) -> Any:
    """Return a numpy state with tensors instead of arrays, which a checkpoint does not hold."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    # A bit generator's words are unsigned: torch keeps their bits as signed numbers.
    return (
        torch.from_numpy(value.view(np.int64 if value.itemsize == 8 else np.int32).copy())
        if isinstance(value, np.ndarray)
        else value
    )


def _arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _arrays(part) for name, part in value.items()}
    if isinstance(value, torch.Tensor):
        return value.numpy().view(np.uint64 if value.dtype == torch.int64 else np.uint32)
    return value


class RandomState:
    """The state of Python's, numpy's and torch's global generators."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self.state = dict(state) if state is not None else self._now()

    @staticmethod
    def _now() -> dict[str, Any]:
        _, keys, *rest = np.random.get_state(legacy=True)
        return {
            "python": random.getstate(),
            "numpy": [torch.from_numpy(np.asarray(keys).view(np.int32).copy()), *rest],
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    @classmethod
    def seeded(cls, seed: int) -> "RandomState":
        """Return the state after seeding all generators; the present one is left as it is."""
        before = cls()
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        made = cls()
        before.set()
        return made

    def set(self) -> None:
        """Make this the present state."""
        random.setstate(self.state["python"])
        keys, *rest = self.state["numpy"]
        np.random.set_state(("MT19937", keys.numpy().view(np.uint32), *rest))
        torch.set_rng_state(self.state["torch"])
        if self.state["cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(self.state["cuda"])


def check_readable(states: Mapping[str, Any]) -> None:
    """Raise where a state could be written but not read back: checkpoints are read without executing code."""
    for name, state in states.items():
        file = io.BytesIO()
        try:
            torch.save(state, file)
            file.seek(0)
            torch.load(file, weights_only=True)
        except Exception as error:  # whatever pickling and its restricted reader raise
            raise InputError(
                f"the state of {name} must consist of tensors, numbers, texts, lists and dicts, because a checkpoint "
                f"is read without executing code, but it does not: {str(error).strip().splitlines()[0]}"
            ) from error

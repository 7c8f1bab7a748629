"""A table of trainings that grows on demand: what a search asks for first is trained, then kept for all others.

Searches run in threads. Once all of them wait for a training, everything that is missing is trained in one ensemble.
"""

import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from ensemble import Member, SuiteTask, train

from rst_tune.records import TrialConfig, config_id
from rst_tune.tuning.space import Params, TaskScale, trial_config

Curve = dict[int, float]
Key = tuple[str, int]
T = TypeVar("T")

TABLES = Path(__file__).parent / "tables"
TRUTH_SEED, TRUTH_SEEDS = 1_000_000_000, 12
# Validation errors are counts of wrong answers; this one stands for a training that diverged.
DIVERGED = np.uint16(65535)
MAX_ENSEMBLE = 256


class Bank:
    """The trainings of one task by (configuration, seed)."""

    def __init__(self, task: SuiteTask, *, keep: bool = True) -> None:
        self.task = task
        self.scale = TaskScale(epochs=task.epochs, steps_per_epoch=task.steps_per_epoch, rho=task.rho)
        self.trained = 0
        self._path = TABLES / f"{task.name}.npz" if keep else None
        self._params: dict[str, Params] = {}
        self._configs: dict[str, TrialConfig] = {}
        self._curves: dict[Key, Curve] = {}
        self._wanted: dict[Key, TrialConfig] = {}
        self._ready = threading.Condition()
        self._active = self._waiting = 0
        self._failed: BaseException | None = None
        self._load()

    def config(self, params: Params) -> TrialConfig:
        """Return what is trained for parameters."""
        identity = config_id(params)
        if identity not in self._configs:
            self._configs[identity] = trial_config(params, self.scale)
        return self._configs[identity]

    def curve(self, config: TrialConfig, seed: int) -> Curve:
        """Return the validation errors at the rungs of a training; train it where it is missing."""
        key = (config_id(config.params), seed)
        with self._ready:
            if key not in self._curves:
                self._wanted[key] = config
                self._waiting += 1
                if self._waiting >= self._active:
                    self._train_wanted()
                while key not in self._curves:
                    if self._failed is not None:
                        raise RuntimeError("another search of this run has failed") from self._failed
                    self._ready.wait()
                self._waiting -= 1
            return self._curves[key]

    def error(self, config: TrialConfig, seed: int) -> float:
        """Return the final validation error; NaN where the training diverged."""
        curve = self.curve(config, seed)
        return curve[max(curve)]

    def trainings(self) -> list[Key]:
        """Return (configuration, seed) of every training."""
        return list(self._curves)

    def params(self, identity: str) -> Params:
        """Return the parameters of a configuration."""
        return self._params[identity]

    def run(self, searches: Iterable[Callable[[], T]]) -> list[T]:
        """Run searches at once, so that their trainings are batched; return their results in order."""
        searches = list(searches)
        self._active = len(searches)

        def work(search: Callable[[], T]) -> T:
            try:
                return search()
            except BaseException as error:
                with self._ready:  # the others wait for trainings that may never come
                    self._failed = self._failed or error
                    self._ready.notify_all()
                raise
            finally:
                with self._ready:
                    self._active -= 1
                    if self._waiting and self._waiting >= self._active:
                        self._train_wanted()

        with ThreadPoolExecutor(max(len(searches), 1)) as pool:
            return list(pool.map(work, searches))

    def truth(self, configs: Sequence[TrialConfig], seeds: int = TRUTH_SEEDS) -> np.ndarray:
        """Return the errors of fresh seeds, one row per configuration; a diverged training has the error of chance."""
        chance = 100 * (1 - 1 / self.task.classes)
        names, numbers = [config_id(c.params) for c in configs], range(TRUTH_SEED, TRUTH_SEED + seeds)
        self._train_missing({(name, s): c for name, c in zip(names, configs, strict=True) for s in numbers})
        curves = [[self._curves[name, seed] for seed in numbers] for name in names]
        errors = np.array([[curve[max(curve)] for curve in row] for row in curves])
        return np.where(np.isnan(errors), chance, errors)

    def train(self, trainings: Sequence[tuple[TrialConfig, int]]) -> None:
        """Train what is missing, in ensembles."""
        self._train_missing({(config_id(c.params), seed): c for c, seed in trainings})

    def _train_missing(self, trainings: Mapping[Key, TrialConfig]) -> None:
        with self._ready:
            self._wanted |= {key: c for key, c in trainings.items() if key not in self._curves}
            self._train_wanted()

    def _train_wanted(self) -> None:
        wanted = sorted(self._wanted.items(), key=lambda item: -item[1].horizon)
        for first in range(0, len(wanted), MAX_ENSEMBLE):
            part = wanted[first : first + MAX_ENSEMBLE]
            members = [Member(c, seed, self.scale.epochs_of(c.params)) for (_, seed), c in part]
            for (key, config), curve in zip(part, train(self.task, members), strict=True):
                self._params[key[0]] = dict(config.params)
                self._curves[key] = curve
            self.trained += len(part)
        self._wanted.clear()
        self._ready.notify_all()

    # --- the file -------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        if self._path is None or not self._path.exists():
            return
        with np.load(self._path) as file:
            params = json.loads(bytes(file["params"]).decode())
            names, seeds, epochs, wrong = (file[n] for n in ("config", "seed", "epoch", "wrong"))
        identities = [config_id(p) for p in params]
        self._params |= dict(zip(identities, params, strict=True))
        errors = np.where(wrong == DIVERGED, np.nan, 100.0 * wrong / self.task.validation)
        for name, seed, at, error in zip(names, seeds.tolist(), epochs.tolist(), errors.tolist(), strict=True):
            self._curves.setdefault((identities[name], seed), {e: v for e, v in zip(at, error, strict=True) if e})

    def save(self) -> None:
        """Write the table, with what another process has added to it meanwhile."""
        if self._path is None:
            return
        self._load()
        identities = sorted(self._params)
        number = {identity: i for i, identity in enumerate(identities)}
        keys = sorted(self._curves)
        width = max(len(curve) for curve in self._curves.values())
        epochs = np.zeros((len(keys), width), dtype=np.uint8)
        wrong = np.zeros((len(keys), width), dtype=np.uint16)
        for row, key in enumerate(keys):
            curve = self._curves[key]
            epochs[row, : len(curve)] = list(curve)
            counts = np.array(list(curve.values())) * self.task.validation / 100
            wrong[row, : len(curve)] = np.where(np.isnan(counts), DIVERGED, np.nan_to_num(counts).round())
        self._path.parent.mkdir(exist_ok=True)
        text: Any = json.dumps([self._params[i] for i in identities], separators=(",", ":")).encode()
        part = self._path.with_name(f"{self.task.name}-{os.getpid()}.npz")
        np.savez_compressed(
            part, params=np.frombuffer(text, dtype=np.uint8), epoch=epochs, wrong=wrong,
            config=np.array([number[k[0]] for k in keys], dtype=np.int32),
            seed=np.array([k[1] for k in keys], dtype=np.int64),
        )  # fmt: skip
        part.replace(self._path)  # at once: another process may read it

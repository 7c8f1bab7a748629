"""Write the event log of a search that never ran: known truth, realistic in all that analysis and report read."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from rst_tune.method.schedules import from_dict
from rst_tune.method.schedules.functionals import functionals
from rst_tune.records import (
    LOG_NAME,
    EpochsReported,
    Event,
    Phase,
    PhaseEntered,
    ReferenceSet,
    Role,
    RungReached,
    SchedulePreview,
    SearchStarted,
    Status,
    TestRead,
    TrialConfig,
    TrialEnded,
    TrialSampled,
    TrialStarted,
    config_id,
    trial_key,
)

FAMILIES = ("constant", "step-up", "step-down", "ramp-up", "ramp-down", "cosine-up", "sine-bump")
RULES = ("sam", "sam", "sam", "asam")
LATE = {"constant": 0.0, "step-up": -0.02, "ramp-up": 0.0, "cosine-up": 0.0, "sine-bump": 0.05}
EPOCHS, STEPS = 20, 100
NOISE, SEED_EFFECT = 0.10, 0.05
RHO = 0.1


def true_error(config: TrialConfig) -> float:
    """The error without noise: cost helps, gamma_rst 0.9 is best, schedules that end with SGD lose."""
    cost, gamma = config.extra_propagation, config.gamma_rst
    if cost == 0.0:
        return 4.5
    late = LATE.get(config.family, 0.45 * (1 - cost))
    return 4.5 - 0.9 * (1 - np.exp(-4 * cost)) * np.exp(-1.2 * (gamma - 0.9) ** 2) + late


def make_config(
    family: str,
    cost: float,
    gamma_rst: float,
    rule: str = "sam",
    *,
    shape: float = 1.0,
    rho: float = RHO,
    horizon: float = 1.0,
    **other,
) -> TrialConfig:
    """Return a configuration as a space makes it; `cost` is its extra propagation, `other` what it has besides."""
    constant = family == "constant"
    own = {} if constant else {"shape": shape}
    schedule = {"family": family, "p": cost} if constant else {"family": family, "c": cost, **own}
    gamma_gnr = gamma_rst / cost if cost else 1.0
    params = {"family": family, "c": cost, **own, "gamma_rst": gamma_rst, "rule": rule}
    params |= {"rho": rho} if rho != RHO else {}
    params |= {"horizon": horizon} if horizon != 1.0 else {}
    return TrialConfig(
        family=family,
        schedule=schedule,
        rule=rule,
        rho=rho,
        gamma_gnr=gamma_gnr,
        gamma_rst=gamma_rst,
        extra_propagation=cost,
        horizon=horizon,
        total_steps=round(EPOCHS * horizon) * STEPS,
        params={**params, **other},
        **_strength(schedule, gamma_gnr * rho / RHO),
        **other,
    )


def _strength(schedule: dict, strength: float) -> dict[str, float]:
    """Return effect, strain and lateness of a schedule."""
    if not np.isfinite(schedule.get("p", schedule.get("c"))):
        return {}
    of = functionals(from_dict(schedule))
    return {"effect": strength * of.weight, "strain": strength * of.peak**0.5, "lateness": of.lateness}


def make_preview(config: TrialConfig) -> SchedulePreview:
    curve = _curve(config.family, config.extra_propagation)
    coins = (np.random.default_rng(0).random(100) < np.array(curve)).astype(int).tolist()
    return SchedulePreview(curve=tuple(curve), coins=tuple(coins))


def _curve(family: str, cost: float) -> list[float]:
    u = np.linspace(0.005, 0.995, 100)
    if family == "constant":
        p = np.full(100, cost)
    elif family.startswith("step"):
        p = (u > 1 - cost) if family.endswith("up") else (u < cost)
    else:
        tilt = (u - 0.5) * 2 * min(cost, 1 - cost)
        p = cost + (tilt if family.endswith("up") else -tilt)
    return np.round(p.astype(float), 4).tolist()


def write_search(
    directory: Path,
    *,
    trials: int = 60,
    confirm_seeds: int = 4,
    confirmed: int = 6,
    workers: int = 4,
    seed: int = 0,
    phase: str = "done",
    accidents: bool = True,
    baseline_seeds: int = 3,
    name: str = "synthetic",
) -> Path:
    """Write the log of `trials` searched configurations, the two baselines and the confirmation of the best.

    With `accidents` some trials are stopped at a rung, some diverge, one fails. `phase="search"` leaves the last
    two running and nothing confirmed.
    """
    writer = _Writer(directory, np.random.default_rng(seed), workers)
    writer.event(_header(name, trials))
    for config in (make_config("constant", 0.0, 0.0), make_config("constant", 1.0, 1.0)):
        for s in range(baseline_seeds):
            writer.train(config, s, Role.SEARCH)
    writer.event(ReferenceSet(error=4.6, compute=2.2))
    drawn = [_draw(writer.rng) for _ in range(trials)]
    for k, config in enumerate(drawn):
        accident = _accident(writer.rng) if accidents else ""
        accident = "running" if phase == "search" and k >= trials - 2 else accident
        writer.train(config, 0, Role.SEARCH, accident)
    if phase != "search":
        writer.event(PhaseEntered(phase=Phase.CONFIRM))
        writer.confirm(confirmed, confirm_seeds, test=phase == "done")
    if phase == "done":
        writer.event(PhaseEntered(phase=Phase.DONE))
    return writer.close()


def _header(name: str, trials: int) -> SearchStarted:
    return SearchStarted(
        search_id="0" * 12,
        name=name,
        experiment={
            "name": name,
            "task": {"data": {"name": "digits", "validation": 0.2}, "model": {"name": "cnn-tiny"}},
            "space": {"families": list(FAMILIES), "cost": [0.05, 0.95], "gamma_rst": [0.3, 1.5]},
            "budget": {"trials": trials, "epochs": EPOCHS},
        },
        steps_per_epoch=STEPS,
        versions={"rst_tune": "0.1.0", "torch": "2.15.0", "python": "3.11.0"},
        devices={"cpu": 4, "gpu": 0},
    )


def _draw(rng: np.random.Generator) -> TrialConfig:
    family = FAMILIES[rng.integers(len(FAMILIES))]
    rule = RULES[rng.integers(len(RULES))]
    return make_config(family, round(rng.uniform(0.05, 0.95), 3), round(rng.uniform(0.3, 1.5), 3), rule)


def _accident(rng: np.random.Generator) -> str:
    return str(rng.choice(["", "stopped", "diverged", "failed"], p=[0.75, 0.18, 0.05, 0.02]))


class _Writer:
    """Events with a clock of their own: every worker takes the next trial when it is free."""

    def __init__(self, directory: Path, rng: np.random.Generator, workers: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path, self.rng = directory / LOG_NAME, rng
        self.events: list[Event] = []
        self.free = [1_750_000_000.0] * workers
        self.results: dict[str, tuple[float, TrialConfig]] = {}
        self.number, self.seed_effects = 0, {}

    def event(self, event: Event, at: float | None = None) -> None:
        self.events.append(replace(event, time=max(self.free) if at is None else at))

    def train(self, config: TrialConfig, seed: int, role: Role, accident: str = "") -> str:
        identity = config_id(config.params)
        key, begin = trial_key(identity, EPOCHS, seed), min(self.free)
        worker = self.free.index(begin)
        sampled = TrialSampled(
            key=key, number=self.number, role=role, config_id=identity, config=config, seed=seed, epochs=EPOCHS,
            full_horizon=True, preview=make_preview(config),
        )  # fmt: skip
        self.event(sampled, begin - 0.5)
        node = f"node-{worker % 2}"
        self.event(TrialStarted(key=key, node=node, worker=str(1000 + worker), ray_trial=f"r{worker}"), begin)
        self.number += 1
        if accident == "running":
            self.free[worker] += 1.0
            return key
        end, history = self._end(key, config, seed, accident)
        self.free[worker] = begin + end.seconds
        self.event(EpochsReported(key=key, first_epoch=1, metrics=history), begin + 0.5 * end.seconds)
        if accident == "stopped":
            rung = RungReached(key=key, epoch=7, error=end.error, stop=True, reason=end.reason)
            self.event(rung, begin + 0.5 * end.seconds)
        self.event(end, self.free[worker])
        if end.status is Status.COMPLETE:
            self.results[identity] = (end.error, config)
        return key

    def _end(self, key: str, config: TrialConfig, seed: int, accident: str) -> tuple[TrialEnded, dict]:
        effect = self.seed_effects.setdefault(seed, np.random.default_rng(1000 + seed).normal(0, SEED_EFFECT))
        error = true_error(config) + effect + self.rng.normal(0, NOISE)
        epochs = {"stopped": 7, "diverged": 3, "failed": 2}.get(accident, EPOCHS)
        history = _history(error, epochs, accident == "diverged")
        pairs = epochs * STEPS * (1 + config.extra_propagation)
        last = {name: values[-1] for name, values in history.items()}
        reasons = {"stopped": "hopeless at epoch 7", "diverged": "loss is nan", "failed": "worker died"}
        end = TrialEnded(
            key=key,
            status=Status(accident or "complete"),
            reason=reasons.get(accident, ""),
            error=None if accident in ("diverged", "failed") else last["validation_error"],
            pairs=pairs,
            seconds=0.01 * pairs,
            metrics={**last, "pairs": pairs, "images_per_second": 9000.0},
        )
        return end, history

    def confirm(self, count: int, seeds: int, test: bool) -> None:
        bands = np.linspace(0.0, 1.0, count + 1)
        for low, high in pairwise(bands):
            inside = [r for r in self.results.values() if low < r[1].extra_propagation <= high]
            for seed in range(100, 100 + seeds) if inside else ():
                key = self.train(min(inside, key=lambda r: r[0])[1], seed, Role.CONFIRM)
                if test:
                    error = true_error(min(inside, key=lambda r: r[0])[1]) + 0.3
                    self.event(TestRead(key=key, error=error))

    def close(self) -> Path:
        self.events.sort(key=lambda event: event.time)
        with self.path.open("w") as file:
            file.writelines(json.dumps(event.to_dict()) + "\n" for event in self.events)
        return self.path.parent


def _history(error: float, epochs: int, diverged: bool) -> dict[str, list[float]]:
    steps = np.arange(1, epochs + 1) / EPOCHS
    errors = error + 60 * np.exp(-6 * steps) - 60 * np.exp(-6.0)
    losses = np.exp(-3 * steps)
    if diverged:
        errors[-1] = losses[-1] = np.nan
    names = {"validation_error": errors, "train_loss": losses, "validation_loss": 1.2 * losses}
    return {name: [float(v) for v in values] for name, values in names.items()}

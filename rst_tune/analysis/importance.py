"""Which of family, cost, gamma, rho and rule the error depends on, by Optuna's functional ANOVA."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.importance import FanovaImportanceEvaluator, get_param_importances

from rst_tune.analysis.records import Search, Trial

__all__ = ["PARAMETERS", "Importance", "importance"]

PARAMETERS = ("family", "extra_propagation", "gamma_rst", "rho", "rule")
FEWEST = 8
# The evaluator walks every tree in Python; more trials change nothing that can be seen.
MOST = 150


@dataclass(frozen=True, kw_only=True)
class Importance:
    """The share of the error's variance that each parameter explains, largest first; caveats say what is missing."""

    values: dict[str, float]
    trials: int
    caveats: tuple[str, ...]


def importance(search: Search, seed: int = 0) -> Importance:
    """Return the importances over the finished trials of a search."""
    trials = _sample(search.finished(), seed)
    if len(trials) < FEWEST:
        return _none(trials, f"importance needs {FEWEST} finished trials, there are {len(trials)}")
    if len({trial.error for trial in trials}) == 1:
        return _none(trials, "all errors are equal: nothing to explain")
    spaces = _distributions(trials)
    fixed = [name for name in PARAMETERS if name not in spaces]
    caveats = (f"not varied: {', '.join(fixed)}",) if fixed else ()
    if not spaces:
        return _none(trials, *caveats)
    values = get_param_importances(
        _study(trials, spaces), evaluator=FanovaImportanceEvaluator(n_trees=24, max_depth=8, seed=seed)
    )
    return Importance(
        values={name: float(share) for name, share in values.items()}, trials=len(trials), caveats=caveats
    )


def _none(trials: Sequence[Trial], *caveats: str) -> Importance:
    return Importance(values={}, trials=len(trials), caveats=caveats)


def _sample(trials: list[Trial], seed: int) -> list[Trial]:
    if len(trials) <= MOST:
        return trials
    return [trials[i] for i in sorted(np.random.default_rng(seed).choice(len(trials), MOST, replace=False))]


def _value(trial: Trial, name: str) -> Any:
    value = trial.config.get(name)
    return str(value) if name in ("family", "rule") else float(value or 0.0)


def _distributions(trials: Sequence[Trial]) -> dict[str, BaseDistribution]:
    spaces: dict[str, BaseDistribution] = {}
    for name in PARAMETERS:
        values = sorted({_value(trial, name) for trial in trials})
        if len(values) < 2:
            continue
        text = isinstance(values[0], str)
        spaces[name] = CategoricalDistribution(values) if text else FloatDistribution(values[0], values[-1])
    return spaces


def _study(trials: Sequence[Trial], spaces: dict[str, BaseDistribution]) -> optuna.Study:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.create_study()
        for trial in trials:
            params = {name: _value(trial, name) for name in spaces}
            study.add_trial(optuna.trial.create_trial(params=params, distributions=spaces, value=trial.error))
    finally:
        optuna.logging.set_verbosity(before)
    return study

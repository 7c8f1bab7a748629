"""The share of the error's variance that each parameter explains, length and radius included, by functional ANOVA."""

from collections.abc import Sequence
from dataclasses import dataclass

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.importance import FanovaImportanceEvaluator, get_param_importances

from rst_tune.records import Search, Trial

PARAMETERS = ("family", "extra_propagation", "gamma_rst", "rho", "rule", "policy", "horizon")
MIN_TRIALS = 8
# The evaluator walks every tree in Python: a report should take seconds.
MAX_TRIALS = 100
MAX_VALUE = 1e30


@dataclass(frozen=True, kw_only=True)
class Importance:
    """The shares by parameter, largest first, and the number of trials used; caveats say what is missing."""

    values: dict[str, float]
    trials: int
    caveats: tuple[str, ...]


def importance(search: Search) -> Importance:
    """Return the importances over the finished trials of a search, or over at most 100 evenly spaced ones."""
    trials = [t for t in search.finished() if _usable(t)]
    trials = trials[:: -(-len(trials) // MAX_TRIALS) or 1]
    spaces = _distributions(trials)
    fixed = [name for name in PARAMETERS if name not in spaces]
    values: dict[str, float] = {}
    caveats: tuple[str, ...] = (f"not varied: {', '.join(fixed)}",) if fixed else ()
    if len(trials) < MIN_TRIALS:
        caveats = (f"importance needs {MIN_TRIALS} finished trials, there are {len(trials)}",)
    elif len({trial.error for trial in trials}) == 1:
        caveats = ("all errors are equal: there is no variance to explain",)
    elif spaces:
        evaluator = FanovaImportanceEvaluator(n_trees=24, max_depth=8, seed=0)
        values = get_param_importances(_study(trials, spaces), evaluator=evaluator)
    return Importance(values={name: float(v) for name, v in values.items()}, trials=len(trials), caveats=caveats)


def _usable(trial: Trial) -> bool:
    """Return whether every parameter is a value that a regression tree takes."""
    values = [getattr(trial.config, name) for name in PARAMETERS]
    return all(isinstance(value, str) or abs(value) < MAX_VALUE for value in values)


def _distributions(trials: Sequence[Trial]) -> dict[str, BaseDistribution]:
    """Return the range of every parameter that was varied."""
    spaces: dict[str, BaseDistribution] = {}
    for name in PARAMETERS:
        values = sorted({getattr(trial.config, name) for trial in trials})
        if len(values) > 1:
            text = isinstance(values[0], str)
            spaces[name] = CategoricalDistribution(values) if text else FloatDistribution(values[0], values[-1])
    return spaces


def _study(trials: Sequence[Trial], spaces: dict[str, BaseDistribution]) -> optuna.Study:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.create_study()
        for trial in trials:
            params = {name: getattr(trial.config, name) for name in spaces}
            study.add_trial(optuna.trial.create_trial(params=params, distributions=spaces, value=trial.error))
    finally:
        optuna.logging.set_verbosity(before)
    return study

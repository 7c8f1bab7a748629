"""The search's sampler in a plain Optuna study, against Optuna's own."""

import math

import pytest

from rst_tune.errors import InputError

optuna = pytest.importorskip("optuna", reason="Optuna is not installed: pip install 'rst_tune[tune]'")
from rst_tune.analysis import pareto  # noqa: E402
from rst_tune.integrations.optuna import CONFIG, RstSampler  # noqa: E402
from rst_tune.records import TrialConfig  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.WARNING)
EPOCHS, TRIALS, CORNER = 20, 40, (6.0, 4.5)


def error_of(config) -> float:
    """A landscape as trainings have it: longer is better, regularization helps up to a point and then breaks down."""
    strain = config.strain / (2.5 * config.horizon**0.4)
    gain = 0.35 * math.tanh(config.effect) / (1 + strain**6)
    return 4.0 * (1 + 0.08 * math.log2(config.horizon) ** 2 - 0.1 * math.log2(config.horizon)) * (1 - gain) + 3 * (
        strain**6 / (1 + strain**6)
    )


def study_of(sampler, shown) -> "optuna.Study":
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)

    def objective(trial):
        config = shown.suggest(trial)
        return error_of(config), config.compute

    study.optimize(objective, n_trials=TRIALS)
    return study


def hypervolume(study) -> float:
    return pareto.hypervolume([t.values for t in study.trials], CORNER)


def test_its_front_is_better_than_that_of_optunas_own_sampler():
    mine, stock = [], []
    for seed in range(3):
        own = RstSampler("compute", epochs=EPOCHS, seed=seed)
        mine.append(hypervolume(study_of(own, own)))
        stock.append(hypervolume(study_of(optuna.samplers.TPESampler(seed=seed), own)))
    assert sum(mine) > sum(stock)
    assert all(a > 0.95 * b for a, b in zip(mine, stock, strict=True))


def test_a_trial_keeps_its_configuration_and_its_cost_is_exact():
    own = RstSampler("compute", epochs=EPOCHS)
    study = study_of(own, own)
    for trial in study.trials:
        config = TrialConfig.from_dict(trial.user_attrs[CONFIG])
        assert config.compute == trial.values[1]
        assert own.config_of(own.params_of(trial.params)) == config


def test_another_sampler_of_the_same_study_continues_from_its_trials():
    own = RstSampler("compute", epochs=EPOCHS)
    study = study_of(own, own)
    again = RstSampler("compute", epochs=EPOCHS)
    study.sampler = again
    study.ask()
    assert again._observed == set(range(TRIALS))


def test_a_study_of_one_objective_is_refused():
    study = optuna.create_study(sampler=RstSampler("compute", epochs=EPOCHS))
    with pytest.raises(InputError, match="two minimized objectives, error and compute"):
        study.ask()

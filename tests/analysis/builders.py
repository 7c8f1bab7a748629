"""Trials and searches of a few lines, for tests that need nothing else."""

from pathlib import Path

from rst_tune.records import Phase, Role, Search, SearchStarted, Status, Trial, config_id, trial_key
from tests.analysis.synthetic import make_config, make_preview


def trial(cost, seed, error, role="search", status="complete", test=None, gamma=None, **config):
    """Return a trial of a constant schedule; gamma_rst is 1, or 0 for the base optimizer."""
    config = make_config("constant", cost, (1.0 if cost else 0.0) if gamma is None else gamma, **config)
    identity = config_id(config.params)
    return Trial(
        key=trial_key(identity, 20, seed),
        number=0,
        role=Role(role),
        config_id=identity,
        config=config,
        preview=make_preview(config),
        seed=seed,
        epochs=20,
        full_horizon=True,
        sampled_at=0.0,
        status=Status(status),
        error=error,
        test_error=test,
    )


def runs(cost, errors, gamma=1.0, **config):
    """Return one finished trial per error, on the seeds 0, 1, ..."""
    return [trial(cost, seed, error, gamma=gamma, **config) for seed, error in enumerate(errors)]


def search_of(trials, directory=None, phase="search", **experiment):
    """Return a search of these trials."""
    header = SearchStarted(experiment=experiment)
    return Search(directory=directory or Path(), header=header, trials=tuple(trials), phase=Phase(phase))

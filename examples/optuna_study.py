"""The search's sampler in a plain Optuna study: `python examples/optuna_study.py [trials]`; needs rst_tune[tune]."""

import sys

import optuna
import torch
from torch import nn
from torch.nn.functional import mse_loss

from rst_tune import RST, schedules
from rst_tune.integrations.optuna import RstSampler

EPOCHS, STEPS = 9, 8


def data(n, seed):
    x = 4 * torch.rand(n, 1, generator=torch.Generator().manual_seed(seed)) - 2
    return x, (3 * x).sin() + 0.3 * torch.randn(n, 1, generator=torch.Generator().manual_seed(seed + 1))


def error_of(config):
    torch.manual_seed(0)
    (x, y), (val_x, val_y) = data(64, seed=1), data(1000, seed=3)
    model = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    epochs = round(config.horizon * EPOCHS)
    settings = {"rho": config.rho, "gamma_gnr": config.gamma_gnr, "rule": config.rule}
    opt = RST(
        torch.optim.AdamW(model.parameters(), lr=1e-2), model, total_steps=epochs * STEPS,
        schedule=schedules.from_dict(config.schedule), **settings,
    )  # fmt: skip
    for _ in range(epochs):
        for part in torch.randperm(len(x)).chunk(STEPS):
            opt.step(lambda part=part: mse_loss(model(x[part]), y[part]))
    with torch.no_grad():
        return float(mse_loss(model(val_x), val_y))


def main(trials=16):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = RstSampler("compute", epochs=EPOCHS)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)

    def objective(trial):
        config = sampler.suggest(trial)
        return error_of(config), config.compute  # the compute is known before the training

    study.optimize(objective, n_trials=trials)
    print(f"{len(study.best_trials)} of {trials} trials are on the front")
    for trial in sorted(study.best_trials, key=lambda t: t.values[1]):
        print(f"error {trial.values[0]:.3f} at {trial.values[1]:.2f} x: {trial.params['family']}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

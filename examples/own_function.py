"""A search over your own training function: `python examples/own_function.py [trainings]`; needs rst_tune[tune]."""

import sys

import torch
from torch import nn
from torch.nn.functional import mse_loss

import rst_tune

STEPS = 16


def data(n, seed):
    x = 4 * torch.rand(n, 1, generator=torch.Generator().manual_seed(seed)) - 2
    noise = torch.randn(n, 1, generator=torch.Generator().manual_seed(seed + 1))
    return x, (3 * x).sin() + 0.3 * noise


def rmse(model, x, y):
    with torch.no_grad():
        return float(mse_loss(model(x), y).sqrt())


def train(trial):
    x, y = data(128, seed=1)
    model = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    base = torch.optim.AdamW(model.parameters(), lr=1e-2)
    opt = trial.optimizer(base, model, steps_per_epoch=STEPS)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, trial.total_epochs)  # lengths differ between trials
    for _ in trial.epochs(schedule=schedule):  # model, optimizer and random state are saved by themselves
        for part in torch.randperm(len(x)).chunk(STEPS):
            opt.step(lambda part=part: mse_loss(model(x[part]), y[part]))
        schedule.step()
        trial.report(rmse(model, *data(1000, seed=3)))
    return rmse(model, *data(1000, seed=5))  # the test set, read once, for confirmed points only


def main(trainings=30):
    found = rst_tune.search(
        train,
        epochs=12,
        budget=f"{trainings} trainings",
        metric="RMSE",
        resources={"cpu": 1},
        tracking={"enabled": False},
    )
    print(found.answer)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

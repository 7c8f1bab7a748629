"""Training functions of a user's, small enough for tests: a regression with everything that has a state."""

import random
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import mse_loss

STEPS = 4


def make_data(n: int, seed: int):
    x = 2 * torch.rand(n, 1, generator=torch.Generator().manual_seed(seed)) - 1
    return x, (4 * x).sin() + 0.1 * torch.randn(n, 1, generator=torch.Generator().manual_seed(seed + 1))


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(1, 16), nn.Dropout(0.1), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 1))


def rmse(model, x, y) -> float:
    model.eval()
    with torch.no_grad():
        error = float(mse_loss(model(x), y).sqrt())
    model.train()
    return error


def regression(trial, lr: float = 1e-2, log=lambda *_: None):
    """Draw from every generator there is: an exact resume has to restore all of them."""
    x, y = make_data(64, seed=1)
    model = make_model().to(trial.device)
    opt = trial.optimizer(torch.optim.AdamW(model.parameters(), lr=lr), model, steps_per_epoch=STEPS, clip=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, trial.total_epochs)
    own, numpy_own = torch.Generator().manual_seed(7), np.random.default_rng(7)
    average = torch.optim.swa_utils.AveragedModel(model)
    try:
        for epoch in trial.epochs(schedule=schedule, own=own, numpy_own=numpy_own, average=average):
            for part in torch.randperm(len(x), generator=own).chunk(STEPS):
                noise = random.random() + np.random.rand() + numpy_own.random() + float(torch.rand(()))
                opt.step(lambda part=part, noise=noise: mse_loss(model(x[part]), y[part]) * (1 + 0.01 * noise))
            average.update_parameters(model)
            schedule.step()
            log("epoch", epoch)
            trial.report(rmse(model, *make_data(64, seed=3)), averaged=rmse(average, *make_data(64, seed=3)))
        log("test", None)
        return rmse(model, *make_data(64, seed=5))
    finally:
        log("end", None)


def plain(trial):
    """The shortest one."""
    x, y = make_data(16, seed=1)
    model = make_model()
    opt = trial.optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, steps_per_epoch=1)
    for _ in trial.epochs():
        opt.step(lambda: mse_loss(model(x), y))
        trial.report(error=rmse(model, x, y))


def breaking(trial, flag: str = "", lr: float = 0.1):
    """Train; where `flag` names a file that is not there yet, write it and break down in the third epoch."""
    x, y = make_data(16, seed=1)
    model = make_model()
    opt = trial.optimizer(torch.optim.SGD(model.parameters(), lr=lr), model, steps_per_epoch=2)
    for epoch in trial.epochs():
        for part in torch.randperm(len(x)).chunk(2):
            opt.step(lambda part=part: mse_loss(model(x[part]), y[part]))
        if flag and epoch == 2 and not Path(flag).exists():
            Path(flag).touch()
            raise OSError("the node is gone")
        trial.report(rmse(model, x, y))

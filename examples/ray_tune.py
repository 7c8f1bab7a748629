"""RST in a plain Ray Tune search: `python examples/ray_tune.py [trials]`; needs rst_tune[tune]."""

import os
import sys
import tempfile

import ray
import torch
from ray import tune
from torch import nn
from torch.nn.functional import mse_loss

from rst_tune.integrations.ray import front_of, rst_from_config, search_space

EPOCHS, STEPS = 5, 20


def data(n, seed):
    x = 4 * torch.rand(n, 1, generator=torch.Generator().manual_seed(seed)) - 2
    noise = torch.randn(n, 1, generator=torch.Generator().manual_seed(seed + 1))
    return x, (3 * x).sin() + 0.3 * noise


def train(config):
    torch.manual_seed(0)
    (x, y), (val_x, val_y) = data(64, seed=1), data(1000, seed=3)
    model = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    base = torch.optim.AdamW(model.parameters(), lr=1e-2)
    opt = rst_from_config(config, base, model, total_steps=EPOCHS * STEPS)
    for _ in range(EPOCHS):
        for _ in range(STEPS):
            part = torch.randint(0, len(x), (16,))
            opt.step(lambda part=part: mse_loss(model(x[part]), y[part]))
        with torch.no_grad():
            tune.report({"error": float(mse_loss(model(val_x), val_y)), "pairs": opt.pairs})


def main(trials=16):
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            train,
            param_space=search_space(rho=tune.loguniform(0.01, 0.1)),
            tune_config=tune.TuneConfig(num_samples=trials, metric="error", mode="min"),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        front = front_of(tuner.fit())
    print(f"{len(front)} of {trials} trials are on the front")
    for result in front:
        print(f"error {result.metrics['error']:.3f}, {result.metrics['pairs']:.0f} pairs: {result.config['family']}")


if __name__ == "__main__":
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    main(*map(int, sys.argv[1:]))

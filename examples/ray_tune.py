"""Parts of the search in a plain Ray Tune script: `python examples/ray_tune.py [trials]`; needs rst_tune[tune]."""

import os
import sys
import tempfile

import ray
import torch
from ray import tune
from torch import nn
from torch.nn.functional import mse_loss

from rst_tune.integrations.ray import FrontSearch, ParetoScheduler, front_of, trainable

EPOCHS, STEPS = 9, 8


def data(n, seed):
    x = 4 * torch.rand(n, 1, generator=torch.Generator().manual_seed(seed)) - 2
    noise = torch.randn(n, 1, generator=torch.Generator().manual_seed(seed + 1))
    return x, (3 * x).sin() + 0.3 * noise


def train(trial):
    (x, y), (val_x, val_y) = data(64, seed=1), data(1000, seed=3)
    model = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    opt = trial.optimizer(torch.optim.AdamW(model.parameters(), lr=1e-2), model, steps_per_epoch=STEPS)
    for _ in trial.epochs():
        for part in torch.randperm(len(x)).chunk(STEPS):
            opt.step(lambda part=part: mse_loss(model(x[part]), y[part]))
        with torch.no_grad():
            trial.report(float(mse_loss(model(val_x), val_y)))


def main(trials=16):
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            trainable(train, epochs=EPOCHS, metric="MSE"),
            tune_config=tune.TuneConfig(
                num_samples=trials,
                search_alg=FrontSearch("compute", epochs=EPOCHS),  # or param_space=search_space() and any searcher
                scheduler=ParetoScheduler(),
                max_concurrent_trials=2,
            ),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        front = front_of([r for r in tuner.fit() if r.metrics and r.metrics["complete"]], cost="compute")
    print(f"{len(front)} of {trials} trials are on the front")
    for result in front:
        print(f"error {result.metrics['error']:.3f} at {result.metrics['compute']:.2f} x: {result.config['schedule']}")


if __name__ == "__main__":
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    main(*map(int, sys.argv[1:]))

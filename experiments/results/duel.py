"""The search itself, ours against stock parts at equal pairs: real searches, their fronts trained again on fresh seeds.

A search delivers a front. Its true errors are the mean test errors of the same configurations on seeds that no search
has used; searches are compared by the hypervolume of these true means over the logarithm of the compute.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import figures
import stock
import trainings
from equal_compute import LENGTHS
from scipy import stats
from studies import KEPT, read_lines, write_lines

from rst_tune import api
from rst_tune.analysis import pareto
from rst_tune.analysis.analysis import Analysis
from rst_tune.records import config_id
from rst_tune.report import formatting
from rst_tune.tuning.backend.runner import to_method
from rst_tune.tuning.experiment import Experiment
from rst_tune.tuning.space import trial_config

if TYPE_CHECKING:
    from page import Page

__all__ = ["NAME", "delivered", "keep", "train", "write"]

NAME = "search"
TASKS = ("noisy_digits", "fashion_mnist")
REPEATS, BUDGET, SEEDS_APART = 5, 6_000, 100
FRESH_SEEDS = range(5000, 5010)
AT = (0.5, 1.0, 2.0)
FRONTS, TRUTH = f"{NAME}_fronts.jsonl.gz", f"{NAME}_truth.jsonl.gz"
METHODS = {
    "ours": "rst-tune",
    "stock": "stock",
    "stock-complete": "stock, complete trainings only",
    "sgd": "SGD at six lengths, no search",
}
PLAIN = {"schedule": {"family": "constant", "p": 0.0}, "rule": "sam", "gamma_gnr": 1.0}

Line = dict[str, Any]
Fit = tuple[float, float, float]
Truth = Mapping[tuple[str, str], float]


def load(task: str, repeat: int = 0, budget: float = BUDGET) -> Experiment:
    """Return the experiment that both search: the task's own, with this budget and the seed of the repeat."""
    settings = [f"budget={{pairs: {budget:g}}}", f"seed={repeat * SEEDS_APART}", "tracking.enabled=false"]
    return api.load_experiment(trainings.TASKS[task][0], settings)


def train(
    folder: Path, tasks: Sequence[str] = TASKS, repeats: int = REPEATS, budget: float = BUDGET,
    seeds: Sequence[int] = FRESH_SEEDS,
) -> None:  # fmt: skip
    """Run all searches, then train what they delivered on fresh seeds. What is there already is not run again."""
    for repeat in range(repeats):
        for task in tasks:
            api.search(load(task, repeat, budget), folder / task / f"ours-{repeat}")
            stock.search(folder / task / f"stock-{repeat}", load(task, repeat, budget), budget)
    for task in tasks:
        judge(folder / task, task, seeds)


def judge(folder: Path, task: str, seeds: Iterable[int]) -> None:
    """Append one line per delivered configuration and fresh seed to the truth of a task."""
    path = folder / "truth.jsonl"
    done = {(config_id(row["params"]), row["seed"]) for row in _rows(path)}
    points = {config_id(p["params"]): p["params"] for line in delivered(folder, task) for p in line["points"]}
    experiment = load(task)
    workload = trainings.load_workload(experiment.task)
    scale = experiment.scale(workload.steps_per_epoch)
    for seed in seeds:
        for name, params in points.items():
            if (name, seed) not in done:
                method, epochs = to_method(trial_config(params, scale)), scale.epochs_of(params)
                row = {"task": task, "params": params, "seed": seed}
                with path.open("a") as file:
                    file.write(json.dumps(row | trainings.train(workload, method, epochs, seed)) + "\n")


def _rows(path: Path) -> Iterator[Line]:
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:  # the last line of a killed process
            continue


def delivered(folder: Path, task: str) -> list[Line]:
    """Return the front of every finished search of a task: one line per method and repeat."""
    lines = [{"method": "sgd", "repeat": 0, "points": [_point(*_plain(length)) for length in LENGTHS]}]
    for path in sorted(folder.glob(f"stock-*/{stock.RESULT_NAME}")):
        trials = json.loads(path.read_text())
        complete = [trial for trial in trials if trial["complete"]]
        fronts = (_stock("stock", trials, trials), _stock("stock-complete", complete, trials))
        lines += [{"repeat": _repeat(path), **front} for front in fronts]
    own = sorted(folder.glob("ours-*/front.json"))
    lines += [{"repeat": _repeat(path), **_ours(api.analyze(path.parent))} for path in own]
    return [{"task": task, **line} for line in lines]


def _repeat(path: Path) -> int:
    return int(path.parent.name.split("-")[1])


def _ours(analysis: Analysis) -> Line:
    search = analysis.search
    points = [_point(p.config.params, p.compute, p.error_posterior) for p in analysis.points]
    counts = {"trials": len(search.trials), "complete": len(search.finished()), "pairs": search.pairs}
    version = search.header.versions.get("rst_tune", "")
    return {"method": "ours", **counts, "version": version, "commit": search.header.commit, "points": points}


def _stock(method: str, eligible: list[Line], trials: list[Line]) -> Line:
    mask = pareto.nondominated([(t["error"], t["compute"]) for t in eligible])
    chosen = [t for t, member in zip(eligible, mask, strict=True) if member]
    counts = {"complete": sum(t["complete"] for t in trials), "pairs": sum(t["pairs"] for t in trials)}
    points = [_point(t["params"], t["compute"], t["error"]) for t in chosen]
    return {"method": method, "trials": len(trials), **counts, "points": points}


def _plain(length: float) -> tuple[Line, float]:
    return {**PLAIN, "horizon": length}, length


def _point(params: Mapping[str, Any], compute: float, reported: float | None = None) -> Line:
    return {"params": dict(params), "reported": reported, "compute": compute}


def keep(folder: Path, records: Path = KEPT) -> None:
    """Write the fronts, and the record of their fresh trainings."""
    tasks = [task for task in TASKS if (folder / task).exists()]
    write_lines(records / FRONTS, (line for task in tasks for line in delivered(folder / task, task)))
    write_lines(records / TRUTH, (row for task in tasks for row in _rows(folder / task / "truth.jsonl")))


# --- the comparison ---------------------------------------------------------------------------------------------


def true_errors(rows: Iterable[Line]) -> dict[tuple[str, str], float]:
    """Return the mean test error of each configuration of a task over the fresh seeds."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        found.setdefault((row["task"], config_id(row["params"])), []).append(row["test"])
    return {key: fmean(errors) for key, errors in found.items()}


def with_truth(lines: Iterable[Line], truth: Truth) -> list[Line]:
    """Return each front with its true points, as (error, compute), their hypervolume, and the errors at some computes.

    The reference is that of a search: above the error of plain SGD, beyond SAM at twice the length.
    """
    found = []
    for line in lines:
        task = line["task"]
        base = truth[task, config_id(_plain(1.0)[0])]
        reference = pareto.derive_reference(base), pareto.reference_compute(max(LENGTHS))
        points = [(truth[task, config_id(p["params"])], p["compute"]) for p in line["points"]]
        at = [_error_at(line["points"], points, limit) for limit in AT]
        found.append(line | {"true": points, "volume": pareto.hypervolume(points, reference), "at": at})
    return found


def _error_at(points: Sequence[Line], true: Sequence[tuple[float, float]], limit: float) -> float | None:
    """Return the true error of the point that reports the least error within a compute; without reports the longest."""
    able = [(p, error) for p, (error, _) in zip(points, true, strict=True) if p["compute"] <= limit * 1.001]
    best = min(able, key=lambda each: _reported(each[0]), default=None)
    return None if best is None else best[1]


def _reported(point: Line) -> float:
    return -point["compute"] if point["reported"] is None else point["reported"]


def values(lines: Iterable[Line], task: str, method: str) -> list[float]:
    """Return the hypervolumes of a method on a task, one per repeat."""
    return [line["volume"] for line in lines if (line["task"], line["method"]) == (task, method)]


def interval(found: Sequence[float]) -> Fit | None:
    """Return the mean with Student's 95 % interval."""
    if len(found) < 2:
        return None
    half = float(stats.t.ppf(0.975, len(found) - 1)) * stdev(found) / len(found) ** 0.5
    return fmean(found), fmean(found) - half, fmean(found) + half


def difference(left: Sequence[float], right: Sequence[float]) -> Fit:
    """Return the difference of two means with Welch's 95 % interval: the repeats are independent."""
    test = stats.ttest_ind(left, right, equal_var=False)
    low, high = test.confidence_interval(0.95)
    return fmean(left) - fmean(right), float(low), float(high)


# --- the section ------------------------------------------------------------------------------------------------


def write(page: "Page", records: Path = KEPT) -> None:
    """Write the section, or that there are no records."""
    command = f"`python experiments/results/make.py --fresh --only {NAME}`"
    if not (records / FRONTS).exists() or not (records / TRUTH).exists():
        page.say(f"The real searches against stock parts have not been run yet: {command}.")
        return
    rows = [json.loads(line) for line in read_lines(records / TRUTH)]
    lines = with_truth([json.loads(line) for line in read_lines(records / FRONTS)], true_errors(rows))
    ours = [line for line in lines if line["method"] == "ours"]
    titles = {task: trainings.TASKS[task][1] for task in dict.fromkeys(line["task"] for line in lines)}
    page.say(
        f"Version {ours[0]['version']}. {' and '.join(titles.values())}, each searched "
        f"{len(values(lines, next(iter(titles)), 'ours'))} times by `rst-tune` and as often by Ray's `OptunaSearch` "
        "with two metrics (multi-objective TPE) under Ray's `ASHAScheduler` on error (`experiments/results/stock.py`), "
        f"over the same space (`compute`), with a budget of {BUDGET:,} pairs each, "
        f"confirmation included. Every delivered configuration was then trained on {len({r['seed'] for r in rows})} "
        "fresh seeds and read on the test set. *Hypervolume*: of these true errors, in percent times octaves of "
        "compute, with 95 % intervals over the repeats. *Error within …*: the true error of the point that the front "
        "itself reports as its best within that compute, mean over the repeats. *Complete trainings only*: the stock "
        "front without the trials that ASHA stopped. SGD at six lengths costs six trainings and chooses nothing: its "
        "hypervolume is that of all six, its errors are those of the longest."
    )
    training = formatting.duration(sum(row["seconds"] for row in rows))
    commits = " and ".join(f"`{commit[:7]}`" for commit in sorted({line["commit"] for line in ours}))
    made = f"{command} · commit {commits} · {len(rows):,} fresh trainings ({training})"
    page.picture(NAME, "Fronts by their true errors on fresh seeds", figures.fronts(lines, titles, METHODS), made)
    head = ["task", "search", "hypervolume", *(f"error within {at:g} ×" for at in AT), "points", "trials", "pairs"]
    page.table(head, [_line(lines, task, method, titles[task]) for task in titles for method in METHODS])
    for task in titles:
        _say_difference(page, lines, task, titles[task])


def _line(lines: Sequence[Line], task: str, method: str, title: str) -> list[str]:
    own = [line for line in lines if (line["task"], line["method"]) == (task, method)]
    fit = interval([line["volume"] for line in own])
    volume = f"{fit[0]:.2f} [{fit[1]:.2f}, {fit[2]:.2f}]" if fit else f"{own[0]['volume']:.2f}"
    at = [_mean([line["at"][k] for line in own], ".2f") for k in range(len(AT))]
    counts = [_mean([line.get(name) for line in own], ",.0f") for name in ("trials", "pairs")]
    return [title, METHODS[method], volume, *at, _mean([len(line["points"]) for line in own], ".1f"), *counts]


def _mean(found: Sequence[float | None], form: str) -> str:
    """Return the mean, with the number of repeats that have a value where it is not all."""
    there = [value for value in found if value is not None]
    missing = f" ({len(there)} of {len(found)})" if 0 < len(there) < len(found) else ""
    return f"{fmean(there):{form}}{missing}" if there else "–"


def _say_difference(page: "Page", lines: Sequence[Line], task: str, title: str) -> None:
    sentences = []
    for other in ("stock", "stock-complete"):
        gap, low, high = difference(values(lines, task, "ours"), values(lines, task, other))
        word = "more" if low > 0 else "less" if high < 0 else "not distinguishable"
        sentences.append(f"minus {METHODS[other]} {gap:+.2f} (95 % interval {low:+.2f} … {high:+.2f}): {word}")
    page.say(f"Hypervolume of rst-tune on {title}: {'; '.join(sentences)}.")

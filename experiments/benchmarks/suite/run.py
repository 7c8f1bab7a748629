"""Compare search methods on the tasks of the suite, by the true hypervolume of the fronts that they deliver.

    python experiments/benchmarks/suite/run.py                     # the page's table, from the kept results
    python experiments/benchmarks/suite/run.py --train             # run what is missing (hours; it resumes)
    python experiments/benchmarks/suite/run.py --train --task words --method ours --worlds 4

Budgets are in plain trainings. A front is judged by the means over fresh seeds of its configurations, whatever was
claimed for them: hypervolume in (error, logarithm of the compute) over that of the best known front of the task. The
best known front is chosen on half of the fresh seeds and measured on the other half, both ways, so it is not lucky.

The prior of the surrogate that ours uses is measured with the judged task left out (`prior.py`).
"""

import argparse
import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import methods
import numpy as np
import torch
from bank import TRUTH_SEED, TRUTH_SEEDS, Bank
from grid_space import rounded
from methods import SAMPLERS, Delivered
from prior import left_out
from scipy import stats
from tasks import ALL, TASKS, UNSEEN
from warm import EARLIER, POINTS, first_points, warm_prior

from rst_tune.analysis import pareto
from rst_tune.analysis.surrogate import PRIOR
from rst_tune.records import Prior, TrialConfig, config_id
from rst_tune.tuning.points import SGD

RESULTS = Path(__file__).with_name("results.jsonl")
BUDGETS = (10.0, 20.0, 40.0, 80.0)
LONGEST = 2.0
LEVEL_LENGTHS, LEVEL_SEEDS = (0.15, 0.21, 0.3, 0.42, 0.6, 0.85, 1.0, 1.2, 1.7, 2.0), 200
Method = Callable[[Bank, Sequence[float], int], list[Delivered]]
Row = dict[str, Any]


def each_budget(prior: Prior | None = None, **changes: Any) -> Method:
    """Return our search with changes, run once per budget: it plans its replicates for the whole of it.

    Of a given prior only what differs from the shipped one is changed: the rest is measured without the judged task.
    """

    def method(bank: Bank, budgets: Sequence[float], world: int) -> list[Delivered]:
        used = left_out(bank.task.name)
        for name in ("mean", "mean_sd", "kernel", "kernel_sd") if prior is not None else ():
            if getattr(prior, name) != getattr(PRIOR, name):
                used = used.model_copy(update={name: getattr(prior, name)})
        return [methods.ours(bank, budget, world, prior=used, **changes) for budget in budgets]

    return method


def warm(kind: str, *, points: int = 0) -> Method:
    """Return our search with the prior of earlier ones and, as its first trainings, `points` of their fronts."""

    def method(bank: Bank, budgets: Sequence[float], world: int) -> list[Delivered]:
        if bank.task.name not in EARLIER[kind]:
            return []
        prior, space = warm_prior(bank.task.name, kind, world), first_points(bank.task.name, kind, world, points)
        return [methods.ours(bank, budget, world, prior=prior, space=space) for budget in budgets]

    return method


NO_MEAN = PRIOR.model_copy(update={"mean": (0.0,) * 5, "mean_sd": (0.5, 0.3, 0.1, 0.001, 0.001)})
NO_SEEDS = PRIOR.model_copy(update={"kernel": (*PRIOR.kernel[:4], 0.001), "kernel_sd": (*PRIOR.kernel_sd[:4], 0.001)})
METHODS: dict[str, Method] = {
    "ours": each_budget(),
    **{name: methods.sampled(SAMPLERS[name]) for name in ("random", "MO-TPE", "NSGA-II")},
    "stock Ray: MO-TPE + ASHA": methods.stock,
    "MO-ASHA": each_budget(sampler={"name": "random"}, stopping={"name": "pareto-asha"}, confirm={"enabled": False}),
    "Top-K after one epoch": methods.top_k,
    "the paper's grid": methods.paper_grid,
    "SGD at six lengths": methods.lengths_alone,
    "one length, one radius": each_budget(space={"horizon": 1.0, "rules": {"sam": {}}}),
    "ours, one seed per point": each_budget(confirm={"min_seeds": 1}),
    "ours, stopped by Pareto ASHA": each_budget(stopping={"name": "pareto-asha"}),
    "ours, no prior mean": each_budget(NO_MEAN),
    "ours, no effect of the seed": each_budget(NO_SEEDS),
    "ours, TPE proposes": each_budget(sampler={"name": "tpe", "n_startup_trials": 10}),
    "ours, random proposals": each_budget(sampler={"name": "random"}),
    **{f"ours, from {kind}": warm(kind) for kind in EARLIER},
    **{f"ours, from {kind}, with points": warm(kind, points=POINTS) for kind in EARLIER},
    "Optuna GP": methods.sampled(SAMPLERS["Optuna GP"]),
    "BoTorch qLogNEHVI": methods.botorch,
}
# What was run on the tasks that nothing was chosen on.
ON_UNSEEN = ("ours", "random", "MO-TPE", "NSGA-II", "stock Ray: MO-TPE + ASHA", "MO-ASHA", "SGD at six lengths")
# Fewer repeats and budgets: methods that take seconds per proposal, and what our search is without one of its parts.
SLOW = {"Optuna GP": BUDGETS, "BoTorch qLogNEHVI": BUDGETS[:3]}


def plan(name: str, worlds: int, slow_worlds: int) -> tuple[int, tuple[float, ...]]:
    """Return the repeats and the budgets of a method."""
    if name in SLOW:
        return slow_worlds, SLOW[name]
    if name.startswith("ours, from"):
        return worlds, BUDGETS[:2]
    return (worlds, BUDGETS) if not name.startswith("ours,") else (worlds // 2, BUDGETS[2:3])


def seeds_of(delivered: Delivered) -> list[tuple[int, int]]:
    """Return the seeds that our search trained with, and how many trainings each has."""
    trials = [] if delivered.analysis is None else delivered.analysis.search.finished()
    return sorted(Counter(trial.seed for trial in trials).items())


def run_method(bank: Bank, name: str, worlds: Sequence[int], budgets: Sequence[float]) -> list[Row]:
    """Return one row per world and budget: the ids of the delivered configurations and the errors claimed for them."""
    found = bank.run([partial(METHODS[name], bank, budgets, world) for world in worlds])
    return [
        {
            "task": bank.task.name, "method": name, "world": world, "budget": d.budget,
            "configs": [dict(c.params) for c in d.configs], "claimed": [round(e, 4) for e in d.errors],
            "seeds": seeds_of(d),
        }
        for world, fronts in zip(worlds, found, strict=True)
        for d in fronts
    ]  # fmt: skip


def train(bank: Bank, name: str, worlds: int, budgets: Sequence[float]) -> None:
    """Run the worlds of a method that the kept results lack, and keep them."""
    kept = {(r["method"], r["world"]) for r in load() if r["task"] == bank.task.name}
    missing = [w for w in range(worlds) if (name, w) not in kept]
    if not missing:
        return
    begun = time.monotonic()
    left_out(bank.task.name)  # computed before the threads that use it
    rows = run_method(bank, name, missing, budgets)
    bank.truth(list({config_id(p): bank.config(p) for r in rows for p in r["configs"]}.values()))
    bank.train([(config, seed) for r in rows for seed, _ in r["seeds"] for config in base_lengths(bank)])
    bank.save()
    with RESULTS.open("a") as file:
        file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    print(f"{bank.task.name}: {name}, {len(missing)} worlds, {time.monotonic() - begun:.0f} s", flush=True)


def load() -> list[Row]:
    """Return the kept rows."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def base_lengths(bank: Bank) -> list[TrialConfig]:
    """Return the base optimizer at the lengths that the luck of seeds is measured at."""
    return [bank.config(rounded({**SGD, "horizon": length})) for length in LEVEL_LENGTHS]


class Judge:
    """True hypervolumes of one task.

    Most of the noise is common to the trainings of a seed and of about the same length. Seeds are lucky or unlucky for
    all of them alike, so means over the seeds of the truth, and what a search claims from its own seeds, are both
    corrected by the base optimizer at the same length: its error over two hundred seeds over that on the seeds in
    question (a control variate). That hardly matters between fronts, but between a claim and the truth it does.
    """

    def __init__(self, bank: Bank) -> None:
        self.bank = bank
        self._base = base_lengths(bank)
        self._many = bank.truth(self._base, LEVEL_SEEDS).mean(axis=1)
        self._luck = np.log(self._many / bank.truth(self._base).mean(axis=1))
        known = [k for k, seed in bank.trainings() if seed == TRUTH_SEED + TRUTH_SEEDS - 1]
        self.configs = {k: bank.config(bank.params(k)) for k in known}
        truth = bank.truth(list(self.configs.values()))
        truth *= np.array([self.correction(c) for c in self.configs.values()])[:, None]
        self.true = dict(zip(self.configs, truth.mean(axis=1), strict=True))
        self.reference = (1.1 * self.true[config_id(SGD)], pareto.reference_compute(LONGEST))
        self.best = float(np.mean([self._front(truth[:, i::2], truth[:, 1 - i :: 2]) for i in (0, 1)]))

    def correction(self, config: TrialConfig, luck: np.ndarray | None = None) -> float:
        """Return what the mean over the truth's seeds, or over seeds of another luck, is multiplied by."""
        lengths = np.log([c.horizon for c in self._base])
        return float(np.exp(np.interp(np.log(config.horizon), lengths, self._luck if luck is None else luck)))

    def _front(self, choose: np.ndarray, measure: np.ndarray) -> float:
        compute = np.array([c.compute for c in self.configs.values()])
        members = pareto.nondominated(np.column_stack([choose.mean(axis=1), compute]))
        return pareto.hypervolume(np.column_stack([measure.mean(axis=1), compute])[members], self.reference)

    def value(self, configs: Sequence[TrialConfig]) -> float:
        """Return the hypervolume of a front over the best known, by the true means."""
        return self._share(configs, [self.true[config_id(c.params)] for c in configs])

    def value_of_any(self, configs: Sequence[TrialConfig]) -> float:
        """Return the same of configurations whose truth need not be known yet."""
        for config, errors in zip(configs, self.bank.truth(configs), strict=True):
            self.true.setdefault(config_id(config.params), float(errors.mean()) * self.correction(config))
        return self.value(configs)

    def claimed(self, row: Row) -> float:
        """Return the hypervolume that a search claims over the best known, corrected for the luck of its own seeds."""
        counts = np.array([count for _, count in row["seeds"]], dtype=float)
        errors = [[self.bank.error(config, seed) for config in self._base] for seed, _ in row["seeds"]]
        luck = np.log(self._many / (counts @ np.array(errors) / counts.sum()))
        configs = [self.bank.config(p) for p in row["configs"]]
        return self._share(
            configs, [e * self.correction(c, luck) for e, c in zip(row["claimed"], configs, strict=True)]
        )

    def _share(self, configs: Sequence[TrialConfig], errors: Sequence[float]) -> float:
        points = [(e, c.compute) for e, c in zip(errors, configs, strict=True)]
        return pareto.hypervolume(points, self.reference) / self.best if points else 0.0


def judged(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with their true and claimed hypervolumes."""
    out = []
    for name in dict.fromkeys(r["task"] for r in rows):
        judge = Judge(Bank(ALL[name]))
        for row in rows:
            if row["task"] == name:
                configs = [judge.bank.config(p) for p in row["configs"]]
                claim = judge.claimed(row) if row.get("seeds") else math.nan
                out.append({**row, "true": judge.value(configs), "claim": claim, "size": len(configs)})
    return out


def table(rows: Sequence[Row]) -> str:
    """Return means over tasks and repeats per method and budget, and the worst task."""
    budgets, count = sorted({r["budget"] for r in rows}), len({r["task"] for r in rows})
    lines = ["| method | " + " | ".join(f"{b:g}" for b in budgets) + " | worst task at 40 | repeats |"]
    lines.append("| --- |" + " ---: |" * (len(budgets) + 2))
    for method in dict.fromkeys(r["method"] for r in rows):
        own = [r for r in rows if r["method"] == method]
        cells = [_cell([r for r in own if r["budget"] == b]) for b in budgets]
        third = _by_task([r for r in own if r["budget"] == 40.0])
        worst = f"{min(np.mean(v) for v in third.values()):.3f}" if third else ""
        repeats = min(len(v) for v in _by_task([r for r in own if r["budget"] == own[-1]["budget"]]).values())
        tasks = len({r["task"] for r in own})
        part = "" if tasks == count else f", {tasks} of {count} tasks"
        lines.append(f"| {method} | " + " | ".join(cells) + f" | {worst} | {repeats}{part} |")
    return "\n".join(lines)


def _by_task(rows: Sequence[Row], value: str = "true") -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row["task"], []).append(row[value])
    return found


def _cell(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    by_task = _by_task(rows)
    sem = np.sqrt(np.sum([np.var(v, ddof=1) / len(v) if len(v) > 1 else 0 for v in by_task.values()])) / len(by_task)
    return f"{np.mean([np.mean(v) for v in by_task.values()]):.3f} ± {sem:.3f}"


def behind(rows: Sequence[Row], reference: str = "ours") -> list[str]:
    """Return where another method is significantly ahead on a task (Welch's test, p < 0.05, no correction)."""
    found = []
    for method in dict.fromkeys(r["method"] for r in rows):
        for task in dict.fromkeys(r["task"] for r in rows):
            for budget in BUDGETS:
                at = [r for r in rows if (r["task"], r["budget"]) == (task, budget)]
                mine, theirs = ([r["true"] for r in at if r["method"] == name] for name in (reference, method))
                if method != reference and len(mine) > 1 and len(theirs) > 1 and np.mean(theirs) > np.mean(mine):
                    p = stats.ttest_ind(mine, theirs, equal_var=False).pvalue
                    if p < 0.05:
                        gap = f"{np.mean(theirs):.3f} against {np.mean(mine):.3f}"
                        found.append(f"{method} on {task} at {budget:g}: {gap} (p = {p:.3f})")
    return found


def claims(rows: Sequence[Row], method: str = "ours") -> str:
    """Return claimed minus true hypervolume per task at the third budget, with its standard error."""
    own = [r for r in rows if r["method"] == method and r["budget"] == 40.0]
    gaps = _by_task([{**r, "gap": r["claim"] - r["true"]} for r in own], "gap")
    return ", ".join(f"{task} {np.mean(g):+.3f} ± {stats.sem(g):.3f}" for task, g in gaps.items())


def main() -> None:
    """Run what is missing where asked to, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--task", action="append", choices=list(ALL))
    parser.add_argument("--method", action="append", choices=list(METHODS))
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--slow-worlds", type=int, default=4, help="repeats of methods that take minutes each")
    parser.add_argument("--quick", action="store_true", help="accepted for uniformity: the tables take seconds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.train:
        for name in options.method or METHODS:
            for task in options.task or (*TASKS, *(UNSEEN if name in ON_UNSEEN else ())):
                train(Bank(ALL[task]), name, *plan(name, options.worlds, options.slow_worlds))
        for task in ALL:
            Judge(Bank(ALL[task])).bank.save()
    rows = judged(load())
    if not rows:
        sys.exit("there are no kept results: run with --train")
    print(table([r for r in rows if r["task"] in TASKS]))
    for task in dict.fromkeys(r["task"] for r in rows):
        print(f"\n{task}: {ALL[task].about}" + (", never seen before" if task in UNSEEN else ""))
        print(table([r for r in rows if r["task"] == task]))
    print("\nclaimed minus true hypervolume at 40:", claims(rows))
    print("\nsignificantly ahead of ours on a task:", *(behind(rows) or ["nothing"]), sep="\n  ")


if __name__ == "__main__":
    main()

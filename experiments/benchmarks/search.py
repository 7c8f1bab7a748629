"""Which search finds the front for fewer pairs: a benchmark on tables of real trainings, replayed in simulated time.

    python experiments/benchmarks/search.py [--table second_table.npz] [--repeats 20] [--only ours] [--json FILE]
    python experiments/benchmarks/search.py --quick

The result is the hypervolume of the TRUE mean errors of the front that a method delivers, over the best that the table
holds, linear in error and extra propagation, against the table's fixed reference point (error 12 or 14 %, extra
propagation 1.1). Every pair is charged: low rungs, stopped trials, replicates, confirmation. Methods are paired by
repeat (one world of seeds) and compared by Wilcoxon's test.

The tables have one length and one radius, so the searches have, too: this is the view of a fixed length, not the front
over the compute.

Two tables are kept: digits with the embedded task, and a second one (`--table second_table.npz`) with another network
and twice the wrong labels. The shipped settings, the warm-start points among them, were chosen on worlds 600 to 863 of
both. No other method was tuned. The kept results were measured with version 0.1.0, which had another sampler and
another surrogate, on worlds 8000 to 8019 (`--first-world 8000`) of both: other draws of the same trained seeds (40 and
50), and the same true surfaces that the warm-start points were chosen on. The present code gives other numbers.
`make_table.py` trains a table, `replay.py` answers from it, `contenders.py` has the methods.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import contenders as methods
import numpy as np
import optuna
from replay import EPOCHS, STEPS_PER_EPOCH, TABLE, Table, load_table
from scipy import stats

from rst_tune.analysis.analysis import Analysis, analyze
from rst_tune.records import Search
from rst_tune.tuning.estimate import paper_grid_pairs

GRID_PAIRS = paper_grid_pairs(EPOCHS * STEPS_PER_EPOCH)
TENTH = round(GRID_PAIRS / 10)
BUDGETS = (2000, 5333, TENTH, 27000)
# The grid ends where the paper's own study ends; stock levels off early and is slow to sample.
FINAL = {"grid": GRID_PAIRS, "stock": 16000}
BASE = ("ours", "posterior")

AVERAGED = ("reported", "pairs", "trials", "finished", "size")

Row = dict[str, Any]
Method = Callable[[float, methods.World], Search]

# Run once to the largest budget and truncated: what they do does not depend on the budget.
ANYTIME: dict[str, Method] = {
    "grid": methods.grid,
    "random": partial(methods.sampler_alone, "random", methods.NATIVE),
    "nsga2": partial(methods.sampler_alone, "nsga2", methods.NATIVE),
    "tpe": partial(methods.sampler_alone, "tpe", methods.NATIVE),
    "stock": methods.stock,
}
TITLES = {
    "grid": "the paper's grid",
    "random": "random, native",
    "nsga2": "NSGA-II, native",
    "tpe": "MO-TPE, native",
    "stock": "stock: MO-TPE + ASHA on error, partial told as complete",
    "top-k": "Top-K after one epoch",
}
# One change each to the shipped settings. A change replaces a whole part.
ABLATIONS: dict[str, dict[str, Any]] = {
    "native parametrization": {"space": methods.NATIVE},
    "cost sampled uniformly, not in its logarithm": {"log": False},
    "gamma_rst from 0.4 to 1.5": {"wide": False},
    "no warm start": {"warm_start": False},
    "the paper's points as warm start": {"warm_start": False, "points_to_evaluate": methods.PAPER_POINTS},
    "TPE sampler": {"sampler": {"name": "tpe"}},
    "random sampler": {"sampler": {"name": "random"}},
    "NSGA-II sampler": {"sampler": {"name": "nsga2"}},
    "one seed for all configurations": {"shared_seed": True},
    "no stopping": {"stopping": {"name": "none"}},
    "plain ASHA": {"stopping": {"name": "asha"}},
    "Pareto-ASHA": {"stopping": {"name": "pareto-asha"}},
    "no confirmation": {"confirm": {"enabled": False}},
    "half of the budget for confirmation": {"confirm": {"budget_fraction": 0.5}},
    "4 candidates": {"confirm": {"candidates": 4}},
    "candidates by posterior errors": {"by_posterior": True},
    "TPE sampler, no warm start": {"sampler": {"name": "tpe"}, "warm_start": False},
}
RECOMMENDERS: dict[str, Callable[[Analysis], methods.Front]] = {
    "measured": methods.measured_front,
    "posterior": methods.posterior_front,
}


def ours(
    budget: float,
    table: Table,
    number: int,
    *,
    log: bool = True,
    wide: bool = True,
    space: dict[str, Any] | None = None,
    warm_start: bool = True,
    points_to_evaluate: Iterable[Any] = (),
    shared_seed: bool = False,
    by_posterior: bool = False,
    **changes: Any,
) -> Search:
    """Run the real controller with the shipped settings and some changes in one world."""
    world = methods.World(table, number, shared_seed=shared_seed)
    space = space or methods.cost_space(table, log=log, wide=wide)
    space = {**space, "warm_start": warm_start, "points_to_evaluate": list(points_to_evaluate)}
    experiment = methods.make_experiment(space, budget, world, **changes)
    with methods.candidates_by_posterior_error() if by_posterior else nullcontext():
        return methods.simulate(experiment, world)


def repeat(number: int, path: Path, only: str | None, quick: bool) -> list[Row]:
    """Run every method in one world and return one row per method, recommender and budget."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    table = load_table(path)
    world = methods.World(table, number)
    budgets = BUDGETS[:1] if quick else BUDGETS
    rows: list[Row] = []
    for name, method in ANYTIME.items() if only is None else ():
        last = max(budgets) if quick else FINAL.get(name, max(budgets))
        whole = method(last, world)
        for budget in sorted({last, *(b for b in budgets if b < last)}):
            rows += score(name, methods.truncate(whole, budget), budget, table)
    for budget in budgets if only in (None, "ours") else ():
        rows += score("ours", ours(budget, table, number), budget, table)
    for name, changes in {} if quick else ABLATIONS.items():
        if only is None or only in name:
            for budget in (TENTH,) if only is None else budgets:
                rows += score(name, ours(budget, table, number, **changes), budget, table)
    for budget in budgets if only is None else ():
        rows += score("top-k", methods.top_k(budget, world), budget, table)
    return [row | {"repeat": number} for row in rows]


def score(name: str, search: Search, budget: float, table: Table) -> list[Row]:
    """Return one row per recommender."""
    analysis = analyze(search)
    rows = []
    for recommender, front_of in RECOMMENDERS.items():
        front = front_of(analysis)
        true = methods.true_points([config for config, _ in front], table)
        reported = [(error, config.extra_propagation) for config, error in front]
        rows.append(
            {
                "method": name,
                "recommender": recommender,
                "budget": budget,
                "ratio": table.hypervolume(true) / table.best,
                "reported": table.hypervolume(reported) / table.best,
                "trials": len(search.trials),
                "finished": len(search.finished()),
                "size": len(front),
                "pairs": search.pairs,
            }
        )
    return rows


# --- the comparison -------------------------------------------------------------------------------------------


def column(rows: list[Row], method: str, recommender: str, budget: float, of: str = "ratio") -> np.ndarray:
    """Return the values of the repeats, in order of repeat."""
    found = [r for r in rows if (r["method"], r["recommender"], r["budget"]) == (method, recommender, budget)]
    return np.array([r[of] for r in sorted(found, key=lambda r: r["repeat"])])


def compare(rows: list[Row], base: tuple[str, str]) -> list[Row]:
    """Return mean, standard error and the paired test against `base`, per method, recommender and budget."""
    table = []
    for method, recommender, budget in dict.fromkeys((r["method"], r["recommender"], r["budget"]) for r in rows):
        values, against = column(rows, method, recommender, budget), column(rows, *base, budget)
        paired = len(against) == len(values) and (method, recommender) != base and np.any(values != against)
        table.append(
            {
                "method": method,
                "recommender": recommender,
                "budget": budget,
                "values": values.round(4).tolist(),
                "mean": float(values.mean()),
                "sem": float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None,
                "difference": float((values - against).mean()) if paired else None,
                "p": float(stats.wilcoxon(values, against).pvalue) if paired else None,
                **{of: float(column(rows, method, recommender, budget, of).mean()) for of in AVERAGED},
            }
        )
    return table


def correlations(table: Table) -> list[Row]:
    """Return Spearman's correlation of each rung with the final error, over means and (averaged) over single runs."""
    curves = table.curves
    # Every distinct trained configuration with a sharpness-aware step: at c = 1 all families are one schedule.
    inner, sam = curves[:, :-1, 1:], curves[0, -1, 1:]
    distinct = np.concatenate([each.reshape(-1, *curves.shape[3:]) for each in (inner, sam)])
    final, found = distinct[:, :, -1], []
    for epoch in (1, 3, 7, 13):
        rung = distinct[:, :, epoch - 1]
        single = [stats.spearmanr(rung[:, s], final[:, s]).statistic for s in range(rung.shape[1])]
        means = stats.spearmanr(rung.mean(axis=1), final.mean(axis=1)).statistic
        found.append({"epoch": epoch, "of_means": float(means), "of_runs": float(np.mean(single))})
    return found


def least_budget(lines: list[Row], key: tuple[str, str], level: float) -> float | None:
    """Return the smallest tested budget at which the mean ratio reaches `level`."""
    reached = [x["budget"] for x in lines if (x["method"], x["recommender"]) == key and x["mean"] >= level]
    return min(reached, default=None)


def targets(lines: list[Row], base: tuple[str, str]) -> Row:
    """Return the numbers of the two targets: to beat the stock search, and 0.95 of the best for a tenth of the grid."""
    own = [x for x in lines if x["recommender"] == "measured"]
    grid, stock = (next(x for x in own if (x["method"], x["budget"]) == final) for final in FINAL.items())
    return {
        "stock_final": stock["mean"],
        "stock_pairs": stock["pairs"],
        "ours_reaches_stock_at": (at := least_budget(lines, base, stock["mean"])),
        "p_of_ours_there_against_stock_final": _paired(lines, base, at, stock["values"]),
        "grid_final": grid["mean"],
        "grid_pairs": grid["pairs"],
        "ours_reaches_95_at": least_budget(lines, base, 0.95),
        "tenth_of_the_grid": GRID_PAIRS / 10,
    }


def _paired(lines: list[Row], key: tuple[str, str], budget: float | None, values: list[float]) -> Any:
    """Return the p value of a method at one budget against the values of another; None without the first."""
    found = [x["values"] for x in lines if (x["method"], x["recommender"], x["budget"]) == (*key, budget)]
    return float(stats.wilcoxon(found[0], values).pvalue) if found else None


def text(lines: list[Row]) -> str:
    """Return the lines as a table: one row per method and recommender, one column per budget."""
    budgets = sorted({x["budget"] for x in lines})
    out = [f"{'hypervolume of the true means / best known':58s}" + "".join(f"{b:>15.0f}" for b in budgets)]
    for method, recommender in dict.fromkeys((x["method"], x["recommender"]) for x in lines):
        cells = {x["budget"]: x for x in lines if (x["method"], x["recommender"]) == (method, recommender)}
        row = "".join(f"{_cell(cells.get(b)):>15s}" for b in budgets)
        out.append(f"{f'{TITLES.get(method, method)} [{recommender}]':58s}{row}")
    return "\n".join(out)


def _cell(line: Row | None) -> str:
    if line is None:
        return ""
    mark = "" if line["p"] is None or line["p"] >= 0.05 else "*"
    return f"{line['mean']:.3f}±{line['sem'] or 0:.3f}{mark or ' '}"


def main() -> None:
    """Run all methods, print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--first-world", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", help="ours, or a part of an ablation's name")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--quick", action="store_true", help="one world, 2,000 pairs, no ablations")
    given = parser.parse_args()
    repeats = 1 if given.quick else given.repeats
    begun = time.monotonic()
    table = load_table(given.table)
    for row in (found := correlations(table)):
        print(
            f"rung at epoch {row['epoch']:2d}: Spearman with the final error {row['of_means']:+.2f} (means), "
            f"{row['of_runs']:+.2f} (single runs)"
        )
    os.environ["OMP_NUM_THREADS"] = "1"  # inherited by the workers: small matrices gain nothing from threads
    work = partial(repeat, path=given.table, only=given.only, quick=given.quick)
    worlds = range(given.first_world, given.first_world + repeats)
    rows = []
    with multiprocessing.get_context("spawn").Pool(min(given.workers, repeats)) as pool:
        for done, part in enumerate(pool.imap(work, worlds), start=1):
            rows += part
            print(f"world {done} of {repeats}, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    lines = compare(rows, BASE)
    print(text(lines), f"\n* differs from {BASE[0]} [{BASE[1]}] at p < 0.05 (paired Wilcoxon, {repeats} repeats)")
    reached = targets(lines, BASE) if given.only is None and not given.quick else {}
    for name, value in reached.items():
        print(f"{name}: {value}")
    if given.json:
        about = {
            "repeats": repeats,
            "worlds": [worlds[0], worlds[-1]],
            "reference": table.reference,
            "best": table.best,
            "grid_pairs": GRID_PAIRS,
        }
        content = {**about, "correlations": found, "targets": reached, "lines": lines}
        given.json.write_text(json.dumps(content, indent=1) + "\n")
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()

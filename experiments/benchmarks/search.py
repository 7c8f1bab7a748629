"""Which search finds the front for fewer pairs: a benchmark on tables of real trainings, replayed in simulated time.

python experiments/benchmarks/search.py [--table second_table.npz] [--repeats 20] [--only ours] [--json results.json]

Measured is the hypervolume of the TRUE mean errors of the front a method delivers, over the best that the table
holds, against the table's fixed reference point (error 12 or 14 %, cost 1.1). Every pair is charged: low rungs, stopped
trials, replicates, confirmation. Methods are paired by repeat (one world of seeds) and compared by Wilcoxon's test.

Two tables are kept: digits with the embedded task, and a second one (`--table second_table.npz`) with another network
and twice the wrong labels. What is shipped, the prior points among it, was chosen on worlds 600 to 863 of both. No
other method was tuned. The results that are kept are of worlds 8000 to 8019 (`--first-world 8000`) of both: other draws
of the same trained seeds (40 and 50), and the same true surfaces that the prior points were chosen on.
`make_table.py` trains the table; `replay.py` says how it answers, `contenders.py` what is compared.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any

import contenders as methods
import numpy as np
import optuna
from replay import EPOCHS, STEPS_PER_EPOCH, TABLE, Table, load_table
from scipy import stats

from rst_tune.analysis.records import Search
from rst_tune.tuning.plan import paper_grid_pairs

GRID_PAIRS = paper_grid_pairs(EPOCHS * STEPS_PER_EPOCH)
BUDGETS = (2000, 5333, round(GRID_PAIRS / 10), 27000)
ABLATED = (round(GRID_PAIRS / 10),)
# The grid ends where the paper's own study ends; stock levels off early and is slow to sample.
FINAL = {"grid": GRID_PAIRS, "stock": 16000}

AVERAGED = ("claimed", "pairs", "trials", "finished", "size")

Method = Callable[[float, methods.World], Search]
Recommender = Callable[[Search], methods.Claims]

# Run once to the largest budget and read on the way: what they do does not depend on the budget.
ANYTIME: dict[str, Method] = {
    "grid": methods.grid,
    "random": partial(methods.sampled, "random", methods.NATIVE),
    "nsga2": partial(methods.sampled, "nsga2", methods.NATIVE),
    "tpe": partial(methods.sampled, "tpe", methods.NATIVE),
    "stock": methods.stock,
}
TITLES = {
    "grid": "the paper's grid",
    "random": "random, native",
    "nsga2": "NSGA-II, native",
    "tpe": "MO-TPE, native",
    "stock": "stock: MO-TPE + ASHA on error, partial told as complete",
    "top-k": "Top-K after one epoch",
    "ours": "ours",
}
# One change each to what is shipped. A change replaces a whole part.
ABLATIONS: dict[str, dict[str, Any]] = {
    "native coordinates": {"space": methods.NATIVE},
    "cost drawn uniformly, not in its logarithm": {"log": False},
    "gamma_rst from 0.4 to 1.5": {"wide": False},
    "no prior points": {"priors": False},
    "the paper's prior points": {"priors": False, "points": methods.PAPER_POINTS},
    "TPE sampler": {"sampler": {"name": "tpe"}},
    "random sampler": {"sampler": {"name": "random"}},
    "NSGA-II sampler": {"sampler": {"name": "nsga2"}},
    "one seed for all draws": {"shared": True},
    "no stopping": {"stopping": {"name": "none"}},
    "prefix, plain ASHA": {"stopping": {"name": "asha"}},
    "prefix, Pareto-ASHA": {"stopping": {"name": "pareto-asha"}},
    "rescaled, guarded": {"fidelity": {"kind": "rescaled"}},
    "rescaled, Pareto-ASHA": {"fidelity": {"kind": "rescaled"}, "stopping": {"name": "pareto-asha"}},
    "no confirmation": {"confirm": {"enabled": False}},
    "confirm share 0.5": {"confirm": {"share": 0.5}},
    "4 candidates": {"confirm": {"candidates": 4}},
    "candidates by expected errors": {"expected": True},
    "TPE sampler, no prior points": {"sampler": {"name": "tpe"}, "priors": False},
}
RECOMMENDERS: dict[str, Recommender] = {
    "measured": methods.front_as_measured,
    "expected": methods.front_as_expected,
}


def ours(budget: float, world: methods.World, **changes: Any) -> Search:
    """Run the real conductor as shipped, with some changes."""
    log, priors = changes.pop("log", True), changes.pop("priors", True)
    wide = changes.pop("wide", True)
    space = changes.pop("space", None) or methods.cost_space(world.table, log=log, wide=wide)
    world.shared, expected = changes.pop("shared", False), changes.pop("expected", False)
    space = {**space, "priors": priors, "points": changes.pop("points", [])}
    experiment = methods.experiment_of(space, budget, world, **changes)
    with methods.candidates_by_expected_errors() if expected else nullcontext():
        return methods.conduct(experiment, world)


@cache
def _table(path: Path) -> Table:
    return load_table(path)


def repeat(number: int, path: Path, only: str | None) -> list[dict[str, Any]]:
    """Run every method in one world and return rows (method, recommender, budget, ratio, pairs)."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    table = _table(path)
    rows: list[dict[str, Any]] = []
    for name, method in ANYTIME.items() if only is None else ():
        last = FINAL.get(name, max(BUDGETS))
        whole = method(last, methods.World(table, number))
        for budget in sorted({last, *(b for b in BUDGETS if b < last)}):
            rows += judged(name, methods.cut(whole, budget), budget, table)
    for name, changes, budget in ours_and_ablations(only):
        rows += judged(name, ours(budget, methods.World(table, number), **changes), budget, table)
    for budget in BUDGETS if only is None else ():
        world = methods.World(table, number)
        rows += judged("top-k", methods.top_k(budget, world), budget, table, world.spent)
    return [row | {"repeat": number} for row in rows]


def ours_and_ablations(only: str | None) -> Iterable[tuple[str, dict[str, Any], float]]:
    """Yield (name, changes, budget); all budgets for ablations that were asked for by name."""
    if only in (None, "ours"):
        yield from (("ours", {}, budget) for budget in BUDGETS)
    for name, changes in ABLATIONS.items():
        if only is None or only in name:
            yield from ((name, dict(changes), budget) for budget in (ABLATED if only is None else BUDGETS))


def judged(name: str, search: Search, budget: float, table: Table, pairs: float | None = None) -> list[dict[str, Any]]:
    """Return one row for each recommender."""
    rows = []
    for recommender, front in RECOMMENDERS.items():
        claims = front(search)
        value = table.hypervolume(methods.truth_of([config for config, _ in claims], table)) / table.best
        claimed = table.hypervolume([(error, config["extra_propagation"]) for config, error in claims]) / table.best
        row = {"method": name, "recommender": recommender, "budget": budget, "ratio": value, "claimed": claimed}
        counts = {"trials": len(search.trials), "finished": len(search.finished()), "size": len(claims)}
        rows.append(row | counts | {"pairs": search.pairs if pairs is None else pairs})
    return rows


# --- what the rows say ----------------------------------------------------------------------------------------


def column(rows: list[dict[str, Any]], method: str, recommender: str, budget: float, of: str = "ratio") -> np.ndarray:
    """Return the values of the repeats, in order of repeat."""
    found = [r for r in rows if (r["method"], r["recommender"], r["budget"]) == (method, recommender, budget)]
    return np.array([r[of] for r in sorted(found, key=lambda r: r["repeat"])])


def compared(rows: list[dict[str, Any]], base: tuple[str, str]) -> list[dict[str, Any]]:
    """Return mean, standard error and the paired test against `base`, for every method, recommender and budget."""
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


def correlations(table: Table) -> list[dict[str, Any]]:
    """Return Spearman's correlation of each rung with the final error, over means and (averaged) over single runs."""
    found = []
    full = _configurations(table, EPOCHS)
    for kind, epoch in [("prefix", e) for e in (1, 3, 7, 13)] + [("rescaled", e) for e in sorted(table.curves)[:-1]]:
        rung = full[:, :, epoch - 1] if kind == "prefix" else _configurations(table, epoch)[:, :, -1]
        final = full[:, :, -1]
        single = [stats.spearmanr(rung[:, s], final[:, s]).statistic for s in range(rung.shape[1])]
        means = stats.spearmanr(rung.mean(axis=1), final.mean(axis=1)).statistic
        found.append({"kind": kind, "epoch": epoch, "of_means": float(means), "of_runs": float(np.mean(single))})
    return found


def _configurations(table: Table, epochs: int) -> np.ndarray:
    """Return the curves of every distinct trained configuration with a sharpness-aware step: (n, seeds, epochs)."""
    curves = table.curves[epochs]
    inner = curves[:, :-1, 1:].reshape(-1, *curves.shape[3:])
    return np.concatenate([inner, curves[0, -1, 1:].reshape(-1, *curves.shape[3:])])


def least_budget(lines: list[dict[str, Any]], key: tuple[str, str], level: float) -> float | None:
    """Return the smallest tested budget at which the mean ratio reaches `level`."""
    reached = [x["budget"] for x in lines if (x["method"], x["recommender"]) == key and x["mean"] >= level]
    return min(reached, default=None)


def targets(lines: list[dict[str, Any]], base: tuple[str, str]) -> dict[str, Any]:
    """Return what the two targets ask for."""
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


def _paired(lines: list[dict[str, Any]], key: tuple[str, str], budget: float | None, values: list[float]) -> Any:
    """Return the p value of a method at one budget against the values of another at its own, None without the first."""
    found = [x["values"] for x in lines if (x["method"], x["recommender"], x["budget"]) == (*key, budget)]
    return float(stats.wilcoxon(found[0], values).pvalue) if found else None


def text(lines: list[dict[str, Any]]) -> str:
    """Return the lines as a table: a row a method and recommender, a column a budget."""
    budgets = sorted({x["budget"] for x in lines})
    out = [f"{'hypervolume of the true means / best known':58s}" + "".join(f"{b:>15.0f}" for b in budgets)]
    for method, recommender in dict.fromkeys((x["method"], x["recommender"]) for x in lines):
        cells = {x["budget"]: x for x in lines if (x["method"], x["recommender"]) == (method, recommender)}
        row = "".join(f"{_cell(cells.get(b)):>15s}" for b in budgets)
        out.append(f"{f'{TITLES.get(method, method)} [{recommender}]':58s}{row}")
    return "\n".join(out)


def _cell(line: dict[str, Any] | None) -> str:
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
    given = parser.parse_args()
    begun = time.monotonic()
    table = load_table(given.table)
    for row in (found := correlations(table)):
        rung = f"{row['kind']:9s} epoch {row['epoch']:2d}"
        print(f"{rung}: Spearman with the final {row['of_means']:+.2f} (means), {row['of_runs']:+.2f} (single runs)")
    os.environ["OMP_NUM_THREADS"] = "1"  # inherited by the workers: small matrices gain nothing from threads
    work = partial(repeat, path=given.table, only=given.only)
    worlds = range(given.first_world, given.first_world + given.repeats)
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        rows = []
        for done, part in enumerate(pool.imap(work, worlds), start=1):
            rows += part
            print(f"world {done} of {given.repeats}, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    base = ("ours", "expected")
    lines = compared(rows, base)
    print(text(lines), f"\n* differs from {base[0]} [{base[1]}] at p < 0.05 (paired Wilcoxon, {given.repeats} repeats)")
    reached = targets(lines, base) if given.only is None else {}
    for name, value in reached.items():
        print(f"{name}: {value}")
    if given.json:
        about = {
            "repeats": given.repeats,
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

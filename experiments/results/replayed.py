"""The replayed benchmark on the result page: the kept results of `experiments/benchmarks/search.py`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from page import Page

__all__ = ["write"]

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
# The table, the results on it, and its task.
KEPT = (
    ("digits_table.npz", "search_results.json", "digits, the embedded task"),
    ("second_table.npz", "second_results.json", "digits with a network without convolutions and 40 % wrong labels"),
)
OURS = ("ours", "posterior")
# The other methods have no surrogate: they deliver the front of the measured errors.
OTHERS = {
    "grid": "the paper's grid, one seed of everything, then the next",
    "stock": "stock parts: MO-TPE with ASHA on error, partial results told as complete",
    "top-k": "Top-K after one epoch",
    "random": "random, native parameters",
    "nsga2": "NSGA-II, native parameters",
    "tpe": "MO-TPE, native parameters",
}

Line = dict[str, Any]


def write(page: "Page", folder: Path = BENCHMARKS) -> None:
    """Write the tables of both tasks and whether the targets were reached."""
    page.say(
        "### Replayed on tables of real trainings",
        "Trainings of families × cost × gamma × horizon × seeds (`make_table.py`) answer any configuration at once, so "
        "each search can be repeated. The number is the hypervolume of the **true** means of the delivered front over "
        "the best known, at equal pairs, with every pair charged. The shipped settings were chosen on other worlds "
        "(600 to 863) of both tasks, and the warm-start points on their true surfaces: for those no world is new. "
        "All worlds of a task draw on the same trained seeds. * differs from ours at p < 0.05 (paired Wilcoxon test).",
    )
    for table, results, task in KEPT:
        _write_task(page, folder / table, json.loads((folder / results).read_text()), task)


def _write_task(page: "Page", table: Path, kept: Line, task: str) -> None:
    lines = {(x["method"], x["recommender"], x["budget"]): x for x in kept["lines"]}
    budgets = sorted({x["budget"] for x in kept["lines"] if x["method"] == "ours"})
    first, last = kept["worlds"]
    with np.load(table) as file:
        trainings, seeds = len(file["seed"]), int(file["seed"].max()) + 1
    page.say(
        f"**{task[0].upper()}{task[1:]}**: {trainings:,} trainings, {seeds} seeds, {kept['repeats']} repeats (worlds "
        f"{first} to {last}), reference error {kept['reference'][0]:g} %. `python experiments/benchmarks/search.py "
        f"--table experiments/benchmarks/{table.name} --first-world {first}`",
    )
    head = ["search", *(f"{budget:,.0f} pairs" for budget in budgets)]
    rows = [["**rst-tune, as shipped**", *(_cell(lines.get((*OURS, budget))) for budget in budgets)]]
    rows.append(["… front of the measured means", *(_cell(lines.get(("ours", "measured", b))) for b in budgets)])
    rows += [
        [name, *(_cell(lines.get((method, "measured", budget))) for budget in budgets)]
        for method, name in OTHERS.items()
    ]
    page.table(head, rows)
    _say_targets(page, kept["targets"], lines[(*OURS, round(kept["targets"]["tenth_of_the_grid"]))])
    _ablations(page, kept["lines"])


def _cell(line: Line | None) -> str:
    if line is None:
        return ""
    mark = "" if line["p"] is None or line["p"] >= 0.05 else " *"
    return f"{line['mean']:.3f} ± {line['sem']:.3f}{mark}"


def _say_targets(page: "Page", targets: Line, at_aim: Line) -> None:
    at, reached = targets["ours_reaches_stock_at"], targets["ours_reaches_95_at"]
    stock = f"The stock search ends at {targets['stock_final']:.3f} after {targets['stock_pairs']:,.0f} pairs; "
    stock += "ours never reaches that" if at is None else f"ours is above that at {at:,.0f} pairs"
    share = "at no tested budget" if reached is None else f"at {reached:,.0f} pairs"
    page.say(
        f"{stock}. The paper's whole grid, {targets['grid_pairs']:,.0f} pairs, ends at {targets['grid_final']:.3f}. "
        f"Ours reaches 0.95 of the best known {share}; the aim was a tenth of the grid's pairs, "
        f"{targets['tenth_of_the_grid']:,.0f}: **{_verdict(reached, targets['tenth_of_the_grid'])}**. With all of "
        f"those it has {_cell(at_aim)}."
    )


def _verdict(reached: float | None, aim: float) -> str:
    return "reached" if reached is not None and reached <= aim + 1 else "missed"


def _ablations(page: "Page", lines: list[Line]) -> None:
    """Write the effect of one change each to the shipped settings, at the budget at which all were run."""
    known = {"ours", *OTHERS}
    changed = [x for x in lines if x["method"] not in known and x["recommender"] == OURS[1]]
    if not changed:
        return
    page.say(f"One change each to the shipped settings, at {changed[0]['budget']:,.0f} pairs:")
    body = [
        [
            x["method"],
            _cell(x),
            f"{x['difference']:+.3f}" if x["difference"] is not None else "",
            f"{x['reported']:.3f}",
        ]
        for x in sorted(changed, key=lambda x: -x["mean"])
    ]
    page.table(["change", "hypervolume", "difference to ours", "reported"], body)

"""The search on the result page: the suite of seven tasks, from its kept results (`experiments/benchmarks/suite`)."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from page import Page

SUITE = Path(__file__).parents[1] / "benchmarks" / "suite"


def write(page: "Page") -> None:
    """Write the comparison of search methods and the truth of their sentences."""
    sys.path.insert(0, str(SUITE))
    import decisions
    import run
    from tasks import ALL, TASKS, UNSEEN

    rows = run.judged(run.load())
    page.say(
        "### Seven tasks, equal budgets",
        "Small networks on seven tasks, over length, radius, rule, family, p and gamma (the space `compute`, on a "
        "grid). A front is judged by the means of its configurations over twelve fresh seeds, whatever was claimed "
        "for it: hypervolume in (error, logarithm of the compute) over that of the best known front of the task. "
        "Budgets are in plain trainings; mean over the tasks ± standard error. What was chosen on which tasks: the "
        "prior of the surrogate's coefficients is measured without the judged task; how many trainings the value of "
        "one is computed for, and what is added to its cost, on digits-noisy, clusters-hot, cifar-bn and digits-40 "
        "(worlds 100 to 107; here are worlds 0 to 15); the one length scale and how much rougher proposals are than "
        "predictions on worlds 300 to 307, where the choice is the same with any one of the seven tasks left out. True "
        "means are corrected for the luck of the twelve seeds by the base optimizer at the same length over two "
        "hundred. "
        "`python experiments/benchmarks/suite/run.py` prints this, `--train` runs what is missing.",
        run.table([r for r in rows if r["task"] in TASKS]),
        "Three tasks on which nothing was chosen, no setting and no prior; each was defined before anything was "
        "trained on it. That an error of 0 counts as half of the smallest one was noticed on spirals:",
        run.table([r for r in rows if r["task"] in UNSEEN]),
        "Ours, by task:",
    )
    by_task = {name: [r for r in rows if r["task"] == name and r["method"] == "ours"] for name in ALL}
    budgets = sorted({r["budget"] for r in rows})
    page.table(
        ["task", "what it is", *(f"{b:g}" for b in budgets)],
        [
            [name, ALL[name].about, *(run._cell([r for r in own if r["budget"] == b]) for b in budgets)]
            for name, own in by_task.items()
            if own
        ],
    )
    ahead = run.behind(rows)
    page.say(
        "Claimed minus true hypervolume at a budget of 40, both corrected for the luck of their seeds: "
        f"{run.claims(rows)}.",
        "Significantly ahead of ours on a task (Welch's test, p < 0.05, no correction): "
        + ("; ".join(ahead) if ahead else "nothing")
        + ".",
    )
    said = decisions.load()
    if said:
        found = decisions.scores(said)
        page.say(
            "### How often its sentences are true",
            "The same searches, at budgets of 40 and 60, and searches of three simulated tasks, whose true error is a "
            "formula (sharpness-aware training pays; does nothing; harms, and longer training wins): "
            "the share of the headline's 90 % intervals that hold the "
            "truth; points called confirmed that another delivered point truly dominates; claims of the kind "
            "«better than the base optimizer or SAM» that are true; the gap of the recommended point to the best "
            "known one of at most its compute; the points of a front and the plain trainings that it took. "
            "`python experiments/benchmarks/suite/decisions.py`. The last row is what was before: version 0.1.0 on its "
            "own two tables, at its 13,501 pairs. It printed means ± standard errors beside SAM's; its interval "
            "is taken as ± 1.64 of them, its claim as «no worse than SAM» where its mean is not above SAM's, and two "
            "seeds as replicated. It searched at one length and one radius, so its gap is to the best of these alone "
            "(`decisions_0_1_0.py` runs it in a checkout of that version).",
            decisions.table(found),
            decisions.reliability(found),
        )

"""How often the sentences of version 0.1.0 were true: its own searches, replayed on its own two tables.

It runs with the code of a checkout of commit 4af6ac9, which is that version:

    git worktree add ../old 4af6ac9
    PYTHONPATH=../old:../old/experiments/benchmarks python experiments/benchmarks/suite/decisions_0_1_0.py

The scores are those of `decisions.py`, one row per search. That version printed "error m ± s; SAM gives m ± s": its
90 % interval is m ± 1.64 s, and it claims to be no worse than SAM (than the base optimizer, where it recommends SAM)
if its mean is not above the other. Replicated are the points of its front with two seeds or more.
"""

import json
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
import contenders
import numpy as np
import optuna
import replay
import search

from rst_tune.analysis import fronts

FOUND = Path(__file__).with_suffix(".json")
TABLES, WORLDS, QUANTILE = ("digits_table.npz", "second_table.npz"), range(9000, 9016), 1.64
PLAIN = replay.EPOCHS * replay.STEPS_PER_EPOCH


class Truth:
    """The mean errors over all trained seeds of a table."""

    def __init__(self, table: replay.Table) -> None:
        self.table = table

    def seeds(self, row):
        """Return the errors of a configuration by trained seed."""
        place = replay.place_of(row.config, self.table)
        return self.table.truth(place) * self.table._ratios(place, replay.EPOCHS)[:, -1]

    def dominated(self, row, others):
        """Return whether another one costs no more and is truly better, beyond the error of the truth itself."""
        gaps = [self.seeds(row) - self.seeds(o) for o in others if o.extra_propagation <= row.extra_propagation]
        return any(bool(g.mean() > 2 * g.std(ddof=1) / np.sqrt(len(g))) for g in gaps)

    def best(self, cost):
        """Return the lowest true error for at most this cost: the table is linear between its nodes."""
        nodes = [replay.family_and_shape(name) for name in self.table.trained]
        costs = [*(c for c in self.table.costs if c <= cost), cost]
        places = [replay.Place(f, c, shape, g) for f, shape in nodes for c in costs for g in self.table.gammas]
        return min(self.table.truth(place) for place in places)


def score(truth, world):
    """Return which sentences of one search are true."""
    found = search.ours(search.ABLATED[0], contenders.World(truth.table, world))
    front = fronts.delivered(found)
    point, other = front.recommended, front.base if front.recommended is front.sam else front.sam
    error, width = float(truth.seeds(point).mean()), QUANTILE * (point.error_sem or 0.0)
    claims = point.error_mean <= other.error_mean
    return {
        "held": bool(abs(error - point.error_mean) <= width) if point.seeds > 1 else None,
        "confirmed": [truth.dominated(p, front.points) for p in front.confirmed],
        "better": [error <= float(truth.seeds(other).mean())] if claims else [],
        "gap": 100 * (error / truth.best(point.extra_propagation) - 1),
        "points": sum(p.seeds > 1 for p in front.points),
        "spent": found.pairs / PLAIN,
    }


def main() -> None:
    """Run the searches and write what they score."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    folder, rows = Path(replay.__file__).parent, []
    for name in TABLES:
        truth = Truth(replay.load_table(folder / name))
        for world in WORLDS:
            rows.append({"task": name.removesuffix(".npz"), "world": world, **score(truth, world)})
            print(rows[-1], flush=True)
    source = (
        f"commit 4af6ac9 (version 0.1.0), its tables {' and '.join(TABLES)}, worlds {WORLDS[0]} to {WORLDS[-1]} of "
        f"each (it was tuned on 600 to 863), {search.ABLATED[0]:,} pairs of which {PLAIN} are one plain training; "
        f"truth: means over all trained seeds; run by {Path(__file__).name}"
    )
    lines = ",\n".join(json.dumps(row) for row in rows)
    FOUND.write_text(f'{{"source": {json.dumps(source)},\n"rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()

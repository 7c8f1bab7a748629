"""How often the sentences of a search are true: the headline's interval, "confirmed", P(non-dominated), "better than".

    python experiments/benchmarks/suite/decisions.py             # the table, from the kept decisions
    python experiments/benchmarks/suite/decisions.py --train     # runs the searches that are missing

Each search of `run.py` is run again on the kept trainings and its analysis is compared with the means over fresh seeds.
So are searches of three simulated tasks (`simulated_tasks.py`), whose truth is exact, and those of version 0.1.0 on its
own two tables (`decisions_0_1_0.py`):

- headline: the share of the 90 % intervals of the recommended point that hold its true error;
- confirmed: the share of points called confirmed that another delivered point truly dominates (cheaper and better by
  more than the standard error of their true difference);
- better: the share of claims "better than the base optimizer, or SAM" whose true difference is below 0;
- gap: the true error of the recommended point over the lowest true error of the known configurations of at most its
  compute, in percent of it;
- points and cost: points of the front, and the plain trainings that were spent.

On a simulated task every difference is beyond the error of the truth, however small it is.
"""

import argparse
import itertools
import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import methods
import numpy as np
import torch
from bank import Bank
from prior import left_out
from run import Judge
from simulated_tasks import FORMULAS, SimulatedBank, simulated_bank
from tasks import ALL

from rst_tune.analysis.analysis import Analysis
from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.records import TrialConfig, config_id

RESULTS, SIMULATED, BEFORE = (
    Path(__file__).with_name(f"decisions{name}") for name in (".jsonl", "_simulated.jsonl", "_0_1_0.json")
)
BUDGETS, BINS = (40.0, 60.0), (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.01)
Row = dict[str, Any]


def decisions(analysis: Analysis) -> Row:
    """Return what an analysis says, with the configurations that it says it of."""
    point, baselines = analysis.recommended, analysis.baselines
    assert point is not None
    compared = [
        row for row in (baselines.best_base, baselines.base_at(point.compute), baselines.sam) if row is not None
    ]
    compared = list({row.config_id: row for row in compared if row is not point}.values())
    claims = [baselines.difference(point, row) for row in compared]
    return {
        "headline": [dict(point.config.params), point.error_low, point.error_posterior, point.error_high],
        "claims": [[dict(c.baseline.config.params), c.verdict, c.value] for c in claims],
        "points": [[dict(p.config.params), p.p_nondominated, p.verdict, p.seeds_total] for p in analysis.points],
        "rows": [[dict(p.config.params), p.p_nondominated] for p in analysis.summaries if _replicated(p)],
        "spent": sum(t.pairs for t in analysis.search.trials),
    }


def _replicated(row: ConfigSummary) -> bool:
    return row.seeds_total >= 3 and row.p_nondominated is not None


def train(name: str, worlds: int) -> None:
    """Run the searches of a task that are missing, and keep what they say."""
    kept = {(r["task"], r["world"], r["budget"]) for r in load()}
    missing = [(w, b) for w in range(worlds) for b in BUDGETS if (name, w, b) not in kept]
    if not missing:
        return
    bank = bank_of(name)
    prior = left_out(name)
    found = bank.run([partial(methods.ours, bank, budget, world, prior=prior) for world, budget in missing])
    rows = []
    for (world, budget), delivered in zip(missing, found, strict=True):
        assert delivered.analysis is not None
        said = decisions(delivered.analysis)
        said["spent"] /= bank.task.epochs * bank.task.steps_per_epoch
        rows.append({"task": name, "world": world, "budget": budget, **said})
    mentioned = [r[0] for row in rows for part in ("claims", "points", "rows") for r in row[part]]
    mentioned += [row["headline"][0] for row in rows]
    bank.truth(list({config_id(p): bank.config(p) for p in mentioned}.values()))
    bank.save()
    with (SIMULATED if name in FORMULAS else RESULTS).open("a") as file:
        file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    print(f"{name}: {len(rows)} searches", flush=True)


def load() -> list[Row]:
    """Return the kept rows."""
    return [json.loads(line) for p in (RESULTS, SIMULATED) if p.exists() for line in p.read_text().splitlines()]


def bank_of(name: str) -> Bank:
    """Return the bank of a task of the suite or of a simulated one."""
    return simulated_bank(name) if name in FORMULAS else Bank(ALL[name])


class Truth:
    """The errors of fresh seeds of one task, by configuration, corrected for the luck of these seeds (`run.Judge`)."""

    correction: Callable[[TrialConfig], float]

    def __init__(self, name: str) -> None:
        self.bank = bank_of(name)
        if isinstance(self.bank, SimulatedBank):
            configs, self.correction = self.bank.known(), lambda _: 1.0
            self.errors = self.bank.truth(configs)[:, 0]
        else:
            judge = Judge(self.bank)
            configs, self.correction = list(judge.configs.values()), judge.correction
            self.errors = np.array(list(judge.true.values()))
        self.computes = np.array([c.compute for c in configs])

    def seeds(self, params: dict[str, Any]) -> np.ndarray:
        """Return the errors of a configuration by fresh seed."""
        config = self.bank.config(params)
        return self.bank.truth([config])[0] * self.correction(config)

    def config(self, params: dict[str, Any]) -> TrialConfig:
        """Return the configuration."""
        return self.bank.config(params)

    def dominated(self, params: dict[str, Any], others: Sequence[dict[str, Any]]) -> bool:
        """Return whether another one costs no more and is truly better, beyond the error of the truth itself."""
        own, compute = self.seeds(params), self.config(params).compute
        for other in others:
            if other != params and self.config(other).compute <= compute:
                gap = own - self.seeds(other)
                if gap.mean() > 2 * gap.std(ddof=1) / np.sqrt(len(gap)):
                    return True
        return False


def scores(rows: Sequence[Row]) -> list[Row]:
    """Return for each search which of its sentences are true."""
    out = []
    for name in dict.fromkeys(r["task"] for r in rows):
        truth = Truth(name)
        for row in (r for r in rows if r["task"] == name):
            params, low, _, high = row["headline"]
            own, compute = truth.seeds(params), truth.config(params).compute
            points = [p[0] for p in row["points"]]
            best = truth.errors[truth.computes <= compute * (1 + 1e-9)].min()
            out.append({
                "task": name, "budget": row["budget"], "points": len(points), "spent": row["spent"],
                "held": None if low is None else bool(low <= own.mean() <= high),
                "gap": 100 * (float(own.mean()) / best - 1),
                "better": [float((own - truth.seeds(c[0])).mean()) < 0 for c in row["claims"] if c[1] == "better"],
                "confirmed": [truth.dominated(p[0], points) for p in row["points"] if p[2] == "confirmed"],
                "reliability": [(p[1], not truth.dominated(p[0], [r[0] for r in row["rows"]])) for p in row["rows"]],
            })  # fmt: skip
    return out


def table(found: Sequence[Row]) -> str:
    """Return the scores per task, over all tasks, and those of version 0.1.0."""
    lines = ["| task | searches | headline holds | confirmed but dominated | better is true | gap % | points | cost |"]
    lines.append("| --- |" + " ---: |" * 7)
    groups = {name: [r for r in found if r["task"] == name] for name in dict.fromkeys(r["task"] for r in found)}
    groups |= {"all": list(found), "version 0.1.0, its two tables": json.loads(BEFORE.read_text())["rows"]}
    return "\n".join([*lines, *(_line(name, own) for name, own in groups.items())])


def _line(name: str, own: Sequence[Row]) -> str:
    held = [r["held"] for r in own if r["held"] is not None]
    confirmed, better = ([x for r in own for x in r[part]] for part in ("confirmed", "better"))
    gap, points, spent = (np.mean([r[part] for r in own]) for part in ("gap", "points", "spent"))
    return (
        f"| {name} | {len(own)} | {np.mean(held):.2f} | {sum(confirmed)} of {len(confirmed)} | "
        f"{sum(better)} of {len(better)} | {gap:.1f} | {points:.1f} | {spent:.0f} |"
    )


def reliability(found: Sequence[Row]) -> str:
    """Return P(non-dominated) in bins against the share that is truly not dominated."""
    pairs = np.array([pair for r in found for pair in r["reliability"]], dtype=float)
    lines = ["| P(non-dominated) | configurations | mean P | truly not dominated |", "| --- | ---: | ---: | ---: |"]
    for low, high in itertools.pairwise(BINS):
        own = pairs[(pairs[:, 0] >= low) & (pairs[:, 0] < high)]
        if len(own):
            lines.append(
                f"| {low:g} to {min(high, 1):g} | {len(own)} | {own[:, 0].mean():.2f} | {own[:, 1].mean():.2f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Run what is missing where asked to, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--quick", action="store_true", help="accepted for uniformity: the tables take seconds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in (*ALL, *FORMULAS) if options.train else ():
        train(name, options.worlds)
    found = scores(load())
    print(table(found))
    print()
    print(reliability(found))


if __name__ == "__main__":
    main()

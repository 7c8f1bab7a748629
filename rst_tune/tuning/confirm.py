"""Which configurations are retrained on fresh seeds, and which of them next."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from rst_tune.analysis import noise
from rst_tune.analysis.records import Search
from rst_tune.tuning.experiment import Confirm
from rst_tune.tuning.rungs import pareto_order

__all__ = ["candidates", "unsettled"]


def candidates(search: Search, limit: int, ends: Collection[str] = ()) -> list[str]:
    """Return the ids worth confirming: the two ends, then the best in the Pareto order of the searching trials.

    The ends (the base optimizer and SAM) come along whatever they scored, because every front is read against them.
    """
    rows = noise.summarise(
        replace(search, phase="search", trials=tuple(t for t in search.trials if t.role == "search"))
    )
    if not rows:
        return []
    order = pareto_order(np.array([(r.error_mean, r.extra_propagation) for r in rows]))
    ranked = [rows[i].config_id for i in order]
    first = [identity for identity in ranked if identity in ends]
    return (first + [identity for identity in ranked if identity not in ends])[: max(limit, len(first))]


def unsettled(search: Search, chosen: Sequence[str], settings: Confirm) -> list[str]:
    """Return the candidates that need another seed, the most uncertain first.

    A candidate is settled when its P(non-dominated) among the candidates is below `probability` or above one minus
    it, or when it has all the seeds it may get. Each gets its `first` seeds before anything is judged.
    """
    confirming = tuple(t for t in search.trials if t.role == "confirm" and t.config_id in chosen)
    seeds = dict.fromkeys(chosen, 0)
    for trial in confirming:
        seeds[trial.config_id] += 1
    fewest = [identity for identity in chosen if seeds[identity] < settings.first]
    if fewest:
        return sorted(fewest, key=lambda identity: seeds[identity])
    rows = noise.summarise(replace(search, phase="confirm", trials=confirming))
    chance = {row.config_id: row.p_nondominated for row in rows if row.p_nondominated is not None}
    open_ones = {
        identity: abs(p - 0.5)
        for identity, p in chance.items()
        if settings.probability < p < 1 - settings.probability and seeds[identity] < settings.seeds
    }
    return sorted(open_ones, key=lambda identity: open_ones[identity])

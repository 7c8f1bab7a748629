"""Every configuration of a search with its mean, its standard error, P(non-dominated) and a verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from statistics import fmean, stdev
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rst_tune.analysis import posterior
from rst_tune.analysis.beliefs import Beliefs, from_replicates, nondominated_probability
from rst_tune.analysis.pareto import front
from rst_tune.analysis.records import Search, Trial, counted

__all__ = [
    "CONFIRMED",
    "DISMISSED",
    "ConfigSummary",
    "Verdict",
    "beliefs_about",
    "beliefs_of",
    "eligible",
    "probabilities",
    "summarise",
    "trusted",
]

Verdict = Literal["confirmed", "uncertain", "dominated", "single seed"]

CONFIRMED = 0.95
DISMISSED = 0.05


@dataclass(frozen=True, kw_only=True)
class ConfigSummary:
    """One configuration: its replicates, and what they say. Errors in percent, on the validation split.

    `error_mean` is measured, over its own seeds. `error_expected` is the true mean as all trials together make it
    believable: a lucky single run is drawn towards its neighbours. The front is that of the expected errors.
    """

    config_id: str
    config: Mapping[str, Any]
    extra_propagation: float
    error_mean: float
    error_sem: float | None
    error_expected: float
    error_expected_sd: float | None
    seeds: int
    errors: tuple[float, ...]
    seed_ids: tuple[int, ...]
    p_nondominated: float | None
    on_front: bool
    verdict: Verdict
    test_error_mean: float | None
    test_error_sem: float | None
    run_id: str


def summarise(search: Search) -> list[ConfigSummary]:
    """Return every configuration that has a finished trial, in order of cost, then error.

    P(non-dominated) is None as long as no configuration has two seeds: then nothing is known of the noise. It is a
    matter of replicates alone: once confirming began, only a replicated configuration may keep another one off the
    front, and a single run has the probability of joining those.
    """
    rows = _expected([_summary(key, counted(trials)) for key, trials in search.by_config().items()], search)
    chances = _chances(rows, eligible(rows, search))
    members = front([_point(row, ok) for row, ok in zip(rows, trusted(rows, search), strict=True)])
    rows = [
        replace(row, p_nondominated=chance, on_front=bool(member), verdict=_verdict(row.seeds, chance))
        for row, chance, member in zip(rows, chances, members, strict=True)
    ]
    return sorted(rows, key=lambda r: (r.extra_propagation, r.error_expected, r.config_id))


def probabilities(trials: Sequence[Trial]) -> dict[str, float | None]:
    """Return P(non-dominated) of the configurations of some trials among each other, by configuration."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.finished:
            groups.setdefault(trial.config_id, []).append(trial)
    rows = [_summary(key, counted(members)) for key, members in groups.items()]
    return dict(zip(groups, _chances(rows, [True] * len(rows)), strict=True))


def _expected(rows: list[ConfigSummary], search: Search) -> list[ConfigSummary]:
    """Return the rows with what the smooth belief over all trials expects of them, where there are enough trials."""
    belief = posterior.fit(search)
    if belief is None or not rows:
        return rows
    mean, sd = belief.log_errors([row.config for row in rows])
    errors = np.exp(mean)
    return [
        replace(row, error_expected=float(error), error_expected_sd=float(error * width))
        for row, error, width in zip(rows, errors, sd, strict=True)
    ]


def trusted(rows: Sequence[ConfigSummary], search: Search) -> list[bool]:
    """Return who may be on the front: everyone where luck is smoothed away, else who is eligible."""
    smooth = all(row.error_expected_sd is not None for row in rows)
    return [True] * len(rows) if smooth else eligible(rows, search)


def beliefs_of(rows: Sequence[ConfigSummary]) -> Beliefs | None:
    """Return the joint belief of the true errors; None when no configuration has two seeds."""
    if not any(row.seeds > 1 for row in rows):
        return None
    errors = [dict(zip(row.seed_ids, row.errors, strict=True)) for row in rows]
    return from_replicates(errors, _features(rows))


def beliefs_about(points: Sequence[ConfigSummary], rows: Sequence[ConfigSummary]) -> Beliefs | None:
    """Return the joint belief of some configurations, with the noise measured on all replicated ones of `rows`."""
    if not points:
        return None
    chosen = {point.config_id for point in points}
    others = [row for row in rows if row.seeds > 1 and row.config_id not in chosen]
    belief = beliefs_of([*points, *others])
    return None if belief is None else belief.take(np.arange(len(points)))


def eligible(rows: Sequence[ConfigSummary], search: Search) -> list[bool]:
    """Return whose measured mean may be trusted: all while searching, the replicated ones once confirming began.

    A budget so small that one alone was replicated has confirmed nothing: that one would be a front by itself.
    """
    replicated = [row.seeds > 1 for row in rows]
    confirming = any(trial.role == "confirm" for trial in search.finished())
    return replicated if confirming and sum(replicated) > 1 else [True] * len(rows)


def _point(row: ConfigSummary, able: bool) -> tuple[float, float]:
    return (row.error_expected, row.extra_propagation) if able else (np.nan, np.nan)


def _summary(key: str, trials: list[Trial]) -> ConfigSummary:
    errors = tuple(float(t.error) for t in trials if t.error is not None)
    tests = [t.test_error for t in trials if t.test_error is not None and isfinite(t.test_error)]
    return ConfigSummary(
        config_id=key,
        config=trials[0].config,
        extra_propagation=trials[0].extra_propagation,
        error_mean=fmean(errors),
        error_sem=_sem(errors),
        error_expected=fmean(errors),
        error_expected_sd=None,
        seeds=len(errors),
        errors=errors,
        seed_ids=tuple(t.seed for t in trials),
        p_nondominated=None,
        on_front=False,
        verdict="single seed",
        test_error_mean=fmean(tests) if tests else None,
        test_error_sem=_sem(tests),
        run_id=trials[0].key,
    )


def _sem(values: Sequence[float]) -> float | None:
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else None


def _verdict(seeds: int, chance: float | None) -> Verdict:
    if seeds < 2 or chance is None:
        return "single seed"
    return "confirmed" if chance >= CONFIRMED else "dominated" if chance <= DISMISSED else "uncertain"


def _chances(rows: Sequence[ConfigSummary], rivals: list[bool]) -> list[float | None]:
    belief = beliefs_of(rows)
    if belief is None:
        return [None] * len(rows)
    costs = [row.extra_propagation for row in rows]
    chances: list[float | None] = nondominated_probability(belief, costs, rivals).tolist()
    return chances


def _features(rows: Sequence[ConfigSummary]) -> NDArray[np.float64]:
    """Return cost and gamma with their squares, and the family and the rule as indicators."""
    cost = np.array([row.extra_propagation for row in rows])
    gamma = np.array([float(row.config.get("gamma_rst") or 0.0) for row in rows])
    columns = [cost, cost**2, gamma, gamma**2]
    for name in ("family", "rule"):
        values = [str(row.config.get(name)) for row in rows]
        columns += [np.array([v == choice for v in values], dtype=float) for choice in sorted(set(values))]
    return np.column_stack(columns)

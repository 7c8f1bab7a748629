"""The expected cost of a schedule with a rule, and the listing of rules and policies with their costs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rst_tune.method import ascent, policies
from rst_tune.method.options import defaults
from rst_tune.method.schedules import Schedule
from rst_tune.registry import Registry

LISTED, LISTED_BATCH = 1000, 128  # ascents over which a listed cost is averaged, and the samples of their batches


def expected_extra_propagation(
    schedule: Schedule,
    T: int,
    rule: str = "sam",
    rule_options: Mapping[str, Any] | None = None,
    batch_size: int | None = None,
) -> float:
    """Return the expected extra pairs per step, exact for T steps with the coin.

    Args:
        schedule: p(t).
        T: the number of steps.
        rule: a name in `ascent.RULES`.
        rule_options: the options of that rule.
        batch_size: samples per step and rank. ESAM and SSAM with a Fisher mask depend on it; without it the refreshes
            of the Fisher mask are not included.

    >>> from rst_tune import schedules
    >>> expected_extra_propagation(schedules.constant(0.5), 100)
    0.5
    >>> expected_extra_propagation(schedules.constant(1.0), 100, "ssam", {"samples": 16, "every": 10}, batch_size=64)
    1.025
    """
    return ascent.build(rule, rule_options).expected_pairs(schedule.values(T), batch_size) / T


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A rule or policy for a listing: its options with their defaults, and of a rule the extra pairs per ascent."""

    name: str
    description: str
    citation: str
    options: Mapping[str, object]
    cost: float | None = None


def describe_rules() -> list[Listed]:
    """Return every rule, with its cost.

    >>> [row.cost for row in describe_rules() if row.name in ("sam", "looksam", "ssam", "msam")]
    [1.0, 0.2, 1.01, 0.0]
    """
    costs = {e.name: e.value().expected_pairs([1.0] * LISTED, LISTED_BATCH) / LISTED for e in ascent.RULES}
    return [replace(row, cost=costs[row.name]) for row in _listed(ascent.RULES)]


def describe_policies() -> list[Listed]:
    """Return every policy."""
    return _listed(policies.POLICIES)


def _listed(registry: Registry[type[Any]]) -> list[Listed]:
    return [
        Listed(name=e.name, description=e.description, citation=e.citation, options=defaults(e.value)) for e in registry
    ]

"""The expected cost of a schedule with a rule, and the listing of rules and policies with their costs."""

from collections.abc import Mapping
from typing import Any

from rst_tune.method import ascent, policies
from rst_tune.method.options import defaults
from rst_tune.method.schedules import Schedule

__all__ = ["describe_policies", "describe_rules", "expected_extra_propagation"]

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


def describe_rules() -> list[dict[str, Any]]:
    """Return name, description, citation, extra pairs per ascent and options with defaults of every rule.

    >>> [row["cost"] for row in describe_rules() if row["name"] in ("sam", "looksam", "ssam", "msam")]
    [1.0, 0.2, 1.01, 0.0]
    """
    return [
        {
            "name": entry.name,
            "description": entry.description,
            "citation": entry.citation,
            "cost": entry.value().expected_pairs([1.0] * LISTED, LISTED_BATCH) / LISTED,
            "options": defaults(entry.value),
        }
        for entry in ascent.RULES
    ]


def describe_policies() -> list[dict[str, Any]]:
    """Return name, description, citation and options with defaults of every policy."""
    return [
        {
            "name": entry.name,
            "description": entry.description,
            "citation": entry.citation,
            "options": defaults(entry.value),
        }
        for entry in policies.POLICIES
    ]

"""Short names for configurations, in the paper's words."""

from collections.abc import Mapping
from typing import Any

__all__ = ["describe", "is_base", "is_sam", "method_name", "schedule_text", "short"]


def is_base(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration never takes a second pass: the base optimizer alone."""
    return float(config.get("extra_propagation", 1.0)) == 0.0


def is_sam(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration is plain SAM: every step, gamma 1, the rule of the SAM paper."""
    always = config.get("schedule", {}).get("p") == 1.0
    return always and config.get("rule") == "sam" and abs(float(config.get("gamma_gnr", 1.0)) - 1.0) < 1e-9


def method_name(config: Mapping[str, Any]) -> str:
    """Return the paper's name of the scheme, with the rule where it is not SAM's.

    >>> method_name({"extra_propagation": 0.5, "gamma_gnr": 2.0, "rule": "asam", "schedule": {"p": 0.5}})
    'G-RST with asam'
    """
    if is_base(config):
        return "the base optimizer"
    rule = str(config.get("rule", "sam"))
    if is_sam(config):
        return "SAM"
    scheme = "RST" if abs(float(config.get("gamma_gnr", 1.0)) - 1.0) < 1e-9 else "G-RST"
    return scheme if rule == "sam" else f"{scheme} with {rule}"


def schedule_text(config: Mapping[str, Any]) -> str:
    """Return the schedule in words: its parameters where they are few, else its family and mean.

    >>> schedule_text({"family": "constant", "schedule": {"family": "constant", "p": 0.5}})
    'constant p = 0.5'
    """
    schedule = dict(config.get("schedule") or {})
    family = str(schedule.pop("family", config.get("family", "")))
    drawn = str(config.get("family", family))
    numbers = {k: v for k, v in schedule.items() if isinstance(v, int | float)}
    if drawn == family and len(numbers) == len(schedule) <= 3:
        return " ".join([family, ", ".join(f"{k} = {v:.3g}" for k, v in numbers.items())]).strip()
    return f"{drawn}, mean p = {float(config.get('extra_propagation', 0.0)):.3g}"


def short(config: Mapping[str, Any]) -> str:
    """Return scheme, family and gamma, for a table that states the cost already.

    >>> short({"family": "step-up", "extra_propagation": 0.25, "rule": "sam", "gamma_gnr": 4.0})
    'G-RST step-up γ4'
    """
    if is_base(config) or is_sam(config):
        return method_name(config).removeprefix("the ")
    gamma = float(config.get("gamma_gnr", 1.0))
    text = f"{method_name(config)} {config.get('family', '')}"
    return text if abs(gamma - 1.0) < 1e-9 else f"{text} γ{gamma:.3g}"


def describe(config: Mapping[str, Any]) -> str:
    """Return scheme, schedule and gamma.

    >>> half = {"family": "constant", "schedule": {"family": "constant", "p": 0.5}, "extra_propagation": 0.5}
    >>> describe({**half, "rule": "sam", "gamma_gnr": 2.0})
    'G-RST, constant p = 0.5, gamma 2'
    """
    if is_base(config) or is_sam(config):
        return method_name(config)
    return f"{method_name(config)}, {schedule_text(config)}, gamma {float(config.get('gamma_gnr', 1.0)):.3g}"

"""Short names of configurations, in the paper's words."""

from rst_tune.records import TrialConfig

__all__ = ["describe", "method_name", "schedule_text", "short"]


def method_name(config: TrialConfig) -> str:
    """Return the paper's name of the scheme, with the rule where it is not SAM's.

    >>> schedule = {"family": "constant", "p": 0.5}
    >>> half = {"family": "constant", "schedule": schedule, "extra_propagation": 0.5, "rho": 0.1}
    >>> method_name(TrialConfig(**half, gamma_gnr=2.0, gamma_rst=1.0, rule="asam"))
    'G-RST with asam'
    """
    if config.is_base:
        return "the base optimizer"
    if config.is_sam:
        return "SAM"
    scheme = "RST" if abs(config.gamma_gnr - 1.0) < 1e-9 else "G-RST"
    return scheme if config.rule == "sam" else f"{scheme} with {config.rule}"


def schedule_text(config: TrialConfig) -> str:
    """Return the schedule's parameters where they are few, else its family and mean.

    >>> schedule = {"family": "constant", "p": 0.5}
    >>> half = {"family": "constant", "schedule": schedule, "extra_propagation": 0.5, "rho": 0.1}
    >>> schedule_text(TrialConfig(**half, gamma_gnr=2.0, gamma_rst=1.0))
    'constant p = 0.5'
    """
    schedule = dict(config.schedule)
    family = str(schedule.pop("family", config.family))
    numbers = {k: v for k, v in schedule.items() if isinstance(v, int | float)}
    if config.family == family and len(numbers) == len(schedule) <= 3:
        return " ".join([family, ", ".join(f"{k} = {v:.3g}" for k, v in numbers.items())]).strip()
    return f"{config.family}, mean p = {config.extra_propagation:.3g}"


def short(config: TrialConfig) -> str:
    """Return scheme, family and gamma, for a table that has a column of costs.

    >>> late = {"family": "step-up", "schedule": {}, "extra_propagation": 0.25, "rho": 0.1}
    >>> short(TrialConfig(**late, gamma_gnr=4.0, gamma_rst=1.0))
    'G-RST step-up γ4'
    """
    if config.is_base or config.is_sam:
        return method_name(config).removeprefix("the ")
    text = f"{method_name(config)} {config.family}"
    return text if abs(config.gamma_gnr - 1.0) < 1e-9 else f"{text} γ{config.gamma_gnr:.3g}"


def describe(config: TrialConfig) -> str:
    """Return scheme, schedule and gamma.

    >>> schedule = {"family": "constant", "p": 0.5}
    >>> half = {"family": "constant", "schedule": schedule, "extra_propagation": 0.5, "rho": 0.1}
    >>> describe(TrialConfig(**half, gamma_gnr=2.0, gamma_rst=1.0))
    'G-RST, constant p = 0.5, gamma 2'
    """
    if config.is_base or config.is_sam:
        return method_name(config)
    return f"{method_name(config)}, {schedule_text(config)}, gamma {config.gamma_gnr:.3g}"

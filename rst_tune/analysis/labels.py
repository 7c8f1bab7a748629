"""Short names of configurations, in the paper's words."""

from rst_tune.records import TrialConfig


def method_name(config: TrialConfig) -> str:
    """Return the paper's name of the scheme, with the rule where it is not SAM's.

    >>> schedule = {"family": "constant", "p": 0.5}
    >>> half = {"family": "constant", "schedule": schedule, "extra_propagation": 0.5, "rho": 0.1}
    >>> method_name(TrialConfig(**half, gamma_gnr=2.0, gamma_rst=1.0, rule="asam"))
    'G-RST with asam'
    """
    if config.is_base:
        return "the base optimizer"
    always = config.schedule == {"family": "constant", "p": 1.0}
    if abs(config.gamma_gnr - 1.0) >= 1e-9:
        scheme = "G-RST"
    elif always and config.policy == "coin":
        return "SAM" if config.rule == "sam" else config.rule
    else:
        scheme = "RST" if config.policy == "coin" else f"RST by {config.policy}"
    return scheme if config.rule == "sam" else f"{scheme} with {config.rule}"


def length_text(config: TrialConfig) -> str:
    """Return the length of the training in words; nothing at the recipe's length.

    >>> schedule = {"family": "constant", "p": 0.0}
    >>> base = {"family": "constant", "schedule": schedule, "extra_propagation": 0.0, "rho": 0.1}
    >>> length_text(TrialConfig(**base, gamma_gnr=1.0, gamma_rst=0.0, horizon=0.5))
    '0.5 × the epochs'
    """
    return "" if config.horizon == 1.0 else f"{config.horizon:.3g} × the epochs"


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
    text = method_name(config).removeprefix("the ")
    if text.startswith(("RST", "G-RST")):
        text += f" {config.family}"
    gamma = "" if abs(config.gamma_gnr - 1.0) < 1e-9 or config.is_base else f" γ{config.gamma_gnr:.3g}"
    return text + gamma


def describe(config: TrialConfig) -> str:
    """Return scheme, schedule, gamma, radius and length, each where it is not the usual one.

    >>> schedule = {"family": "constant", "p": 0.5}
    >>> half = {"family": "constant", "schedule": schedule, "extra_propagation": 0.5, "rho": 0.1}
    >>> describe(TrialConfig(**half, gamma_gnr=2.0, gamma_rst=1.0))
    'G-RST, constant p = 0.5, gamma 2'
    """
    parts = [method_name(config)]
    if not config.is_base:
        parts += [schedule_text(config)] if parts[0].startswith(("RST", "G-RST")) else []
        parts += [f"gamma {config.gamma_gnr:.3g}"] if abs(config.gamma_gnr - 1.0) >= 1e-9 else []
        parts += [f"rho {config.rho:.3g}"] if "rho" in config.params else []
    return ", ".join(filter(None, [*parts, length_text(config)]))

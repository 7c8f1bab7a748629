"""A search with its cost in pairs or in seconds, whichever it was run with: nothing is trained again."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import get_args

from rst_tune.analysis.pareto import reference_compute
from rst_tune.errors import InputError, unknown_name
from rst_tune.records import Cost, RuleTimes, Search, Trial


def in_cost(search: Search, cost: str | None) -> Search:
    """Return the search with the compute of its trainings counted in `cost`; None: as the search was run.

    A search that was run over seconds has the times that were measured before it; for any other one they follow from
    the recorded seconds of its trainings.
    """
    if cost is not None and cost not in get_args(Cost):
        raise unknown_name("cost", cost, get_args(Cost))
    if cost is None or cost == search.cost:
        return search
    times = recorded_times(search) if cost == "seconds" else None
    trials = tuple(replace(t, config=t.config.timed(times)) for t in search.trials)
    longest = max((t.config.horizon for t in trials), default=1.0)
    reference = None if search.reference is None else (search.reference[0], reference_compute(longest, times))
    return replace(search, header=replace(search.header, times=times), trials=trials, reference=reference)


def recorded_times(search: Search) -> RuleTimes:
    """Return the times that the recorded seconds of the finished trainings show, those of the validation left out.

    What trainings with SAM take beyond the base optimizer, per extra pair, is the time of a pair; what those with
    another rule take beyond their pairs, per ascent, is that rule's work.
    """
    timed = [t for t in search.finished() if t.training_seconds > 0 and t.config.total_steps > 0]
    base = [t.training_seconds / t.config.total_steps for t in timed if t.config.is_base]
    if not base:
        raise InputError(
            "the cost in seconds is relative to that of the base optimizer, but no training of it has ended with its "
            f"seconds recorded in {search.directory}: use --cost compute"
        )
    step, rules = median(base), {t.config.rule for t in timed}
    of = {rule: _totals([t for t in timed if t.config.rule == rule and not t.config.is_base], step) for rule in rules}
    added, extra, _ = of.get("sam", (0.0, 0.0, 0.0))
    if not extra:  # no training with SAM: the pairs of all rules, with their work
        added, extra = (sum(totals[i] for totals in of.values()) for i in (0, 1))
    second = added / extra if extra else 1.0
    work = {rule: (a - second * e) / n for rule, (a, e, n) in of.items() if rule != "sam" and n}
    return RuleTimes(step=step, second=second, work=work)


def _totals(trials: Sequence[Trial], step: float) -> tuple[float, float, float]:
    """Return sums over trainings, each of a mean step: the time added, in units of `step`, extra pairs, and ascents."""
    added = sum(t.training_seconds / (t.config.total_steps * step) - 1.0 for t in trials)
    return added, sum(t.pairs / t.config.total_steps - 1.0 for t in trials), sum(t.config.ascents for t in trials)

"""The recommendation, and the sentences that report it.

The choice rule: the cheapest replicated point of the front whose posterior error is within one standard error of the
lowest one; where fewer than two points have two seeds, the knee of the front. A point that is dominated almost surely,
or has a diverged seed, is not recommended as long as there are others. Where no point is better than the base optimizer
at some length that costs no more, and that is not dominated either, it is the base optimizer at its best length.

Errors of replicated configurations are posterior ones, with their standard deviations: the seeds of the replicates may
be lucky for all of them alike, and measured means would not fit the differences. One seed has what it measured. In
brackets behind a baseline stand what the data support about the point, and the difference (the point's value minus the
baseline's) with its 95 % interval.
"""

from collections.abc import Sequence

from rst_tune.analysis import labels, pareto
from rst_tune.analysis.baselines import Baselines, Difference
from rst_tune.analysis.replicates import ConfigSummary

Rows = Sequence[ConfigSummary]


def recommended(points: Rows, baselines: Baselines, gains: Rows) -> ConfigSummary | None:
    """Return the recommended point (see the module). `gains` are the points that gain on the base optimizer."""
    if _nothing_gained(gains, baselines):
        return baselines.best_base
    stable = [p for p in points if not p.diverged and p.verdict != "dominated"] or list(points)
    replicated = [p for p in stable if p.seeds > 1]
    if len(replicated) < 2:
        index = pareto.knee([(p.error_posterior, p.compute) for p in stable])
        return stable[index or 0] if stable else None
    # The standard error is that of the lowest point, measured or posterior, whichever is larger. With the standard
    # error of a difference, a point with a very uncertain mean would always qualify.
    best = min(replicated, key=lambda p: p.error_posterior)
    limit = best.error_posterior + max(best.error_sem or 0.0, best.error_posterior_sd or 0.0)
    near = (p for p in replicated if p.error_posterior <= limit)
    return min(near, key=lambda p: p.compute, default=best)


def _nothing_gained(gains: Rows, baselines: Baselines) -> bool:
    """Return whether no point is better than the base optimizer of some length that costs no more.

    Where no single one is, by its interval, but the base optimizer at its best length is dominated almost surely by one
    of them, something is better: the sentence then has the differences as they are, without a claim.
    """
    best = baselines.best_base
    return not gains and baselines.comparable and (best is None or best.verdict != "dominated")


def answer(point: ConfigSummary | None, baselines: Baselines, gains: Rows) -> str:
    """Return the recommended point in one sentence; where nothing is better than training longer, it says so first."""
    if point is None:
        return "no answer yet: no trial was trained to its end"
    if _nothing_gained(gains, baselines):
        return _nothing_sentence(point, baselines)
    longest = baselines.curve[-1] if len(baselines.curve) > 1 else None
    if longest is None or not gains or any(baselines.covers(gain.compute) for gain in gains):
        return point_sentence(point, baselines)
    best = baselines.best_base or longest
    return (
        f"up to {_compute(longest)} the {baselines.noun} of a plain training nothing was found that is better than the "
        f"base optimizer ({_error(best, baselines)} at {_compute(best)}); beyond it, {point_sentence(point, baselines)}"
    )


def point_sentence(point: ConfigSummary, baselines: Baselines) -> str:
    """Return a point of the front with its compute, its error and the baselines, in one sentence."""
    name = baselines.metric.name
    if _fixed_length(baselines):
        text = f"train with {labels.describe(point.config)}: {name} {_interval(point, baselines)} at {_extra(point)} "
        text += f"extra {baselines.noun}"
    else:
        text = f"at {_compute(point)} the {baselines.noun} of a plain training: {labels.describe(point.config)}, "
        text += f"{name} {_interval(point, baselines)}"
    return "; ".join([text + _notes(point, baselines), *_baseline_clauses(point, baselines)])


def _nothing_sentence(point: ConfigSummary, baselines: Baselines) -> str:
    """Return that the base optimizer at its best length is not beaten, and what comes nearest."""
    length = labels.length_text(point.config)
    where = f"trained for {length}" if length else "at the recipe's length"
    text = f"nothing was found that is better than the base optimizer {where}: "
    text += f"{baselines.metric.name} {_interval(point, baselines)}"
    if not _fixed_length(baselines):
        text += f" at {_compute(point)} the {baselines.noun} of a plain training"
    clauses = [text + _notes(point, baselines)]
    if baselines.base is not None and baselines.base is not point:
        clauses.append(f"at the recipe's length it has {_error(baselines.base, baselines)}")
    others = [row for row in baselines.rows if not row.config.is_base and (row.seeds > 1 or point.seeds < 2)]
    if others:
        nearest = min(others, key=lambda row: row.error_posterior)
        found = baselines.difference(nearest, point)
        clauses.append(f"the best of the rest is {labels.describe(nearest.config)} with {_at_cost(nearest, baselines)}")
        clauses[-1] += _claim(found, baselines)
    return "; ".join(clauses)


def _baseline_clauses(point: ConfigSummary, baselines: Baselines) -> list[str]:
    clauses = [] if _fixed_length(baselines) else _base_clauses(point, baselines)
    base, sam = baselines.base, baselines.sam
    if sam is not None and sam is not point:
        clauses.append(f"SAM gives {_at_cost(sam, baselines)}{_point_claim(point, sam, baselines)}")
    if base is not None and base is not point and _fixed_length(baselines):
        clauses.append(f"the base optimizer gives {_error(base, baselines)}{_point_claim(point, base, baselines)}")
    return clauses


def _base_clauses(point: ConfigSummary, baselines: Baselines) -> list[str]:
    """Return the base optimizer at the point's compute, and at its best length."""
    equal, best = baselines.base_at(point.compute), baselines.best_base
    predicted = baselines.predicted_base(point.compute) if equal is None else None
    about = f"about {baselines.metric.with_unit(predicted or 0.0)} at that {baselines.noun} (predicted)"
    parts = [about] if predicted is not None else []
    if equal is not None and equal is not point and equal is not best:
        parts.append(f"{_error(equal, baselines)} at {_compute(equal)}")
    if best is not None and best is not point:
        claim = _point_claim(point, best, baselines)
        parts.append(f"{_error(best, baselines)} at its best length, {_compute(best)}{claim}")
    return [f"the base optimizer gives {' and '.join(parts)}"] if parts else []


def _fixed_length(baselines: Baselines) -> bool:
    return all(row.config.horizon == 1.0 for row in baselines.rows)


def _interval(row: ConfigSummary, baselines: Baselines) -> str:
    """Return the error with its 90 % interval and the number of seeds."""
    metric = baselines.metric
    if row.error_low is None or row.error_high is None:
        return _error(row, baselines)
    low, high = sorted((metric.value(row.error_low), metric.value(row.error_high)))
    ends = metric.ends(low, high)
    return f"{metric.with_unit(row.error_posterior)} (90 % interval {ends}, {row.seeds_total} seeds)"


def _error(row: ConfigSummary, baselines: Baselines) -> str:
    if row.error_sem is None:
        return f"{baselines.metric.with_unit(row.error_mean)} (one seed)"
    return baselines.metric.with_unit(row.error_posterior, row.error_posterior_sd or row.error_sem)


def _at_cost(row: ConfigSummary, baselines: Baselines) -> str:
    return f"{_error(row, baselines)} at {_extra(row) if _fixed_length(baselines) else _compute(row)}"


def _extra(row: ConfigSummary) -> str:
    return f"{100 * (row.compute / row.config.horizon - 1.0):.3g} %"


def _compute(row: ConfigSummary) -> str:
    return f"{row.compute:.3g} ×"


def _notes(row: ConfigSummary, baselines: Baselines) -> str:
    """Return the diverged seeds and the test error, where there are any."""
    notes = [f"{row.diverged} of {row.seeds_total} seeds diverged"] if row.diverged else []
    if row.test_error_mean is not None:
        notes.append(f"test {baselines.metric.phrase(row.test_error_mean, row.test_error_sem)}")
    return "".join(f", {note}" for note in notes)


def _point_claim(point: ConfigSummary, baseline: ConfigSummary, baselines: Baselines) -> str:
    """Return what the data support about the point beside a baseline; the subject is the point, not the baseline."""
    return _claim(baselines.difference(point, baseline), baselines, "this point is ")


def _claim(difference: Difference, baselines: Baselines, subject: str = "") -> str:
    """Return what the data support, in brackets: better, worse, not distinguishable; nothing with one seed."""
    if difference.low is None or difference.high is None:
        return ""
    gap = baselines.metric.difference(difference.value, difference.low, difference.high)
    value, _, ends = gap.partition(", ")
    return f" ({subject}{difference.verdict}: {value}, 95 % interval {ends})"

"""The first section of the page: error over total compute, every rule at equal compute, and a starting point."""

from collections.abc import Mapping
from statistics import fmean
from typing import TYPE_CHECKING

import equal_compute
import figures
from equal_compute import AT, CONTENDERS, CURVES, RADII, Field, Judged, field
from starting_point import JUDGES, Start, start
from trainings import Record

from rst_tune.report import formatting

if TYPE_CHECKING:
    from page import Page

__all__ = ["write"]


def write(page: "Page", tasks: Mapping[str, Record]) -> None:
    """Write the section."""
    page.say("## 1. What is worth its compute")
    page.say(
        "Compute is the number of forward-backward pairs over those of the plain training above. A rule with a second "
        "pass per step trains for half of the epochs at equal compute. Its radius is one of four "
        f"({', '.join(f'{rho:g}' for rho in RADII)}; ASAM ten times, SAM-ON twice that), SGD's length one of six: "
        "chosen by validation errors on even seeds, judged by test errors on as many odd ones. Errors in percent, mean "
        "± standard error over the seeds that judge."
    )
    trained = {name: record for name, record in tasks.items() if field(record, 1.0) is not None}
    if missing := [record.title for name, record in tasks.items() if name not in trained]:
        page.say(f"Not trained yet: {', '.join(missing)}.")
    if not trained:
        return
    title = "Test error over total compute, in units of SGD's error at compute 1; bars are standard errors"
    page.picture("compute", title, figures.curves(list(trained.values())), "`make results FRESH=1`")
    _pays(page, trained)
    _rules(page, trained)
    _start(page, trained)


# --- where it pays ----------------------------------------------------------------------------------------------------


def _pays(page: "Page", tasks: Mapping[str, Record]) -> None:
    page.say(
        "### Where sharpness-aware training pays, and where training longer does",
        f"The best of all rules (away from compute 1: of {', '.join(c.name.split(',')[0] for c in CURVES)}), as the "
        "even seeds choose it, minus SGD at its best length of at most that compute; Student's 95 % interval over the "
        "odd seeds.",
    )
    lines = [_pays_line(record, compute) for record in tasks.values() for compute in AT]
    body = [line for line in lines if line]
    head = ["task", "compute", "SGD", "its length", "sharpness-aware", "the best", "difference, 95 %", "what pays"]
    page.table(head, body)


def _pays_line(record: Record, compute: float) -> list[str]:
    found = field(record, compute)
    if found is None:
        return []
    best, base = found.best, found.sgd
    return [
        record.title, f"{compute:g} ×", base.text, f"{base.compute:.2g} ×",
        best.text, f"{best.name}, ρ {best.config.rho:g}", formatting.difference(*found.gap),
        _what_pays(found, record),
    ]  # fmt: skip


def _what_pays(found: Field, record: Record) -> str:
    """Return the verdict: the interval of the difference decides, then whether SGD's longest length was its best."""
    _, low, high = found.gap
    if high < 0:
        return "**sharpness-aware**"
    longest = found.sgd.config.epochs >= max(1, round(found.best.compute * record.task.epochs)) * 0.9
    if low > 0:
        return "**training longer**" if longest else "**training shorter**"
    return "not distinguishable"


# --- every rule -----------------------------------------------------------------------------------------------------


def _rules(page: "Page", tasks: Mapping[str, Record]) -> None:
    fields = {name: found for name, record in tasks.items() if (found := field(record, 1.0)) is not None}
    seeds = ", ".join(f"{tasks[name].title} {found.seeds}" for name, found in fields.items())
    page.say(
        "### Every rule at the compute of one plain training",
        "Test error and the chosen radius; the lowest of a task is bold, ↓ and ↑ differ from SGD at 95 %. Seeds that "
        f"judge: {seeds}.",
    )
    names = ["SGD at its best length", *(contender.name for contender in CONTENDERS)]
    ranks = {name: _average_rank(name, fields) for name in names}
    body = [[name, *(_rule_cell(found, name) for found in fields.values()), f"{ranks[name]:.1f}"]
            for name in sorted(names, key=lambda name: ranks[name])]  # fmt: skip
    page.table(["training", *(record.title for record in tasks.values()), "mean rank"], body)


def _judged(found: Field, name: str) -> Judged | None:
    return found.sgd if name == found.sgd.name else found.others.get(name)


def _average_rank(name: str, fields: Mapping[str, Field]) -> float:
    return fmean(_rank(found, judged) for found in fields.values() if (judged := _judged(found, name)))


def _rank(found: Field, judged: Judged) -> int:
    return 1 + sum(other.mean < judged.mean for other in (found.sgd, *found.others.values()))


def _rule_cell(found: Field, name: str) -> str:
    judged = _judged(found, name)
    if judged is None:
        return "no norm layers"
    text = judged.text
    if judged.mean == min(other.mean for other in (found.sgd, *found.others.values())):
        text = f"**{text}**"
    if judged is found.sgd:
        return f"{text} ({judged.compute:.2g} ×)"
    _, low, high = equal_compute.paired(judged, found.sgd)
    return f"{text} ({judged.config.rho:g})" + (" ↓" if high < 0 else " ↑" if low > 0 else "")


# --- a starting point -----------------------------------------------------------------------------------------------


def _start(page: "Page", tasks: Mapping[str, Record]) -> None:
    page.say("### A starting point for those who will not search")
    if len(tasks) < 3:
        page.say("This needs three tasks at least.")
        return
    found = start(tasks)
    if found is None:
        page.say("The choice has not been judged yet: `make results FRESH=1`.")
        return
    overall, chosen = found
    ratios = {name: each.ratios[name] for name, each in chosen.items()}
    page.say(
        f"One configuration for every task, at the compute of one plain training: the one with the lowest error "
        f"relative to that of plain SGD on average over {len(tasks)} tasks, chosen on even seeds. What to expect of "
        "such a choice on a new task: for each task the configuration was chosen without that task, and judged on it, "
        f"by test errors on {len(JUDGES)} other seeds. {start_sentence(tasks)}",
    )
    body = [[tasks[name].title, describe(each), _change(ratios[name]), _change(overall.ratios[name])]
            for name, each in chosen.items()]  # fmt: skip
    page.table(["judged on", "chosen on the other tasks", "its error there", "the overall choice there"], body)


def start_sentence(tasks: Mapping[str, Record]) -> str:
    """Return the starting point with its expected gain and its worst case; "" where it has not been judged."""
    found = start(tasks) if len(tasks) > 2 else None
    if found is None:
        return ""
    overall, chosen = found
    ratios = {name: each.ratios[name] for name, each in chosen.items()}
    worst, expected = max(ratios, key=lambda name: ratios[name]), fmean(ratios.values())
    at, best = "Without a search, at the compute of one plain training:", describe(overall)
    advice = f"{at} **{best}**." if expected < 1 else f"{at} **plain SGD**. The best of the others is {best}."
    return (
        f"{advice} Error that such a choice has on a new task: {_change(expected)} than plain SGD's on average, "
        f"{_change(ratios[worst])} in the worst case ({tasks[worst].title})."
    )


def describe(start: Start) -> str:
    """Return a starting point in words."""
    contender = start.contender
    return f"{contender.name}, ρ {RADII[start.radius] * contender.radius:g}"


def _change(ratio: float) -> str:
    return f"{abs(ratio - 1):.0%} {'lower' if ratio < 1 else 'higher'}"

"""The page: every number in it is computed from the kept records; a section without a record says so."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import claims
import compute_page
import duel
import figures
import plotly.graph_objects as go
import published_gains
import suite_page
from decide import LOOKS, Decision
from scipy import stats
from studies import KEPT, STUDIES, WORK, kept
from trainings import Record
from trainings import records as load_records

from rst_tune.analysis import published
from rst_tune.analysis.analysis import Analysis, analyze
from rst_tune.records import Search
from rst_tune.report import formatting

__all__ = ["Page", "build"]

MISSING = "not trained yet"


@dataclass
class Page:
    """The text, and the figures by file name."""

    lines: list[str] = field(default_factory=list)
    pictures: dict[str, go.Figure] = field(default_factory=dict)

    def say(self, *paragraphs: str) -> None:
        """Add paragraphs."""
        for paragraph in paragraphs:
            self.lines += [paragraph, ""]

    def table(self, head: Sequence[str], body: Sequence[Sequence[str]]) -> None:
        """Add a table; a bar inside a cell would end the cell."""
        rows = [head, ["---"] * len(head), *body]
        self.lines += ["| " + " | ".join(cell.replace("|", "¦") for cell in row) + " |" for row in rows] + [""]

    def picture(self, name: str, title: str, figure: go.Figure, made: str) -> None:
        """Add a figure with its title and provenance."""
        self.pictures[name] = figure
        self.say(f"![{title}](images/{name}.png)", f"*{title}. {made}*")

    @property
    def text(self) -> str:
        """The whole page."""
        return "\n".join(self.lines).rstrip() + "\n"


def build(records: Path = KEPT) -> Page:
    """Return the page of the given records."""
    tasks = load_records(kept=records)
    searches = {name: kept(name, records) for name in STUDIES}
    analyses = {name: analyze(search) for name, search in searches.items() if search is not None}
    page = Page()
    _introduction(page, tasks)
    compute_page.write(page, tasks)
    _claims(page, tasks)
    sections: dict[str, tuple[str, Callable[[Page, Analysis], None]]] = {
        "paper": ("3. All schedules of the paper on noisy digits, five seeds", _paper),
        "gamma_map": ("4. The map of p and gamma_rst, five seeds", _gamma_map),
    }
    for name, (title, write) in sections.items():
        page.say(f"## {title}")
        if name in analyses:
            write(page, analyses[name])
        else:
            page.say(f"This study has not been trained to its end yet: `{STUDIES[name].command}`.")
    page.say("## 5. The search itself")
    duel.write(page, records)
    suite_page.write(page)
    return page


def provenance(search: Search) -> str:
    """Return how a study was made: command, commit, seeds, time."""
    header = search.header
    study = next(s for s in STUDIES.values() if s.experiment.split("/")[-1] == header.name)
    seeds = sorted({trial.seed for trial in search.trials})
    busy = formatting.duration(sum(trial.seconds for trial in search.trials))
    return (
        f"`{study.command}` · commit `{header.commit[:7]}` · seeds {seeds[0]}–{seeds[-1]} · "
        f"{len(search.trials)} trainings, {busy} of training"
    )


def _introduction(page: Page, tasks: Mapping[str, Record]) -> None:
    count, seconds = sum(len(r.rows) for r in tasks.values()), sum(r.seconds for r in tasks.values())
    page.say(
        "# Results",
        "What is worth its compute (1), and which of the paper's claims hold (2), on five small tasks: "
        f"{count:,} trainings by `training.Run`, {formatting.duration(seconds)} of one core. `make results` rebuilds "
        "this page from the kept records (`experiments/results/records/`) in less than a minute; `make results "
        "FRESH=1` trains what is missing and can be interrupted. No number and no verdict is written by hand. What the "
        "paper's own tables cost on GPUs is in [paper_scale.md](paper_scale.md).",
    )
    body = [_task_line(record) for record in tasks.values()]
    page.table(["task", "training images", "model", "plain training", "radius of the recipe", "trainings"], body)
    page.say(
        "Lengths and radii of the recipes come from a few trainings on other seeds. The tasks are small, so that "
        "enough seeds are affordable; none of them says what happens at the paper's size. Fashion-MNIST, CIFAR-10 and "
        "the generated table are written by `python experiments/results/data.py`, which downloads the images."
    )


def _task_line(record: Record) -> list[str]:
    task = record.task
    noise = f", {task.data.label_noise:.0%} wrong labels" if task.data.label_noise else ", clean labels"
    steps = task.recipe.epochs * ((task.data.train_size or 0) // task.recipe.batch_size)
    length = f"{task.recipe.epochs} epochs, {steps} steps"
    images = f"{task.data.train_size:,}{noise}"
    return [record.title, images, task.model.name, length, f"{task.recipe.rho:g}", f"{len(record.rows):,}"]


# --- the paper's claims -----------------------------------------------------------------------------------------------


def _claims(page: Page, tasks: Mapping[str, Record]) -> None:
    looks = ", ".join(map(str, LOOKS))
    page.say(
        "## 2. The paper's claims",
        "Each claim is a contrast at the recipe's length and radius. Seeds are added to all of its configurations "
        f"until the interval decides: looks after {looks} seeds, 5 % of error probability spent over them "
        f"({', '.join(f'{spent:.1%}' for spent in LOOKS.values())}), at each look Student's interval at that level. So "
        "the intervals of a cell hold together with 95 %, whenever it stops (a simulation in the tests checks it). "
        "*Reproduced* and *not reproduced*: the whole interval has the claimed sign, or the other one. *Equivalent*: "
        f"it lies within ± the margin of {_margins(tasks)} points. *As good as* and *keeps* are reproduced when the "
        "interval stays below the margin. Effects are points of error on all held-out images, which chose nothing; "
        "below 0 is less error. Each cell has its own 95 %: one wrong verdict in twenty is to be expected. † Single "
        "failed trainings dominate the mean there, and the interval covers less than it claims.",
        "The margin of Fashion-MNIST was not fixed beforehand: it was half a point, and was set to one after the first "
        "look at 8 seeds had been seen, which decided nothing with half a point. With one point that same look decides "
        "the cells that say 8 seeds. Verdicts there that rest on the margin (*equivalent*, and *as good as*) are "
        "exploratory; those by sign do not depend on it.",
    )
    found = {(c, name): claims.decision(c, record) for c in claims.CLAIMS for name, record in tasks.items()}
    shown = {name: r.title for name, r in tasks.items() if any(found[c, name] for c in claims.CLAIMS)}
    body = [[c.says, c.contrast, *(_cell(found[c, name]) for name in shown)] for c in claims.CLAIMS]
    page.table(["the paper says", "contrast", *shown.values()], body)
    page.say(_count(found))


def _margins(tasks: Mapping[str, Record]) -> str:
    sizes = sorted(set(claims.MARGINS.values()))
    names = {size: ", ".join(r.title for r in tasks.values() if claims.MARGINS[r.name] == size) for size in sizes}
    return " and ".join(f"{size:g} ({names[size]})" for size in sizes)


def _cell(decision: Decision | None) -> str:
    if decision is None:
        return MISSING
    fit = formatting.difference(decision.effect, decision.low, decision.high)
    verdict = f"**{decision.verdict.split(' within')[0]}**" if decision.verdict else decision.text
    seeds = f", {decision.seeds} seeds" if decision.verdict else ""
    return f"{verdict} {fit}{seeds}{' †' if decision.skewed else ''}"


def _count(found: Mapping[tuple[claims.Claim, str], Decision | None]) -> str:
    there = [decision for decision in found.values() if decision is not None]
    verdicts = [decision.verdict or "undecided" for decision in there]
    counted = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in sorted(set(verdicts)))
    first = [d for (_, name), d in found.items() if name in ("noisy_digits", "fashion_mnist")]
    open_here = sum(d is None or d.verdict is None for d in first)
    words = f"{len(there)} of {len(found)} contrasts are trained: {counted}."
    return f"{words} Undecided on noisy digits and Fashion-MNIST: {open_here}."


# --- grids ----------------------------------------------------------------------------------------------------------


def _paper(page: Page, analysis: Analysis) -> None:
    rows, made = analysis.summaries, provenance(analysis.search)
    pairs = published_gains.gains(rows)
    rank = stats.spearmanr([p.theirs for p in pairs], [p.ours for p in pairs])
    title = "Validation error against extra propagation, all schedules; groups are shifted slightly to keep them apart"
    page.picture("paper_summary", title, figures.summary(rows), made)
    page.say(
        "The paper's errors are of other models on other data. The share of SAM's gain over SGD that a schedule keeps "
        f"can be compared: over the {len(pairs)} published cells whose schedule was trained here, Spearman's "
        f"correlation of the two shares is {rank.statistic:+.2f} (p = {rank.pvalue:.2g}). Cell by cell: `rst-tune "
        f"paper TABLE --against {WORK / 'paper'}` for "
        f"{', '.join(f'`{name}`' for name in published.TABLES if any(p.table == name for p in pairs))}."
    )
    title = "Share of SAM's gain, published (WRN-28-10, VGG-16-BN, ResNet-18, ViT; CIFAR) against ours (digits)"
    page.picture("published", title, published_gains.figure(pairs), made)


def _gamma_map(page: Page, analysis: Analysis) -> None:
    title = "Mean validation error over p and gamma_rst = p · gamma_gnr; the best gamma of each p is framed"
    page.picture("gamma_map", title, figures.gamma_map(analysis.summaries), provenance(analysis.search))

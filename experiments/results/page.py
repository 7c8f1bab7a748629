"""The page: every number in it is computed from the kept records; a section without a record says so."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

import duel
import figures
import plotly.graph_objects as go
import published_gains
import replayed
import rule_figures
import rules_compute
from claims import OTHER_TASKS, Claim, Rows, claims, late_and_early, paired, sam, share_of_gain
from scipy import stats
from studies import KEPT, STUDIES, kept

from rst_tune.analysis import published
from rst_tune.analysis.analysis import Analysis, analyze
from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.records import Search
from rst_tune.report import formatting

__all__ = ["Page", "build"]

ALONE = (1.0, False)


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
    searches = {name: kept(name, records) for name in STUDIES}
    analyses = {name: analyze(search) for name, search in searches.items() if search is not None}
    page = Page()
    _introduction(page)
    _verdicts(page, claims({name: analysis.summaries for name, analysis in analyses.items()}))
    _fresh_seeds(page, searches["decide"])
    sections: dict[str, tuple[str, Callable[[Page, Analysis], None]]] = {
        "paper": ("1. The paper's study on noisy digits", _paper),
        "gamma_map": ("2. The map of p and gamma_rst", _gamma_map),
        "rules": ("3. Ascent rules", _rules),
        "cifar10": ("4. CIFAR-10, a small ResNet", _cifar10),
    }
    for name, (title, write) in sections.items():
        page.say(f"## {title}")
        if name in analyses:
            write(page, analyses[name])
        else:
            page.say(f"This study has not been trained to its end yet: `{STUDIES[name].command}`.")
        if name == "rules":
            page.say("## 3b. Every rule at the compute of one plain training")
            rules_compute.write(page, records)
    page.say("## 5. The search itself")
    duel.write(page, records)
    replayed.write(page)
    page.say("## 6. Published against ours")
    _published(page, analyses.get("paper"))
    return page


def provenance(search: Search) -> str:
    """Return how a study was made: command, commit, seeds, time."""
    header = search.header
    study = next(s for s in STUDIES.values() if s.experiment.split("/")[-1] == header.name)
    seeds = sorted({trial.seed for trial in search.trials})
    begun = min([header.time, *(trial.sampled_at for trial in search.trials)])
    wall = formatting.duration(search.updated_at - begun)
    busy = formatting.duration(sum(trial.seconds for trial in search.trials))
    cores = int(header.devices.get("CPU", 1))
    return (
        f"`{study.command}` · commit `{header.commit[:7]}` · seeds {seeds[0]}–{seeds[-1]} · "
        f"{len(search.trials)} trainings, {wall} on {cores} cores ({busy} of training)"
    )


def _introduction(page: Page) -> None:
    page.say(
        "# Results",
        "Everything here was trained with `rst-tune` on two cores of a CPU. `make results` rebuilds this page and its "
        "figures from the kept records (`experiments/results/records/`); `make results FRESH=1` trains everything "
        "again, and can be interrupted and resumed. No number and no verdict on this page is written by hand.",
        "Errors are validation errors in percent, mean ± standard error over the seeds. The studies 1 to 4 are grids: "
        "nothing is selected, so the validation error is not biased by a choice. *Extra propagation* Δη is the "
        "expected number of extra forward-backward passes per step: 0 for SGD, 1 for SAM.",
    )


def _verdicts(page: Page, found: Sequence[Claim]) -> None:
    page.say("## The paper's claims, tested")
    if not found:
        page.say("No study has been trained to its end yet.")
        return
    body = [
        [c.claim, c.task, c.contrast, f"{c.effect:+.2f}" if c.unit == "points" else f"{c.effect:.2f}",
         f"{c.low:+.2f} … {c.high:+.2f}" if c.unit == "points" else f"{c.low:.2f} … {c.high:.2f}", f"**{c.verdict}**"]
        for c in found
    ]  # fmt: skip
    page.table(["the paper says", "task", "measured", "effect", "95 % interval", "verdict"], body)
    page.say(
        "Effects are in points of error, below 0 is less error (one row is a value of gamma_rst). A claim of a "
        "difference is *reproduced* when the whole interval has the sign it claims, *not reproduced* when the whole "
        "interval has the other sign, *not decidable here* when it contains 0. *As good as* is reproduced when the "
        "interval stays below a tenth of SAM's gain over SGD. Two configurations are compared seed by seed."
    )


def _fresh_seeds(page: Page, search: Search | None) -> None:
    if search is None:
        page.say(
            "Five seeds leave some claims open. Thirty further seeds for ten schedules are set up to decide them and "
            f"have not been trained to their end yet: `{STUDIES['decide'].command}`."
        )
        return
    page.say(
        "Five seeds leave some claims open, so ten schedules were trained on thirty further seeds, both fixed "
        f"beforehand; these are the rows *{OTHER_TASKS['decide']}*. *{provenance(search)}*"
    )


def _error(row: ConfigSummary) -> str:
    return formatting.error(row.error_mean, row.error_sem)


def _gap(left: ConfigSummary, right: ConfigSummary) -> str:
    """Return left minus right with its interval; nothing where they are the same configuration."""
    gap = None if left is right else paired(left, right)
    return formatting.difference(*gap) if gap else ""


def _group_line(name: str, rows: Rows) -> list[str]:
    """Return the table row of a group: size, mean error, and the best schedule."""
    members = figures.members(name, rows)
    best = min(members, key=lambda row: row.error_mean)
    mean, gain = fmean(row.error_mean for row in members), share_of_gain(best.error_mean, rows)
    return [name, str(len(members)), f"{mean:.2f}", _error(best), f"{best.extra_propagation:.0%}", f"{gain:.0%}"]


def _paper(page: Page, analysis: Analysis) -> None:
    search, rows = analysis.search, analysis.summaries
    made, task = provenance(search), search.header.experiment["task"]
    page.say(
        f"All {len(rows)} schedules of the paper on scikit-learn's digits: {task['data']['train_size']:,} training "
        f"images with {task['data']['label_noise']:.0%} wrong labels, {task['data']['validation']:.0f} validation "
        f"images, a small CNN, {task['recipe']['epochs']} epochs."
    )
    page.picture(
        "paper_groups", "Error of each group of schedules; the lines are SGD and SAM", figures.groups(rows), made
    )
    title = "Error against extra propagation, all schedules; groups are shifted slightly so that they do not overlap"
    page.picture("paper_summary", title, figures.summary(rows), made)
    head = ["group", "schedules", "mean error", "best error", "at Δη", "share of SAM's gain"]
    page.table(head, [_group_line(name, rows) for name in figures.GROUPS if figures.members(name, rows)])
    page.say("SAM late against SAM early, cost by cost (SGD then SAM, SAM then SGD, their difference seed by seed):")
    body = [
        [f"{late.extra_propagation:.0%}", _error(late), _error(early), _gap(late, early)]
        for late, early in late_and_early(rows)
    ]
    page.table(["Δη", "SAM late", "SAM early", "late minus early, 95 %"], body)
    slope = figures.time_slope(rows, figures.extra_time(search))
    page.picture(
        "paper_time",
        f"Extra training time against extra propagation: one second pass per step costs {slope:.0%} of a plain step",
        figures.times(search, rows),
        made,
    )


def _gamma_map(page: Page, analysis: Analysis) -> None:
    title = "Mean error over p and gamma_rst = p · gamma_gnr; the best gamma of each p is framed"
    page.picture("gamma_map", title, figures.gamma_map(analysis.summaries), provenance(analysis.search))


def _rules(page: Page, analysis: Analysis) -> None:
    search, rows = analysis.search, analysis.summaries
    title = "Ascent rules alone, with RST (gamma_gnr 1) and with G-RST (gamma_rst 1) at 50 % and 75 %"
    page.picture("rules", title, rule_figures.figure(rows), provenance(search))
    base = next(row for row in rows if row.extra_propagation == 0)
    measured = figures.extra_time(search)
    body = [["SGD", "", _error(base), "0%", "0%", ""]]
    alone = {rule_figures.rule_name(r): r for r in rows if r is not base and rule_figures.mix_of(r) == ALONE}
    for row in sorted((r for r in rows if r is not base), key=rule_figures.rule_order):
        name, scheme = rule_figures.rule_name(row), rule_figures.MIXES[rule_figures.mix_of(row)][0]
        against = sam(rows) if row is alone[name] else alone[name]
        cost, time = rule_figures.realized(search, row), median(measured[row.config_id])
        body.append([name, scheme, _error(row), f"{cost:.0%}", f"{time:.0%}", _gap(row, against)])
    page.table(["rule", "scheme", "error", "extra pairs", "extra time", "difference, 95 %"], body)
    page.say(
        "The difference of a rule alone is to SAM; with RST and G-RST it is to the same rule alone. Extra pairs are "
        "the pairs spent, where a forward pass alone counts as a third. Extra time is the measured time of the second "
        "passes over that of the rest of the same run, the median over the seeds."
    )


def _cifar10(page: Page, analysis: Analysis) -> None:
    search, rows = analysis.search, analysis.summaries
    task = search.header.experiment["task"]
    page.say(
        f"Real CIFAR-10 images: {task['data']['train_size']:,} for training, {task['data']['validation']:,.0f} for "
        f"validation, a ResNet-{task['model']['options']['blocks']}, {task['recipe']['epochs']} epochs: small enough "
        "for a CPU, and far from the paper's 200 epochs on 50,000 images. The file `data/cifar10.npz` has the arrays "
        "`x_train`, `y_train`, `x_test`, `y_test`; without the two settings, torchvision downloads the images."
    )
    title = "CIFAR-10: mean, standard error and single seeds"
    page.picture("cifar10", title, figures.cifar10(rows), provenance(search))
    body = []
    for name, row in figures.cifar_rows(rows).items():
        body.append([name, f"{row.extra_propagation:.0%}", _error(row), _gap(row, sam(rows))])
    page.table(["configuration", "Δη", "error", "minus SAM, 95 %"], body)


def _published(page: Page, analysis: Analysis | None) -> None:
    if analysis is None:
        page.say("This section needs the first study.")
        return
    pairs = published_gains.gains(analysis.summaries)
    rank = stats.spearmanr([p.theirs for p in pairs], [p.ours for p in pairs])
    page.say(
        "The paper's errors are of other models on other data, so the errors themselves cannot be compared. The share "
        "of SAM's gain over SGD that each schedule keeps can be: 0 is SGD's error, 1 is SAM's. "
        f"Over the {len(pairs)} published cells whose schedule was trained here, Spearman's correlation of the two "
        f"shares is {rank.statistic:+.2f} (p = {rank.pvalue:.2g})."
    )
    title = "Share of SAM's gain, published (WRN-28-10, VGG-16-BN, ResNet-18, ViT; CIFAR) against ours (digits)"
    page.picture("published", title, published_gains.figure(pairs), provenance(analysis.search))
    counted = {table: sum(p.table == table for p in pairs) for table in published.TABLES}
    listed = ", ".join(
        f"`rst-tune paper {name} --against output/results/paper` ({n})" for name, n in counted.items() if n
    )
    page.say(f"The same comparison cell by cell, with errors and intervals: {listed}.")

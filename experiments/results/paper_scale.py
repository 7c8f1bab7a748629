"""`docs/paper_scale.md`: what to type for each table of the paper, what it costs, and what five seeds can decide."""

from dataclasses import dataclass
from math import ceil, sqrt

from scipy import stats

from rst_tune import api
from rst_tune.analysis import published
from rst_tune.analysis.published import PublishedRow

__all__ = ["page"]

# The experiments of each table, and the models it is repeated for by `--set task.model.name=…`.
TABLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "sgd-and-sam": (("sgd_and_sam",), ("wrn-28-10", "resnet18")),
    "general-framework-for-cifar": (
        (
            "grst_vgg16bn", "grst_resnet18", "grst_wrn28_10", "grst_pyramidnet164", "grst_vit_ti", "grst_vit_s",
            "grst_vit_b",
        ),
        (),
    ),
    "general-imagenet": (("imagenet_resnet50", "imagenet_resnet101"), ()),
    "cos-group-1": (("trigonometric",), ()),
    "app-cf-res": (("cutout_constant",), ()),
    "app-pf-res-ap-0": (("cutout_piecewise1",), ()),
    "app-lf-group-1": (("cutout_linear1",), ()),
    "app-cos-group-1": (("cutout_trigonometric",), ()),
    "cf-res-vgg16": (("vgg16bn_constant",), ()),
    "cf-res-vits16": (("vit_s_constant",), ()),
    "general-framework-for-sam-variants": (("variants_asam", "variants_gsam"), ("vgg16-bn", "resnet18", "wrn-28-10")),
    "general-framework-for-esam": (
        ("efficient_looksam", "efficient_esam", "efficient_ssam"), ("vgg16-bn", "resnet18", "wrn-28-10"),
    ),
}  # fmt: skip
IMAGES = {"imagenet": 1_281_167, "cifar10": 50_000, "cifar100": 50_000}
GPUS = 4  # "the total wall time … on four A100 Nvidia GPUs"; the rows of another code base say one
MAIN = "general-framework-for-cifar"
POWER = 0.8


def page() -> str:
    """Return the page as Markdown."""
    costs = {table: _cost(table) for table in TABLES}
    hours, pairs = sum(cost.hours for cost in costs.values()), sum(cost.pairs for cost in costs.values())
    lines = [
        "# At the paper's size",
        "",
        "Each table of the paper is one experiment or a few, shipped as `experiments/paper/*.yaml`: the same models, "
        "data, recipes, schedules and five seeds (three on ImageNet), as a grid without stopping and without "
        "selection. Nothing of this page has been trained here; costs are the paper's own times. `make results` writes "
        "this page.",
        "",
        "```bash",
        'rst-tune plan paper/sgd_and_sam                     # trials, pairs and device-hours on your own devices',
        'rst-tune run paper/sgd_and_sam --address "$RAY_ADDRESS" --output "$SHARED/sgd_and_sam"',
        'rst-tune paper sgd-and-sam --against "$SHARED/sgd_and_sam"    # the printed cells beside yours',
        "```",
        "",
        "`--set task.data.name=CIFAR100` repeats a CIFAR table on CIFAR-100, `--set task.model.name=…` for the other "
        "models of its row. ImageNet reads an image folder: `--set task.data.root=…`. A search that was interrupted "
        "continues when the same line is typed again.",
        "",
        *_table(
            ["table", "experiments `paper/…`", "other models", "cells", "trainings", "pairs", "A100-hours"],
            [_cost_line(table, costs[table]) for table in TABLES],
        ),
        "",
        f"All tables together: {pairs / 1e6:,.0f} million pairs, about {hours:,.0f} A100-hours. SGD and SAM stand in "
        "several tables: who runs all of them can leave them out after the first. A pair is one forward and one "
        "backward pass of a batch. Where the paper prints no time (the tables with cutout, of constant schedules and "
        "of ViT-S without mixup), the time of the same model in its main table is used, in proportion to pairs.",
        "",
        "## What five seeds can decide",
        "",
        "Each printed cell against the base optimizer and against SAM of the same model, data and table: the "
        "difference is *decided* when Welch's 95 % interval from the printed means and standard deviations excludes 0. "
        "Cells that repeat another table's number by mistake are left out. * RST on another rule is compared with that "
        "rule at every step.",
        "",
        *_table(
            ["table", "differences to the base optimizer", "decided", "differences to SAM *", "decided",
             "median smallest decidable difference"],
            [_decided_line(table) for table in TABLES],
        ),
        "",
        "The paper's main claim, G-RST at half of SAM's extra cost against SAM, cell by cell. *Seeds* is the number "
        f"per method that would decide a true difference of the printed size with {POWER:.0%} power at the printed "
        "deviations.",
        "",
        *_table(
            ["model", "data", "G-RST minus SAM", "five seeds decide", "seeds"],
            [_main_line(pair) for pair in _main_pairs()],
        ),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _table(head: list[str], body: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *body]]


# --- cost -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """What a table costs with all its models and data sets."""

    cells: int
    trainings: int
    pairs: float
    hours: float


def _cost(table: str) -> Cost:
    rows = [row for row in published.table(table) if row.metric == "top-1"]
    return Cost(
        len(rows), sum(row.seeds for row in rows), sum(row.seeds * _pairs(row) for row in rows),
        sum(row.seeds * _minutes(row) * (1 if _elsewhere(row) else GPUS) / 60 for row in rows),
    )  # fmt: skip


def _elsewhere(row: PublishedRow) -> bool:
    """Return whether a row was trained by another code base, which has its own baseline and one GPU."""
    return "one GPU" in row.note


def _extra(row: PublishedRow) -> float:
    """Return the extra pairs per step; what ESAM costs is not stated, it is taken as SAM's."""
    return float(row.schedule["p"]) if row.extra_propagation is None else row.extra_propagation


def _pairs(row: PublishedRow) -> float:
    task = api.load_experiment(f"paper/{_experiment(row)}", search=False).task
    steps = int(IMAGES[row.dataset] - task.data.validation) // task.recipe.batch_size
    return task.recipe.epochs * steps * (1 + _extra(row))


def _experiment(row: PublishedRow) -> str:
    """Return an experiment of the row's table whose recipe is that of the row's model."""
    names = TABLES[row.table][0]
    if len(names) == 1 or TABLES[row.table][1]:
        return names[0]
    model = row.model.replace("-", "_").removesuffix("16")
    return next(name for name in names if name.endswith(model))


def _minutes(row: PublishedRow) -> float:
    """Return the minutes of one training of a cell: the base optimizer's and the extra ones."""
    rows = [r for r in published.results() if _setting(r) == _setting(row) and r.minutes is not None]
    own = [r for r in rows if r.table == row.table] or rows
    base = next(r.minutes for r in [*own, *rows] if r.is_base and r.minutes is not None)
    if row.minutes is not None:
        return base + (0.0 if row.is_base else row.minutes)
    sam = next(r.minutes for r in rows if r.method == "SAM" and r.minutes is not None)
    length = 300 / 1200 if row.table == "cf-res-vits16" else 1.0
    return length * (base + sam * _extra(row))


def _setting(row: PublishedRow) -> tuple[str, str, bool]:
    return row.model, row.dataset, _elsewhere(row)


def _cost_line(table: str, cost: Cost) -> list[str]:
    names, models = TABLES[table]
    listed = ", ".join(f"`{name}`" for name in names)
    others = ", ".join(f"`{model}`" for model in models)
    counts = [str(cost.cells), str(cost.trainings), f"{cost.pairs / 1e6:.1f} M", f"{cost.hours:,.0f}"]
    return [f"`{table}`: {published.TABLES[table]}", listed, others, *counts]


# --- what the printed seeds decide ------------------------------------------------------------------------------------


def _welch(left: PublishedRow, right: PublishedRow) -> tuple[float, float]:
    """Return the difference of two cells and half the width of Welch's 95 % interval."""
    parts = [row.error_sd**2 / row.seeds for row in (left, right)]
    spread = sum(part**2 / (row.seeds - 1) for part, row in zip(parts, (left, right), strict=True))
    freedom = sum(parts) ** 2 / spread if spread else 1.0
    return left.error_mean - right.error_mean, float(stats.t.ppf(0.975, freedom)) * sqrt(sum(parts))


def _against(table: str, *, base: bool) -> list[tuple[float, float]]:
    """Return the differences of a table's cells to the base optimizer or to their rule at every step."""
    rows = [row for row in published.table(table) if not row.suspect]
    found = []
    for row in rows:
        same = [r for r in rows if (*_setting(r), r.metric) == (*_setting(row), row.metric)]
        whole = [r for r in same if r.rule == row.rule and r.schedule == {"family": "constant", "p": 1.0}]
        others = [r for r in same if r.is_base] if base else whole
        if others and not row.is_base and row is not others[0]:
            found.append(_welch(row, others[0]))
    return found


def _decided_line(table: str) -> list[str]:
    cells, widths = [], []
    for base in (True, False):
        gaps = _against(table, base=base)
        widths += [half for _, half in gaps]
        cells += [str(len(gaps)), str(sum(abs(gap) > half for gap, half in gaps))] if gaps else ["–", "–"]
    middle = f"{sorted(widths)[len(widths) // 2]:.2f} points" if widths else "–"
    return [f"`{table}`", *cells, middle]


def _main_pairs() -> list[tuple[PublishedRow, PublishedRow]]:
    rows = published.table(MAIN)
    sam = {(row.model, row.dataset): row for row in rows if row.method == "SAM"}
    return [(row, sam[row.model, row.dataset]) for row in rows if row.method.startswith("G-RST")]


def _main_line(pair: tuple[PublishedRow, PublishedRow]) -> list[str]:
    gap, half = _welch(*pair)
    quantile = stats.norm.ppf(0.975) + stats.norm.ppf(POWER)
    seeds = ceil((quantile / gap) ** 2 * sum(row.error_sd**2 for row in pair)) + 1 if gap else 0
    word = "yes" if abs(gap) > half else "no"
    return [pair[0].model, pair[0].dataset, f"{gap:+.2f} [{gap - half:+.2f}, {gap + half:+.2f}]", word, str(seeds)]

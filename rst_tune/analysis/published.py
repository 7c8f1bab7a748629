"""Every number of every table of the paper (Zhao, Zhang and Hu, Randomized Sharpness-Aware Training), as data.

The results are in `published.csv`, one row per printed error. `extra_propagation` is the limit of the exact mean of
p(t) times the rule's cost per step; `printed_extra` is what the paper prints, which is not always the same. `suspect`
says why a cell must not be used as a target; `note` has other remarks. Errors are test errors in percent, mean and
standard deviation over `seeds`. `minutes` is the whole training for a base optimizer and the extra time for all
others.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from scipy import stats

from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.errors import unknown_name
from rst_tune.records import TrialConfig

TABLES: Mapping[str, str] = {
    "sgd-and-sam": "SGD and SAM, ResNet18 and WRN-28-10",
    "general-framework-for-cifar": "G-RST with p = 0.5 against SGD and SAM, seven models",
    "general-imagenet": "G-RST with p = 0.5 on ImageNet",
    "cos-group-1": "trigonometric schedules, WRN-28-10",
    "app-cf-res": "constant schedules, WRN-28-10 with cutout",
    "app-pf-res-ap-0": "piecewise schedules of group 1, WRN-28-10 with cutout (captioned constant)",
    "app-lf-group-1": "linear schedules of group 1, WRN-28-10 with cutout (captioned constant)",
    "app-cos-group-1": "trigonometric schedules, WRN-28-10 with cutout (captioned constant)",
    "cf-res-vgg16": "constant schedules, VGG16-BN",
    "cf-res-vits16": "constant schedules, ViT-S16, 300 epochs without mixup",
    "general-framework-for-sam-variants": "RST and G-RST on ASAM and GSAM",
    "general-framework-for-esam": "G-RST on LookSAM, ESAM and SSAM",
}


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """One printed error with its setting, as the paper states it."""

    table: str
    model: str
    dataset: str
    augmentation: str
    method: str
    schedule: Mapping[str, float | str]
    rule: str
    gamma_gnr: float | None
    extra_propagation: float | None
    printed_extra: str
    metric: str
    error_mean: float
    error_sd: float
    seeds: int
    minutes: float | None
    minutes_sd: float | None
    suspect: str
    note: str

    @property
    def is_base(self) -> bool:
        """Whether it is the base optimizer, SGD or Adam."""
        return self.schedule == {"family": "constant", "p": 0.0}

    def matches(self, config: TrialConfig) -> bool:
        """Return whether a configuration is that of this row: the same schedule, rule and gamma, or both are base."""
        if self.is_base or config.is_base:
            return self.is_base and config.is_base
        gamma = self.gamma_gnr is not None and bool(np.isclose(config.gamma_gnr, self.gamma_gnr))
        return gamma and config.rule == self.rule and _same(self.schedule, config.schedule)


def _same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    if right.get("family") == "step-up" and right.get("shape") == 1.0:
        # The steepest step of mean c is the paper's piecewise schedule of group 1.
        right = {"family": "piecewise", "a": 0.0, "b": 1.0 - float(right["c"])}
    if left.keys() != right.keys() or left.get("family") != right.get("family"):
        return False
    return all(np.isclose(left[name], right[name]) for name in left if name != "family")


@cache
def results() -> tuple[PublishedRow, ...]:
    """Return all printed results, in the order of the paper.

    >>> best = min((r for r in results() if r.dataset == "cifar10" and not r.suspect), key=lambda r: r.error_mean)
    >>> best.table, best.error_mean, best.error_sd
    ('app-lf-group-1', 2.22, 0.03)
    """
    text = files("rst_tune.analysis").joinpath("published.csv").read_text(encoding="utf-8")
    return tuple(_row(raw) for raw in csv.DictReader(text.splitlines()))


def _row(raw: Mapping[str, str]) -> PublishedRow:
    family, _, options = raw["schedule"].partition(":")
    schedule = {name: float(value) for name, value in (option.split("=") for option in options.split(",") if option)}
    optional = ("gamma_gnr", "extra_propagation", "minutes", "minutes_sd")
    numbers: dict[str, Any] = {name: float(raw[name]) if raw[name] else None for name in optional}
    numbers |= {"error_mean": float(raw["error_mean"]), "error_sd": float(raw["error_sd"]), "seeds": int(raw["seeds"])}
    return PublishedRow(**{**raw, **numbers, "schedule": {"family": family, **schedule}})


def table(name: str) -> tuple[PublishedRow, ...]:
    """Return the rows of one table, by the name that `TABLES` lists."""
    if name not in TABLES:
        raise unknown_name("table", name, TABLES)
    return tuple(row for row in results() if row.table == name)


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A published cell and one's own result: ours minus theirs, with a 95 % interval where ours has two seeds."""

    published: PublishedRow
    ours: ConfigSummary
    split: str
    error: float
    difference: float
    low: float | None
    high: float | None


def beside(rows: Sequence[PublishedRow], summaries: Sequence[ConfigSummary]) -> list[Beside]:
    """Return for each published row the own configuration that matches it, the most replicated one of several.

    The test error is compared where it was read, else the validation error; `split` says which.
    """
    found = [(row, [s for s in summaries if row.matches(s.config)]) for row in rows]
    return [_difference(row, max(own, key=lambda s: s.seeds)) for row, own in found if own]


def _difference(row: PublishedRow, ours: ConfigSummary) -> Beside:
    """Return ours minus theirs with Welch's interval."""
    mean, sem, split = ours.error_mean, ours.error_sem, "validation"
    if ours.test_error_mean is not None:
        mean, sem, split = ours.test_error_mean, ours.test_error_sem, "test"
    gap, low, high = mean - row.error_mean, None, None
    if sem is not None:
        theirs = row.error_sd / np.sqrt(row.seeds)
        variance = sem**2 + theirs**2
        spread = sem**4 / (ours.seeds_total - 1) + theirs**4 / (row.seeds - 1)
        half = float(stats.t.ppf(0.975, variance**2 / spread if spread > 0 else 1.0) * np.sqrt(variance))
        low, high = gap - half, gap + half
    return Beside(published=row, ours=ours, split=split, error=mean, difference=gap, low=low, high=high)

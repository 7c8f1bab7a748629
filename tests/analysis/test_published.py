"""The paper's tables: all of them, to the digit, and consistent with the schedules of this package."""

from collections import Counter
from dataclasses import replace
from hashlib import sha256
from importlib.resources import files

import numpy as np
import pytest
from reference import closed_form

from rst_tune.analysis import published
from rst_tune.analysis.analysis import analyze
from rst_tune.errors import InputError
from rst_tune.method import schedules
from rst_tune.records import TrialConfig
from tests.analysis.builders import runs, search_of

SUM_OF_ERRORS, SUM_OF_DEVIATIONS, SUM_OF_MINUTES = 3855.66, 44.45, 16120.6
CHECKSUM = "f7989cab71e4ee82"
COUNTS = {
    "sgd-and-sam": 8,
    "general-framework-for-cifar": 42,
    "general-imagenet": 12,
    "cos-group-1": 12,
    "app-cf-res": 22,
    "app-pf-res-ap-0": 22,
    "app-lf-group-1": 22,
    "app-cos-group-1": 8,
    "cf-res-vgg16": 22,
    "cf-res-vits16": 22,
    "general-framework-for-sam-variants": 36,
    "general-framework-for-esam": 72,
}


def test_every_table_is_whole():
    assert Counter(row.table for row in published.results()) == COUNTS
    assert set(COUNTS) == set(published.TABLES)


def test_no_digit_has_changed_since_it_was_checked_against_the_paper():
    """The sums were taken when every printed pair of the paper was found in the file, and no other."""
    rows = published.results()
    assert sum(r.error_mean for r in rows) == pytest.approx(SUM_OF_ERRORS)
    assert sum(r.error_sd for r in rows) == pytest.approx(SUM_OF_DEVIATIONS)
    assert sum(r.minutes or 0 for r in rows) == pytest.approx(SUM_OF_MINUTES)
    numbers = "".join(f"{r.error_mean},{r.error_sd},{r.minutes},{r.minutes_sd};" for r in rows)
    assert sha256(numbers.encode()).hexdigest()[:16] == CHECKSUM


@pytest.mark.parametrize(
    ("table", "model", "dataset", "method", "mean", "sd", "minutes"),
    [
        ("general-framework-for-cifar", "resnet18", "cifar10", "G-RST[50%]", 3.65, 0.10, 7.9),
        ("general-framework-for-cifar", "vit-b16", "cifar100", "SAM", 26.51, 0.30, 400.2),
        ("general-imagenet", "resnet101", "imagenet", "SAM", 21.02, 0.10, 904),
        ("cos-group-1", "wrn28-10", "cifar10", "RST cos1", 3.16, 0.09, 14.7),
        ("general-framework-for-esam", "wrn28-10", "cifar100", "SSAM & G-RST[75%]", 16.56, 0.20, 81.2),
        ("general-framework-for-sam-variants", "vgg16bn", "cifar10", "ASAM", 5.28, 0.06, 9.0),
    ],
)
def test_some_cells(table, model, dataset, method, mean, sd, minutes):
    cells = [r for r in published.table(table) if (r.model, r.dataset, r.method) == (model, dataset, method)]
    assert (cells[0].error_mean, cells[0].error_sd, cells[0].minutes) == (mean, sd, minutes)


def test_seeds_are_five_and_three_on_imagenet():
    assert {(r.dataset == "imagenet", r.seeds) for r in published.results()} == {(True, 3), (False, 5)}


def test_the_exact_cost_is_that_of_the_schedule():
    for row in published.results():
        plain = closed_form(schedules.from_dict(dict(row.schedule)))
        share = {"looksam": 0.2, "esam": None}.get(row.rule, 1.0)
        if share is None:
            assert row.extra_propagation is None
        else:
            assert row.extra_propagation == pytest.approx(plain * share, abs=1e-6)


def test_what_the_paper_misprints_is_flagged_or_noted():
    wrong = [r for r in published.results() if r.suspect]
    assert Counter(r.table for r in wrong) == {
        "sgd-and-sam": 1,
        "general-framework-for-sam-variants": 11,
        "general-framework-for-esam": 2,
    }
    costs = {"2/pi": 2 / np.pi, "1.0": 1.0}
    for row in published.results():
        if not row.printed_extra or row.rule in ("looksam", "esam"):
            continue
        printed = costs.get(row.printed_extra) or float(row.printed_extra)
        assert row.extra_propagation == pytest.approx(printed, abs=1e-6) or "prints" in row.note


def test_suspect_cells_do_repeat_the_cells_they_are_said_to_repeat():
    main = {(r.model, r.dataset, r.method.split("[")[0]): r for r in published.table("general-framework-for-cifar")}
    for row in published.table("general-framework-for-sam-variants"):
        if row.suspect:
            twin = main[row.model, row.dataset, row.suspect.split()[2]]
            assert (row.error_mean, row.error_sd) == (twin.error_mean, twin.error_sd)


def test_an_unknown_table_lists_the_tables():
    with pytest.raises(InputError, match="app-cf-res"):
        published.table("app-cf")


def test_beside_ones_own(tmp_path):
    own = [*runs(0.0, [4.4, 4.5, 4.6], 0.0), *runs(0.5, [3.55, 3.65, 3.75]), *runs(1.0, [3.9])]
    rows = [
        r for r in published.table("general-framework-for-cifar") if (r.model, r.dataset) == ("resnet18", "cifar10")
    ]
    pairs = {p.published.method: p for p in published.beside(rows, analyze(search_of(own, tmp_path)).summaries)}
    assert pairs["SGD"].difference == pytest.approx(0.02)
    assert pairs["G-RST[50%]"].difference == pytest.approx(0.0)
    assert pairs["G-RST[50%]"].low < 0 < pairs["G-RST[50%]"].high
    assert (pairs["SAM"].difference, pairs["SAM"].low) == (pytest.approx(0.09), None)
    assert pairs["SAM"].split == "validation"


def test_the_steepest_step_is_the_papers_piecewise_schedule():
    step = schedules.with_mean("step-up", 0.3, 100)
    row = next(r for r in published.table("app-pf-res-ap-0") if r.extra_propagation == 0.3)
    paper = schedules.from_dict(dict(row.schedule))
    assert [step(t, 100) for t in range(1, 101)] == pytest.approx([paper(t, 100) for t in range(1, 101)])
    config = TrialConfig(
        family="step-up", schedule=step.to_dict(), extra_propagation=0.3, gamma_gnr=1.0, gamma_rst=0.3, rho=0.1
    )
    assert row.matches(config)
    assert not row.matches(replace(config, gamma_gnr=2.0))
    assert not row.matches(replace(config, rule="asam"))
    assert not row.matches(replace(config, schedule={"family": "constant", "p": 0.3}))


def test_the_data_travel_with_the_package():
    assert files("rst_tune.analysis").joinpath("published.csv").is_file()

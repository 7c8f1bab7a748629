"""Searches against each other, and every trial in a file."""

import csv
import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from rst_tune.analysis import export
from rst_tune.analysis.analysis import analyze
from rst_tune.analysis.compare import compare
from rst_tune.errors import InputError
from rst_tune.records import SearchStarted, load
from tests.analysis.builders import runs, search_of, trial
from tests.analysis.synthetic import write_search


def compared(searches, names=None):
    return compare([analyze(search) for search in searches], names)


def shifted(errors_by_cost, shift, directory):
    made = [run for cost, errors in errors_by_cost.items() for run in runs(cost, [e + shift for e in errors], cost)]
    return search_of(made, directory, "done")


ERRORS = {0.0: [4.9, 5.0, 5.1], 0.5: [3.9, 4.0, 4.1], 1.0: [3.6, 3.7, 3.8]}


def test_a_better_search_is_better_everywhere(tmp_path):
    result = compared([shifted(ERRORS, 0.0, tmp_path), shifted(ERRORS, -0.5, tmp_path)], ["old", "new"])
    old, new = result.entries
    assert old.low < old.hypervolume < old.high < new.low < new.hypervolume < new.high
    assert [d.difference for d in result.differences] == pytest.approx([-0.5] * 11, abs=0.005)
    assert all(d.low < -0.5 < d.high < 0 for d in result.differences)
    assert result.attainment["new"][:, -1].min() < 0
    assert result.attainment["new"][:, -1].max() <= 0


def test_the_interval_of_a_difference_is_that_of_two_means(tmp_path):
    """At one cost with many seeds, the t interval of the textbook."""
    rng = np.random.default_rng(0)
    left, right = rng.normal(4, 0.1, 40), rng.normal(4, 0.1, 40)
    result = compared([search_of(runs(0.5, list(e)), tmp_path) for e in (left, right)], ["a", "b"])
    gap = result.differences[0]
    half = 1.96 * np.sqrt(left.var(ddof=1) / 40 + right.var(ddof=1) / 40)
    assert gap.difference == pytest.approx(right.mean() - left.mean(), abs=0.002)
    assert (gap.high - gap.low) / 2 == pytest.approx(half, rel=0.15)


def test_fronts_without_noise_or_points_are_compared_as_far_as_they_go(tmp_path):
    single = search_of([trial(0.0, 0, 4.0), trial(0.5, 0, 3.0)], tmp_path)
    empty = search_of([], tmp_path)
    result = compared([single, empty, single], ["one", "none", "two"])
    assert [entry.low for entry in result.entries] == [None] * 3
    assert result.entries[1].hypervolume == 0.0
    assert {d.name for d in result.differences} == {"two"}
    assert any(note.startswith("none: the search is empty") for note in result.caveats)
    nothing = compared([empty, empty], ["x", "y"])
    assert nothing.reference is None
    assert nothing.differences == ()


def test_names_and_tasks(tmp_path):
    one = replace(shifted(ERRORS, 0.0, tmp_path), header=SearchStarted(experiment={"task": {"data": "digits"}}))
    result = compared([one, shifted(ERRORS, 0.1, tmp_path)])
    assert len({entry.name for entry in result.entries}) == 2
    assert any("different tasks" in note for note in result.caveats)


def test_one_search_is_not_a_comparison(tmp_path):
    with pytest.raises(InputError, match="two searches"):
        compared([search_of([], tmp_path)])


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    return load(write_search(tmp_path_factory.mktemp("e"), trials=30))


def read(path, kind):
    if kind == "csv":
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    return json.loads(path.read_text()) if kind == "json" else pq.read_table(path).to_pylist()


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_every_trial_is_exported_and_read_back(search, tmp_path, kind):
    rows = read(export.write_export(search, tmp_path / "new" / f"trials.{kind}", kind), kind)
    assert [row["key"] for row in rows] == [t.key for t in search.trials]
    for row, own in zip(rows, search.trials, strict=True):
        assert json.loads(row["schedule"]) == own.config.schedule
        assert row["status"] == own.status
        assert float(row["compute"]) == own.compute
        if own.error is not None:
            assert float(row["error"]) == own.error
        else:
            assert row["error"] in (None, "")


def test_json_without_infinite_numbers(tmp_path):
    """JSON has no NaN and no infinity: they are null, at the top and inside nested values."""
    wild = replace(
        trial(0.5, 0, float("inf"), status="diverged"),
        metrics={"loss": float("nan"), "norm": float("-inf")},
        history={"train_loss": [1.0, float("inf")]},
    )
    (row,) = json.loads(
        export.write_export(search_of([wild]), tmp_path / "x.json", "json").read_text(), parse_constant=pytest.fail
    )
    assert row["error"] is row["metric_loss"] is row["metric_norm"] is None
    assert json.loads(row["history"], parse_constant=pytest.fail) == {"train_loss": [1.0, None]}
    assert (row["status"], row["role"]) == ("diverged", "search")


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_an_empty_search_is_an_empty_file_of_that_format(tmp_path, kind):
    assert read(export.write_export(search_of([], tmp_path), tmp_path / "x", kind), kind) == []


def test_an_unknown_format_lists_the_formats(search, tmp_path):
    with pytest.raises(InputError, match="parquet"):
        export.write_export(search, tmp_path / "x", "xlsx")

"""`rst-tune front --at` and `--error`: one point in words or as a row, and exit code 2 with the remedy."""

import json
import sys

import pytest

from rst_tune import cli
from tests.analysis.synthetic import write_search


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    return write_search(tmp_path_factory.mktemp("front"), trials=20)


def call(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["rst-tune", "front", *map(str, words)])
    return cli._invoke()


def test_one_point_in_words_and_as_a_row(search, monkeypatch, capfd):
    assert call(monkeypatch, search, "--at", 1.5) == 0
    assert "error" in capfd.readouterr().out
    assert call(monkeypatch, search, "--at", 1.5, "--json") == 0
    (row,) = json.loads(capfd.readouterr().out)
    assert row["compute"] <= 1.5
    assert call(monkeypatch, search, "--error", 4.3, "--json") == 0
    (row,) = json.loads(capfd.readouterr().out)
    assert row["error_posterior"] <= 4.3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--at", 0.5), "the cheapest costs 1 ×: ask for that or more"),
        (("--error", 0.5), "ask for that or more"),
        (("--at", "nan"), "ask for that or more"),
        (("--at", 1, "--error", 5), "drop one"),
    ],
)
def test_a_point_that_is_not_there_is_exit_2_with_the_remedy(search, monkeypatch, capfd, words, said):
    assert call(monkeypatch, search, *words) == 2
    assert said in " ".join(capfd.readouterr().err.split())

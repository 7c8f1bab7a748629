"""The result page follows from its records, and one small study runs from training to verdict."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from rst_tune.analysis.analysis import analyze
from rst_tune.records import LOG_NAME
from rst_tune.training.loop import Run
from rst_tune.training.task import Task
from rst_tune.tuning.backend.runner import to_method

ROOT = Path(__file__).resolve().parent.parent
CODE = ROOT / "experiments" / "results"
PAGE = ROOT / "docs" / "results.md"
SMALL = (
    "space.families={constant: {p: [0.3, 0.7]}, piecewise: {a: [0.0, 1.0], b: [0.3, 0.7]}}",
    "space.points_to_evaluate=[]",
    "seeds=2",
    "task.recipe.epochs=2",
    "task.data.train_size=128",
)


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(CODE))
    return import_module


def test_the_committed_page_is_what_its_records_say(tmp_path):
    command = [sys.executable, str(CODE / "make.py"), "--no-images", "--docs", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT, timeout=300)
    assert (tmp_path / "results.md").read_text() == PAGE.read_text()


def test_every_figure_of_the_page_is_there():
    names = [line.split("](")[1].rstrip(")") for line in PAGE.read_text().splitlines() if line.startswith("![")]
    assert names
    assert [name for name in names if not (PAGE.parent / name).exists()] == []


def test_a_record_is_trained_again_with_the_same_outcome(module):
    analysis = analyze(module("studies").kept("paper"))
    for kept in (analysis.base, analysis.sam):
        run = Run(Task(), to_method(kept.config), seed=0, device="cpu")
        while not run.finished:
            run.epoch()
        # Another processor rounds differently, which moves some images; the two baselines are seven points apart.
        assert run.last_metrics["validation_error"] == pytest.approx(module("claims").by_seed(kept)[0], abs=2.0)


def test_a_small_study_from_training_to_verdict(module, tmp_path):
    studies, claims, page = module("studies"), module("claims"), module("page")
    study = studies.STUDIES["paper"]
    trained = studies.train(study, tmp_path / "work", *SMALL)
    studies.keep(study, tmp_path / "work", tmp_path / "records")
    search = studies.kept("paper", tmp_path / "records")
    assert [t.error for t in search.trials] == [t.error for t in trained.search.trials]
    rows = analyze(search).summaries
    assert [row.seeds for row in rows] == [2] * 8
    tested = {(claim.claim, claim.contrast) for claim in claims.claims({"paper": rows})}
    assert ("SAM late is better than SAM early", "SGD then SAM minus SAM then SGD, at 2 equal costs") in tested
    kept = (tmp_path / "records" / "paper.jsonl.gz").stat().st_size
    assert kept < (tmp_path / "work" / "paper" / LOG_NAME).stat().st_size / 2
    assert "not been trained to its end yet" in page.build(tmp_path / "records").text


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-2, -1, "reproduced"), (1, 2, "not reproduced"), (-1, 1, "not decidable here")],
)
def test_a_verdict_follows_from_the_interval(module, low, high, verdict):
    assert module("claims")._less(((low + high) / 2, low, high)) == verdict


def test_searches_are_compared_by_the_difference_of_their_means(module):
    values = module("duel").difference([2.0, 2.2, 2.1], [1.0, 1.2, 1.1])
    assert values[0] == pytest.approx(1.0)
    assert values[1] < 1.0 < values[2]

"""The result page: it is what its records say, and one study goes through from training to verdict."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from rst_tune.analysis import labels, noise
from rst_tune.training.loop import Run
from rst_tune.training.task import Method, Task

ROOT = Path(__file__).resolve().parent.parent
CODE = ROOT / "experiments" / "results"
PAGE = ROOT / "docs" / "results.md"
SMALL = (
    "space.families={constant: {p: [0.3, 0.7]}, piecewise: {a: [0.0, 1.0], b: [0.3, 0.7]}}",
    "space.points=[]",
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
    rows = noise.summarise(module("studies").kept("paper"))
    for kept in (next(r for r in rows if labels.is_base(r.config)), next(r for r in rows if labels.is_sam(r.config))):
        run = Run(Task(), Method.from_config(dict(kept.config)), seed=0, device="cpu")
        while not run.finished:
            run.epoch()
        # Another processor rounds otherwise, which moves some images; the two ends are seven points apart.
        assert run.last_metrics["validation_error"] == pytest.approx(module("claims").by_seed(kept)[0], abs=2.0)


def test_a_small_study_from_training_to_verdict(module, tmp_path):
    studies, claims, page = module("studies"), module("claims"), module("page")
    study = studies.STUDIES["paper"]
    trained = studies.train(study, tmp_path / "work", *SMALL)
    studies.keep(study, tmp_path / "work", tmp_path / "records")
    search = studies.kept("paper", tmp_path / "records")
    assert [t.error for t in search.trials] == [t.error for t in trained.trials]
    rows = noise.summarise(search)
    assert [row.seeds for row in rows] == [2] * 8
    judged = {(claim.claim, claim.contrast) for claim in claims.claims({"paper": rows})}
    assert ("SAM late is better than SAM early", "SGD then SAM minus SAM then SGD, at 2 equal costs") in judged
    kept = (tmp_path / "records" / "paper.jsonl.gz").stat().st_size
    assert kept < (tmp_path / "work" / "paper" / "record.jsonl").stat().st_size / 2
    assert "not been trained to its end yet" in page.build(tmp_path / "records").text


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-2, -1, "reproduced"), (1, 2, "not reproduced"), (-1, 1, "not decidable here")],
)
def test_a_verdict_follows_from_the_interval(module, low, high, verdict):
    assert module("claims")._less(((low + high) / 2, low, high)) == verdict


def test_the_front_that_counts_is_the_one_on_fresh_seeds(module):
    """A front that believes in luck has less true hypervolume than it believes."""
    duel = module("duel")
    values = duel.difference([2.0, 2.2, 2.1], [1.0, 1.2, 1.1])
    assert values[0] == pytest.approx(1.0)
    assert values[1] < 1.0 < values[2]

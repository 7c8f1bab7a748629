"""The result page follows from its records, a small study runs from training to verdict, and benchmarks run."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from rst_tune.analysis.analysis import analyze
from rst_tune.records import LOG_NAME
from rst_tune.training.loop import Run
from rst_tune.training.task import Task
from rst_tune.tuning.backend.runner import to_method

ROOT = Path(__file__).resolve().parent.parent
CODE = ROOT / "experiments" / "results"
BENCHMARKS = ROOT / "experiments" / "benchmarks"
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
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module


@pytest.fixture
def one_thread():
    """Several threads slow small networks down on a machine with other load."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_committed_page_is_what_its_records_say(tmp_path):
    command = [sys.executable, str(CODE / "make.py"), "--no-images", "--docs", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT, timeout=300)
    assert (tmp_path / "results.md").read_text() == PAGE.read_text()


def test_every_figure_of_the_page_is_there():
    names = [line.split("](")[1].rstrip(")") for line in PAGE.read_text().splitlines() if line.startswith("![")]
    assert names
    assert [name for name in names if not (PAGE.parent / name).exists()] == []


@pytest.mark.usefixtures("one_thread")
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


def test_a_search_of_the_benchmark_is_deterministic_in_its_world(module):
    search, table, budget = module("search"), module("replay").load_table(), 4000
    first, again, other = (
        search.score("ours", search.ours(budget, table, n), budget, table) for n in (9000, 9000, 9001)
    )
    assert first == again
    assert [row["reported"] for row in first] != [row["reported"] for row in other]


@pytest.mark.parametrize("name", ["search_results", "second_results"])
def test_the_kept_benchmark_has_the_axis_it_was_measured_with(module, name):
    kept = json.loads((BENCHMARKS / f"{name}.json").read_text())
    table = module("replay").load_table(
        BENCHMARKS / f"{name.replace('search', 'digits').replace('results', 'table')}.npz"
    )
    assert kept["reference"] == list(table.reference)
    assert kept["best"] == pytest.approx(table.best)


def test_kept_fronts_are_not_measured_over_another_axis(module):
    duel = module("duel")
    kept = [{"points": [{"params": {}, "reported": 4.0, "extra_propagation": 0.1}]}]
    fresh = [{"points": [{"params": {}, "reported": 4.0, "compute": 1.1}]}]
    assert (duel.axis_of(kept), duel.axis_of(fresh)) == ("extra_propagation", "compute")
    assert duel.AXES["extra_propagation"].volume([(4.0, 0.1)]) == pytest.approx(8.0)
    with pytest.raises(ValueError, match="one cost axis"):
        duel.axis_of(kept + fresh)


def test_every_rule_is_judged_on_the_seeds_that_did_not_choose_its_radius(module, tmp_path):
    rules, page = module("rules_compute"), module("page").Page()
    rows = [
        {"task": "t", "contender": "SAM", "radius": radius, "horizon": 0.5, "seed": seed, "compute": 1.0,
         "error": error, "test": 10 * error + seed, "seconds": 1.0, "status": "complete"}
        for radius, error in ((1.0, 2.0), (2.0, 1.0))
        for seed in range(4)
    ]  # fmt: skip
    assert rules.judge(rows)[0].errors == (11.0, 13.0)
    rules.write(page, tmp_path)
    assert "has not been trained yet" in page.text
    rules.write_lines(tmp_path / f"{rules.NAME}.jsonl.gz", rows)
    rules.write(page, tmp_path)
    assert "| SAM | 2 × the radius | 1.00 × | 12.00 ± 1.00 |" in page.text


def test_every_benchmark_has_a_quick_form():
    exempt = {"contenders", "replay", "house"}  # two libraries, and a script that counts source lines in seconds
    scripts = [path for path in sorted(BENCHMARKS.glob("*.py")) if path.stem not in exempt]
    assert [path.name for path in scripts if "--quick" not in path.read_text()] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fronts", "make_table", "scale", "suggest"])
def test_a_benchmark_runs_in_its_quick_form(name):
    subprocess.run([sys.executable, str(BENCHMARKS / f"{name}.py"), "--quick"], check=True, cwd=ROOT, timeout=300)

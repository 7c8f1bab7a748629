"""The search on real Ray: finishing, determinism with one worker, shipped experiments, workers that fail."""

from pathlib import Path

import pytest

from rst_tune.analysis.analysis import analyze
from rst_tune.records import Role, Search, Status, load
from rst_tune.tuning.controller import SearchFailedError
from rst_tune.tuning.experiment import load_experiment
from rst_tune.tuning.search import run_search
from tests.tuning.test_experiment import SMOKE

pytestmark = pytest.mark.slow

SEARCH = (
    "budget={trials: 9}",
    "confirm={min_seeds: 2, max_seeds: 2, candidates: 2}",
    "stopping={name: pareto-asha}",
)


def results(search: Search) -> list[tuple]:
    """Return what must be the same bit for bit: not times, not places."""
    names = ("key", "status", "error", "pairs", "test_error", "rungs")
    curves = ("train_loss", "validation_error", "validation_loss")
    return [
        tuple(getattr(t, name) for name in names) + tuple(tuple(t.history[c]) for c in curves) for t in search.trials
    ]


def test_a_search_on_ray_finishes_and_the_same_seed_gives_the_same_bits(cluster, tmp_path: Path):
    experiment = load_experiment("digits", [*SMOKE, *SEARCH, "resources.max_concurrent_trials=1"])
    first = run_search(experiment, tmp_path / "first", address=cluster.address)
    second = run_search(experiment, tmp_path / "second", address=cluster.address)
    assert first.done
    assert {t.role for t in first.trials} == set(Role)
    assert all(t.test_error is not None for t in first.trials if t.role is Role.CONFIRM)
    assert analyze(first).points
    assert results(first) == results(second)
    again = run_search(experiment, tmp_path / "first", address=cluster.address)
    assert results(again) == results(first)


@pytest.mark.parametrize("name", ["paper/trigonometric", "paper/efficient_esam"])
def test_a_table_of_the_paper_runs_on_ray_at_smoke_size(cluster, name: str, tmp_path: Path):
    experiment = load_experiment(name, [*SMOKE, "seeds=2"])
    search = run_search(experiment, tmp_path, address=cluster.address)
    assert search.done
    assert {t.status for t in search.trials} == {Status.COMPLETE}
    assert len(search.trials) == 2 * (experiment.budget.trials or 0)
    assert all(t.finished for t in search.trials)


OWN_NET = """
import os
from pathlib import Path
from torch import nn

class Net(nn.Module):
    def __init__(self, classes, mood):
        super().__init__()
        self.net, self.mood, self.seen = nn.Sequential(nn.Flatten(), nn.Linear(64, classes)), mood, 0

    def forward(self, images):
        self.seen += self.training
        if self.seen > 8 and self.mood == "raise":  # in the second epoch
            raise ValueError("expected 3 channels, got 1")
        if self.seen > 8 and self.mood == "exit":
            os._exit(3)
        return self.net(images)

def net(num_classes, file):
    return Net(num_classes, Path(file).read_text())
"""


def test_errors_and_dead_workers_are_recorded_charged_and_trained_again(cluster, tmp_path: Path, monkeypatch):
    """Three runs of one search: the model raises, the worker dies, and all is well."""
    monkeypatch.chdir(tmp_path)
    mood = tmp_path / "mood.txt"
    (tmp_path / "own_net.py").write_text(OWN_NET)
    mood.write_text("raise")
    model = f"task.model={{name: 'own_net:net', options: {{file: {mood}}}}}"
    resources = "resources={max_failures: 0, checkpoint_seconds: 0, max_concurrent_trials: 1}"
    small = (
        "task.recipe.batch_size=64",
        "budget={trials: 2}",
        "confirm.enabled=false",
        "stopping.name=none",
        resources,
    )
    experiment = load_experiment("digits", [*SMOKE, model, *small])
    output = tmp_path / "Läufe und mehr"

    with pytest.raises(SearchFailedError, match="all 2 trials failed; the last one: ValueError: expected 3 channels"):
        run_search(experiment, output, address=cluster.address)
    first = load(output)
    assert [(t.status, t.reason) for t in first.trials] == [
        (Status.FAILED, "ValueError: expected 3 channels, got 1")
    ] * 2
    assert all(t.pairs > 4 for t in first.trials), "one epoch and the beginning of another"

    mood.write_text("exit")
    with pytest.raises(SearchFailedError, match="all 2 trials failed"):
        run_search(experiment, output, address=cluster.address)
    second = load(output)
    assert {t.status for t in second.trials} == {Status.LOST}
    assert all("died" in t.reason or "exit" in t.reason for t in second.trials), [t.reason for t in second.trials]
    assert all(t.pairs >= 4 for t in second.trials), "what was reported before the loss"

    mood.write_text("well")
    third = run_search(experiment, output, address=cluster.address)
    assert third.done
    assert {t.status for t in third.trials} == {Status.COMPLETE}
    assert [t.key for t in third.trials] == [t.key for t in first.trials]

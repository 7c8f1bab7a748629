"""The search on real Ray: it finishes, it is deterministic with one worker, it runs shipped experiments."""

from pathlib import Path

import pytest

from rst_tune.analysis.analysis import analyze
from rst_tune.records import Role, Search, Status
from rst_tune.tuning.experiment import load_experiment
from rst_tune.tuning.search import run_search
from tests.tuning.test_experiment import SMOKE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(580)]

SEARCH = (
    "budget={trials: 9}",
    "confirm={min_seeds: 2, max_seeds: 2, candidates: 2}",
    "stopping={name: guarded, min_finished: 3}",
)


def results(search: Search) -> list[tuple]:
    """Return what must be the same bit for bit: not times, not places."""
    names = ("key", "status", "error", "pairs", "test_error", "rungs")
    curves = ("train_loss", "validation_error", "validation_loss")
    return [
        tuple(getattr(t, name) for name in names) + tuple(tuple(t.history[c]) for c in curves) for t in search.trials
    ]


def test_a_search_on_ray_finishes_and_the_same_seed_gives_the_same_bits(tmp_path: Path):
    experiment = load_experiment("digits", [*SMOKE, *SEARCH, "resources.max_concurrent_trials=1"])
    first = run_search(experiment, tmp_path / "first")
    second = run_search(experiment, tmp_path / "second")
    assert first.done
    assert {t.role for t in first.trials} == set(Role)
    assert all(t.test_error is not None for t in first.trials if t.role is Role.CONFIRM)
    assert analyze(first).points
    assert results(first) == results(second)
    again = run_search(experiment, tmp_path / "first")
    assert results(again) == results(first)


@pytest.mark.parametrize("name", ["paper/trigonometric", "paper/efficient_esam"])
def test_a_table_of_the_paper_runs_on_ray_at_smoke_size(name: str, tmp_path: Path):
    experiment = load_experiment(name, [*SMOKE, "seeds=2"])
    search = run_search(experiment, tmp_path)
    assert search.done
    assert {t.status for t in search.trials} == {Status.COMPLETE}
    assert len(search.trials) == 2 * (experiment.budget.trials or 0)
    assert all(t.finished for t in search.trials)

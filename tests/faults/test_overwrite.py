"""`--overwrite` moves the files of an earlier search aside; killed anywhere on the way, nothing of either is lost."""

import os
from pathlib import Path

import pytest

from rst_tune.records import LOG_NAME, load
from rst_tune.tuning import search as searches
from tests.faults.harness import assert_whole, driver, events, run, write_experiment

SMALL = {"budget": {"trials": 2}, "confirm": {"enabled": False}}
# Each move takes a while, so that a kill falls between two of them.
SLOW_MOVES = """
import os, time
replace = os.replace
def slow(source, target):
    replace(source, target)
    time.sleep(0.5 if "previous-" in str(target) else 0)
os.replace = slow
"""


class KilledError(BaseException):
    """Ends the process at once."""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def old_search(folder: Path) -> dict[str, bytes]:
    """Write files of a search, and some of the user's beside them; return the search's."""
    for name in ("checkpoints/a/run.pt", "experiment.yaml", LOG_NAME, "mlflow.db", "models/a.pt", "study.journal"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"old {name}")
    own = contents(folder)
    for name in ("thesis.tex", "data/images.npz", "output.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"my {name}")
    return own


@pytest.mark.parametrize("at", range(8))
def test_killed_at_any_move_the_next_start_completes_it(tmp_path, monkeypatch, at):
    own = old_search(tmp_path)
    mine = {name: data for name, data in contents(tmp_path).items() if name not in own}
    moves = []

    def dying(source, target):
        if len(moves) == at:
            raise KilledError
        moves.append(target)
        return real(source, target)

    real = os.replace
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dying)
        try:
            searches._move_aside(tmp_path)
        except KilledError:
            assert at < 7
    if moves:  # the marker is there: what was begun is completed without being asked again
        assert (tmp_path / searches.OVERWRITE_NAME).exists() or at >= 7
    searches._move_aside(tmp_path)
    (aside,) = tmp_path.glob("previous-*")
    assert contents(aside) == own
    left = {name: data for name, data in contents(tmp_path).items() if not name.startswith("previous-")}
    assert {name: data for name, data in left.items() if not name.startswith(".")} == mine
    assert mine == {name: left[name] for name in mine}


def test_a_directory_without_a_search_is_left_alone(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.pt").write_text("my model")
    before = contents(tmp_path)
    searches._move_aside(tmp_path)
    assert contents(tmp_path) == before


def test_a_driver_killed_during_overwrite_completes_it_and_searches_anew(cluster, tmp_path, long, say):
    output, path = tmp_path / "output", write_experiment(tmp_path, **SMALL)
    run(path, output, cluster.address)
    before = (output / LOG_NAME).read_bytes()
    (output / "notes.txt").write_text("mine")
    times = 3 if long else 1
    for number in range(times):
        with driver(path, output, cluster.address, options=("--overwrite",), before=SLOW_MOVES) as search:
            search.until(lambda n=number: len(list(output.glob("previous-*/*"))) > n, "a file that was moved")
    with driver(path, output, cluster.address) as search:
        assert search.wait() == 0, search.text
    (aside,) = output.glob("previous-*")
    assert (aside / LOG_NAME).read_bytes() == before
    assert load(aside).done
    assert (aside / "report.html").exists()
    assert_whole(output)
    assert events(output)[0]["time"] > events(aside)[-1]["time"], "the search was not started again"
    assert (output / "notes.txt").read_text() == "mine"
    say("the driver, kill -9 during --overwrite", times)


def test_overwrite_with_wrong_input_moves_nothing(cluster, tmp_path):
    output, path = tmp_path / "output", write_experiment(tmp_path, **SMALL)
    own = old_search(output)
    nowhere = "task.data={name: npz, root: /nowhere.npz}"
    with driver(path, output, cluster.address, nowhere, options=("--overwrite",)) as search:
        assert search.wait() == 2, search.text
    assert {name: data for name, data in contents(output).items() if name in own} == own
    assert not list(output.glob("previous-*"))

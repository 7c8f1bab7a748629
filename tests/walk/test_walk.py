"""Off the demo's path: every data source, with a shipped model and with one's own, through every command.

The commands run from a folder that is neither the data's nor the output's, and paths have spaces and umlauts. Trials
run on a real Ray cluster.
"""

import json
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from rst_tune import api, cli
from rst_tune.records import LOG_NAME, Status, load
from tests.faults.harness import assert_whole, events
from tests.walk.sources import SHIPPED, write_model, write_source

CASES = [(source, own) for source in SHIPPED for own in (False, True)]
IDS = [f"{source}-{'own' if own else 'shipped'}" for source, own in CASES]


def call(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["rst-tune", *map(str, words)])
    return cli._invoke()


@pytest.fixture(params=CASES, ids=IDS, scope="module")
def case(request, tmp_path_factory):
    """An experiment's file, beside it data and model: or these two lie in the folder from which commands are called."""
    source, own = request.param
    folder = tmp_path_factory.mktemp("Grüße aus dem Häuschen")
    beside, here = folder / "Versuch eins", folder / "Arbeitsplatz"
    beside.mkdir()
    here.mkdir()
    # What the experiment names lies beside its file for some sources, and in the current folder for the others.
    place = beside if source in ("digits", "folder") else here
    model = {"name": "cnn-tiny"}
    if own:
        model = {"name": write_model(place, f"walk_{source}"), "options": {"channels": SHIPPED[source]}}
    content = {
        "name": "walk",
        "task": {
            "data": write_source(source, place),
            "model": model,
            "recipe": {"base": "digits", "epochs": 2, "batch_size": 8},
        },
        "space": "grst",
        "budget": {"trials": 3},
        "fidelity": {"rungs": 1},
        "confirm": {"enabled": False},
        "resources": {"max_concurrent_trials": 1, "checkpoint_seconds": 0},
        "tracking": {"enabled": False},
    }
    path = beside / "mein versuch.yaml"
    path.write_text(yaml.safe_dump(content))
    return path, here, folder / "Ergebnisse für später"


@contextmanager
def interrupted_after_one_trial(monkeypatch: pytest.MonkeyPatch, output: Path):
    """Raise what Ctrl-C raises, once the first trial has ended."""

    class View:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def update(self, *_):
            if any(event["event"] == "end" for event in events(output)):
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(api, "progress_view", lambda *_, **__: View())
        yield


def test_the_walk(case, address, own_path, monkeypatch, capfd):
    path, here, output = case
    monkeypatch.chdir(here)

    assert call(monkeypatch, "train", path, "--json", "--save", "gewichte.pt") == 0
    assert json.loads(capfd.readouterr().out)["status"] == "complete"
    assert (here / "gewichte.pt").exists()

    assert call(monkeypatch, "plan", path, "--json", "--no-measure") == 0
    assert json.loads(capfd.readouterr().out)["trials_unstopped"] == 3

    with interrupted_after_one_trial(monkeypatch, output):
        assert call(monkeypatch, "run", path, "--output", output, "--address", address) == 130
    assert not load(output).done
    ended = [trial.key for trial in load(output).trials if trial.status.has_ended]

    assert call(monkeypatch, "run", path, "--output", output, "--address", address) == 0
    assert_whole(output)
    search = load(output)
    assert len(search.trials) == 3
    assert {trial.status for trial in search.trials} <= {Status.COMPLETE, Status.STOPPED}
    begun = [event["key"] for event in events(output) if event["event"] == "start"]
    assert [begun.count(key) for key in ended] == [1] * len(ended), "what had ended was trained again"
    assert json.loads((output / "front.json").read_text())
    assert (output / "report.html").exists()
    assert sorted(p.name for p in here.iterdir() if p.name.startswith("output")) == []
    assert (output / LOG_NAME).exists()


def test_a_model_that_cannot_be_imported_is_said_before_anything_starts(own_path, tmp_path, monkeypatch, capfd):
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\ntask: {model: {name: 'no_such_module:net'}}\nspace: grst\nbudget: {trials: 2}\n")
    for words in (["train"], ["plan", "--no-measure"], ["run", "--output", tmp_path / "output"]):
        assert call(monkeypatch, words[0], path, *words[1:]) == 2
        assert "put the module beside the experiment's file" in capfd.readouterr().err
    assert not (tmp_path / "output").exists()


def test_a_model_that_does_not_fit_the_images_is_said_before_anything_starts(own_path, tmp_path, monkeypatch, capfd):
    path, name = tmp_path / "mine.yaml", write_model(tmp_path, "walk_misfit")
    model = {"name": name, "options": {"channels": 5}}
    path.write_text(yaml.safe_dump({"task": {"model": model}, "space": "grst", "budget": {"trials": 2}}))
    assert call(monkeypatch, "run", path, "--output", tmp_path / "output") == 2
    assert "cannot take images of shape" in capfd.readouterr().err
    assert not (tmp_path / "output").exists()

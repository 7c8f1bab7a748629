"""What docs/security.md promises and no other test covers: nothing secret is written, nothing changed is resumed."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from rst_tune import api
from rst_tune.errors import InputError
from rst_tune.records import EventLog
from rst_tune.tuning import search as searches
from tests.walk.sources import write_source
from tests.walk.test_walk import call

SECRETS = ("hunter2%2Fgeheim", "hunter2/geheim", "ausderumgebung", "imspeicher")
EXPERIMENT = {
    "name": "promise",
    "task": {
        "data": {"name": "digits", "validation": 100, "train_size": 64},
        "recipe": {"base": "digits", "epochs": 2, "batch_size": 16},
    },
    "space": "grst",
    "budget": {"trials": 2},
    "fidelity": {"rungs": 1},
    "confirm": {"enabled": False},
}


def write(folder: Path, **changes) -> Path:
    path = folder / "promise.yaml"
    path.write_text(yaml.safe_dump({**EXPERIMENT, **changes}))
    return path


def test_no_password_is_written_anywhere(address, own_path, tmp_path, monkeypatch, capfd):
    """A search whose tracking server has a password and does not answer, with another one in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "ausderumgebung")
    uri = "http://ann:hunter2%2Fgeheim@127.0.0.1:9"
    path = write(tmp_path, description="token=imspeicher", tracking={"enabled": True, "uri": uri})
    output = tmp_path / "output"
    assert call(monkeypatch, "run", path, "--output", output, "--address", address) == 0
    assert call(monkeypatch, "status", output, "--json") == 0
    shown = capfd.readouterr()
    files = [p for p in output.rglob("*") if p.is_file()]
    assert {"events.jsonl", "experiment.yaml", "report.html", "log.txt", "front.json"} <= {p.name for p in files}
    texts = {str(p): p.read_bytes() for p in files} | {"terminal": (shown.out + shown.err).encode()}
    for secret in SECRETS:
        assert [name for name, text in texts.items() if secret.encode() in text] == []


def test_a_password_of_the_storage_is_neither_shown_nor_part_of_the_identity(tmp_path):
    path = write(tmp_path)
    one, two = (
        api.load_experiment(str(path), [f"sampler.storage=postgresql://ann:{word}@db.example/x"])
        for word in ("imspeicher", "geändert")
    )
    assert "imspeicher" not in json.dumps(one.public())
    assert one.search_id == two.search_id == api.load_experiment(str(path)).search_id


def begin(directory: Path, path: Path, *settings: str) -> None:
    """Write the first event of a search, as if it had been killed right after it."""
    experiment = api.load_experiment(str(path), settings)
    log = EventLog(directory)
    log.append(searches._header(experiment, experiment.workload()))
    log.close()


def other_data(folder: Path) -> list[str]:
    root = folder / "Bilder & Töne" / "own.npz"
    arrays = dict(np.load(root))
    arrays["x_train"][0, 0, 0] ^= 1
    np.savez(root, **arrays)
    return []


def other_space(folder: Path) -> list[str]:
    space = folder / "space.py"
    space.write_text(space.read_text() + "# a remark\n")
    return []


CHANGES = {
    "data digest": other_data,
    "space": other_space,
    "resources.workers": lambda _: ["resources.workers=2"],
    "precision": lambda _: ["task.recipe.precision=bf16"],
    "task.recipe.lr": lambda _: ["task.recipe.lr=0.02"],
}


@pytest.mark.parametrize("field", CHANGES)
def test_a_resume_refuses_what_has_changed_and_names_it(field, tmp_path, own_path):
    task = {**EXPERIMENT["task"], "data": {**write_source("npz", tmp_path), "root": "Bilder & Töne/own.npz"}}
    changes = {"task": task}
    if field == "space":
        (tmp_path / "space.py").write_text(
            "def space(trial):\n    return {'family': 'constant', 'extra_propagation': 0.5, 'gamma_rst': 1.0}\n"
        )
        changes |= {"space": "space.py", "sampler": {"name": "random"}}
    path, output = write(tmp_path, **changes), tmp_path / "output"
    begin(output, path)
    before = (output / "events.jsonl").read_bytes()
    settings = CHANGES[field](tmp_path)
    with pytest.raises(InputError, match="holds another search") as raised:
        searches.run_search(api.load_experiment(str(path), settings), output)
    named = {"space": "space.py has changed"}.get(field, f"{field} was ")
    assert named in str(raised.value)
    assert (output / "events.jsonl").read_bytes() == before


@pytest.mark.parametrize("output", ["s3://bucket/x", "gs://bucket/x", "file:///tmp/x"])
def test_an_output_that_is_no_directory_is_refused(output, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "run", write(tmp_path), "--output", output) == 2
    assert f"must be a directory that every node can write to, but got {output.replace('///', '//')}:" in " ".join(
        capfd.readouterr().err.split()
    )
    assert [p.name for p in tmp_path.iterdir()] == ["promise.yaml"]


def test_an_address_of_ray_client_is_refused_with_the_remedy(tmp_path, monkeypatch, capfd):
    words = ["run", write(tmp_path), "--output", tmp_path / "output", "--address", "ray://head:10001"]
    assert call(monkeypatch, *words) == 2
    assert "ray job submit" in capfd.readouterr().err


def test_plan_and_a_name_run_no_code(own_path, tmp_path, monkeypatch):
    """A file may name a factory of a library that runs commands: it is refused before it is imported."""
    for name in ("os:system", "torch.hub:load", "runpy:run_path", "subprocess:run", "pickle:load"):
        path = write(tmp_path, task={"model": {"name": name, "options": {"command": "touch harm"}}})
        assert call(monkeypatch, "plan", path) == 2
    assert not (tmp_path / "harm").exists()

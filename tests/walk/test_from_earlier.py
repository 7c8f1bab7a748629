"""`rst-tune run --from`: a real search that starts from an earlier one, which is gone by the time it is read."""

import json
import shutil

import yaml

from rst_tune.records import load
from tests.tracking.reading import content
from tests.walk.test_promises import write
from tests.walk.test_walk import call


def test_a_search_starts_from_an_earlier_one_and_outlives_it(address, own_path, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    first, second = tmp_path / "first", tmp_path / "second"
    untracked = {"tracking": {"enabled": False}, "budget": {"trials": 4}, "stopping": {"name": "none"}}
    assert call(monkeypatch, "run", write(tmp_path, **untracked), "--output", first, "--address", address) == 0
    finished = len(load(first).finished())
    path = write(tmp_path, name="later", budget={"trials": 3})
    said = f"learnt from promise ({finished} trials)"

    assert call(monkeypatch, "plan", path, "--from", first, "--json", "--no-measure") == 0
    printed = capfd.readouterr()
    assert json.loads(printed.out[printed.out.index("{") :])["prior"] == said
    words = ["run", path, "--output", second, "--address", address]
    assert call(monkeypatch, *words, "--from", first) == 0
    assert f"prior {said}" in capfd.readouterr().err
    shutil.rmtree(first)

    prior = load(second).header.settings.prior
    assert yaml.safe_load((second / "experiment.yaml").read_text())["prior"] == prior.model_dump(mode="json")
    assert call(monkeypatch, *words) == 0, "it is finished: its front is printed"
    assert call(monkeypatch, *words, "--from", first) == 2
    assert "to resume a search that was started from it, leave it out" in " ".join(capfd.readouterr().err.split())
    assert call(monkeypatch, "status", second, "--json") == 0
    assert json.loads(capfd.readouterr().out)["prior"] == said
    assert call(monkeypatch, "report", second) == 0
    assert said in (second / "report.html").read_text()
    params = content(f"sqlite:///{second / 'mlflow.db'}")["search"]["params"]
    assert json.loads(params["prior.mean"]) == list(prior.mean)
    assert json.loads(params["prior.searches"])[0]["uid"] == prior.searches[0].uid

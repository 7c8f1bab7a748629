"""Models of the confirmed front: logged once, loadable, registered with aliases that move."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from rst_tune.errors import InputError
from rst_tune.tracking import log_models, sync
from rst_tune.tracking.client import FOLDER, connect, embedded_uri
from tests.tracking.writing import HEADER, Writer, small_search

torch.set_num_threads(1)


def model_of(key: str) -> torch.nn.Module:
    torch.manual_seed(sum(map(ord, key)))
    return torch.nn.Sequential(torch.nn.Linear(3, 2))


def with_data(writer: Writer, **data: Any) -> Writer:
    writer.events[0] = replace(HEADER, data={**HEADER.data, **data})
    return writer


def test_models_are_logged_once_and_registered(directory: Path, stored, monkeypatch: pytest.MonkeyPatch) -> None:
    sync(small_search().save(directory))
    before = stored(directory)
    loaded: list[str] = []
    logged = log_models(directory, lambda key: (loaded.append(key), model_of(key))[1])
    assert len(logged) == len(loaded) == 3
    assert log_models(directory, model_of, register="digits") == logged, "they are there already"
    assert log_models(directory, model_of, register="digits") == logged
    (directory / FOLDER / "embedded.json").unlink()
    assert log_models(directory, model_of, register="digits") == logged, "a lost note is no second model"
    client = connect(embedded_uri(directory))
    versions = {v.version: v.tags["model_id"] for v in client.search_model_versions("name = 'digits'")}
    assert sorted(versions.values()) == sorted(logged.values())
    aliases = {
        a: versions[client.get_model_version_by_alias("digits", a).version]
        for a in ("cheapest", "most-accurate", "knee")
    }
    assert aliases["cheapest"] == logged[loaded[0]], "the front is in order of cost"
    assert aliases["most-accurate"] == logged[loaded[-1]]
    assert aliases["knee"] in logged.values()
    after = stored(directory)
    note = after["search"]["tags"].pop("mlflow.note.content")
    assert note.startswith(before["search"]["tags"].pop("mlflow.note.content"))
    assert all(f"/models/{model_id})" in note for model_id in logged.values()), "the parent links the models"
    assert after == before, "status, times and metrics of the runs are not touched"
    (experiment,) = {run.info.experiment_id for run in client.search_runs(["1"])}
    (parent,) = client.search_runs([experiment], "tags.role = 'search'")
    outputs = client.get_run(parent.info.run_id).outputs.model_outputs
    assert sorted(output.model_id for output in outputs) == sorted(logged.values())

    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "true")
    mlflow.set_tracking_uri(embedded_uri(directory))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = mlflow.pytorch.load_model(f"models:/{logged[loaded[0]]}")
    assert torch.equal(again[0].weight, model_of(loaded[0])[0].weight)
    requirements = next((directory / "mlartifacts").rglob("requirements.txt")).read_text()
    assert "\ntorch==" in requirements


def test_a_model_has_metrics_a_signature_and_an_example(directory: Path) -> None:
    shape = [1, 8, 8]
    with_data(small_search(), shape=shape, mean=[0.3], std=[0.2]).save(directory)
    layers = (torch.nn.Flatten(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 10))
    logged = log_models(directory, lambda _: torch.nn.Sequential(*layers))
    client = connect(embedded_uri(directory))
    for key, model_id in logged.items():
        model = client.get_logged_model(model_id)
        metrics = {metric.key: metric.value for metric in model.metrics}
        assert {"error", "extra_propagation"} <= set(metrics)
        run = client.get_run(model.source_run_id)
        assert run.data.tags["trial_key"] == key
        assert metrics["error"] == run.data.metrics["error"]
        assert json.loads(model.params["input_mean"]) == [0.3]
        content = yaml.safe_load((Path(model.artifact_location) / "MLmodel").read_text())
        (inputs,) = json.loads(content["signature"]["inputs"])
        (outputs,) = json.loads(content["signature"]["outputs"])
        assert inputs["tensor-spec"] == {"dtype": "float32", "shape": [-1, *shape]}
        assert outputs["tensor-spec"] == {"dtype": "float32", "shape": [-1, 10]}
        assert content["saved_input_example_info"]


def test_only_confirmed_models_are_registered(directory: Path) -> None:
    writer = Writer()
    key = writer.sample(0.5)
    writer.start(key)
    writer.end(key, 4.0)
    with pytest.raises(InputError, match="confirm"):
        log_models(writer.save(directory), model_of, register="digits")

"""Models of the confirmed front: logged once, loadable, registered with aliases that move."""

import warnings
from pathlib import Path

import pytest
import torch

from rst_tune.errors import InputError
from rst_tune.tracking import log_models, sync
from rst_tune.tracking.door import connect, embedded_uri
from tests.tracking.writing import Writer, small_search

torch.set_num_threads(1)


def model_of(key: str) -> torch.nn.Module:
    torch.manual_seed(sum(map(ord, key)))
    return torch.nn.Sequential(torch.nn.Linear(3, 2))


def test_models_are_logged_once_and_registered(directory: Path, stored, monkeypatch: pytest.MonkeyPatch) -> None:
    sync(small_search().save(directory))
    before = stored(directory)
    loaded: list[str] = []
    logged = log_models(directory, lambda key: (loaded.append(key), model_of(key))[1])
    assert len(logged) == len(loaded) == 3
    assert log_models(directory, model_of, register="digits") == logged, "they are there already"
    assert log_models(directory, model_of, register="digits") == logged
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
    assert stored(directory) == before, "status and times of the runs are not touched"

    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "true")
    mlflow.set_tracking_uri(embedded_uri(directory))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = mlflow.pytorch.load_model(f"models:/{logged[loaded[0]]}")
    assert torch.equal(again[0].weight, model_of(loaded[0])[0].weight)
    requirements = next((directory / "mlartifacts").rglob("requirements.txt")).read_text()
    assert "\ntorch==" in requirements


def test_only_confirmed_models_are_registered(directory: Path) -> None:
    writer = Writer()
    key = writer.draw(0.5)
    writer.start(key)
    writer.end(key, 4.0)
    with pytest.raises(InputError, match="confirm"):
        log_models(writer.save(directory), model_of, register="digits")

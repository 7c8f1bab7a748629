"""The run of a search, as it begins: what is searched, with what, on which data."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rst_tune.tracking import names
from rst_tune.tracking.progress import milliseconds
from rst_tune.tracking.secrets import scrub
from rst_tune.tracking.store import Store

__all__ = ["create", "describe"]

Header = Mapping[str, Any]

DIGEST_LENGTH = 36
"""The longest digest MLflow stores."""


def create(store: Store, experiment: str, header: Header) -> str:
    """Create the parent run of a search and return its id."""
    name = str(header.get("name") or "search")
    run_name = f"{name} {str(header['search_id'])[:8]}"
    return store.create(experiment, run_name, milliseconds(header["time"]), _tags(header))


def describe(store: Store, run_id: str, header: Header) -> None:
    """Write what is known from the start: parameters, the resolved files, the data set."""
    clean = scrub(header)
    experiment = clean.get("experiment", {})
    store.write(run_id, params=_params(experiment), tags=_tags(clean))
    for file, content in _files(clean).items():
        store.client.log_text(run_id, yaml.safe_dump(content, sort_keys=False), file)
    if clean.get("data"):
        store.client.log_inputs(run_id, datasets=[_dataset(clean["data"], experiment)])


def _tags(header: Header) -> dict[str, str]:
    tags = {names.SEARCH_ID: str(header["search_id"]), names.ROLE: "search", "mlflow.source.name": "rst-tune"}
    if header.get("commit"):
        tags["mlflow.source.git.commit"] = str(header["commit"])
    return tags


def _params(experiment: Mapping[str, Any]) -> dict[str, str]:
    """Return the top of the experiment as parameters; the whole of it is an artifact.

    >>> _params({"task": {"model": {"name": "cnn"}}, "budget": 3})
    {'task.model': '{"name": "cnn"}', 'budget': '3'}
    """
    flat: dict[str, str] = {}
    for key, value in experiment.items():
        inner = value if isinstance(value, Mapping) else {"": value}
        for name, part in inner.items():
            text = part if isinstance(part, str) else json.dumps(part, default=str)
            flat[f"{key}.{name}".rstrip(".")] = text[:500]
    return flat


def _files(header: Header) -> dict[str, Any]:
    experiment = header.get("experiment", {})
    environment = {k: header[k] for k in ("versions", "devices", "commit", "data") if k in header}
    found = {names.EXPERIMENT_FILE: experiment, names.SPACE_FILE: experiment.get("space") or header.get("space")}
    return {file: content for file, content in {**found, names.ENVIRONMENT_FILE: environment}.items() if content}


def _dataset(data: Mapping[str, Any], experiment: Mapping[str, Any]) -> Any:
    """Return the data set as an input of the run, with the split it was used with."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    spec = experiment.get("task", {}).get("data", {})
    kind, source = _source(spec)
    dataset = Dataset(
        name=str(data.get("name", "data")),
        digest=str(data.get("digest", "unknown"))[:DIGEST_LENGTH],
        source_type=kind,
        source=source,
        profile=json.dumps(data.get("sizes", {})),
    )
    split = {k: spec[k] for k in ("validation", "split_seed", "train_size", "label_noise", "noise_seed") if k in spec}
    tags = {"mlflow.data.context": "training", **{k: str(v) for k, v in split.items()}}
    return DatasetInput(dataset, [InputTag(k, v) for k, v in tags.items()])


def _source(spec: Mapping[str, Any]) -> tuple[str, str]:
    """Return the kind of a source and its JSON: the local folder of the data, else the code that makes them."""
    root = spec.get("root")
    if root:
        return "local", json.dumps({"uri": Path(str(root)).resolve().as_uri()})
    tags = {"mlflow.source.type": "LOCAL", "mlflow.source.name": "rst_tune.training.data:load_dataset"}
    return "code", json.dumps({"tags": {**tags, "data": str(spec.get("name", ""))}})

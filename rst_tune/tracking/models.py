"""The models of the confirmed front in MLflow: logged once each, registered on request."""

import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rst_tune.analysis import pareto
from rst_tune.analysis.analysis import Analysis
from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.errors import InputError
from rst_tune.files import file_lock
from rst_tune.redaction import redact
from rst_tune.tracking import names
from rst_tune.tracking.store import Store
from rst_tune.tracking.syncer import Syncer, SyncState
from rst_tune.tracking.tracker import LOCK_SECONDS

if TYPE_CHECKING:
    import numpy as np
    from mlflow.models import ModelSignature
    from numpy.typing import NDArray
    from torch import nn

METRICS = (names.ERROR, names.TEST_ERROR, names.EXTRA_PROPAGATION)
"""Metrics of the trial's run that are those of the model as well."""


def log_models(
    directory: Path | str,
    load: Callable[[str], "nn.Module"],
    *,
    register: str | None = None,
    uri: str | None = None,
    analysis: Analysis | None = None,
) -> dict[str, str]:
    """Log the models of the confirmed front that are not logged yet, and return trial key to model id.

    Args:
        directory: the directory of the search.
        load: returns the trained torch.nn.Module of a trial key.
        register: name of a registered model, whose versions get the aliases `cheapest`, `most-accurate` and `knee`.
        uri: the store; the default is that of the search.
        analysis: the analysis of the search, if there is one.

    Raises:
        RuntimeError: the store cannot be reached.
        InputError: models are to be registered, but none is confirmed.
    """
    syncer = Syncer(Path(directory), uri)
    result = syncer.run(lock_timeout=LOCK_SECONDS, verify=True, analysis=analysis)
    if result.problem:
        raise RuntimeError(f"no model was logged, because MLflow cannot be reached ({result.problem}): try again later")
    points = syncer.analysis().confirmed
    if not points and register:
        raise InputError(
            "only models of the confirmed front are registered, but no point is confirmed: confirm with more seeds"
        )
    header = syncer.index.state.header
    data = redact(header.data) if header is not None else {}
    with file_lock(syncer.path.with_suffix(".lock"), timeout=LOCK_SECONDS):
        state = SyncState.load(syncer.path)
        store = Store(syncer.uri)
        for point in points:
            key = point.trial_key
            if key not in state.models:
                state.models[key] = _log_model(store, state, point, load(key), data)
                state.save(syncer.path)
        _link_models(store, state.parent, [state.models[point.trial_key] for point in points])
        syncer.describe_front(store, state)
        state.save(syncer.path)
    if register:
        _register(store, register, points, state)
    return {point.trial_key: state.models[point.trial_key] for point in points}


def _log_model(
    store: Store, state: SyncState, point: ConfigSummary, model: "nn.Module", data: Mapping[str, Any]
) -> str:
    """Log one model to the run of its trial, whose status and times stay as they are."""
    from mlflow.entities import LoggedModelStatus, Metric

    run_id = state.runs[point.trial_key]
    for known in store.client.search_logged_models([state.experiment], f"source_run_id = '{run_id}'"):
        if known.status == LoggedModelStatus.READY:  # logged, but the note of it was lost
            return str(known.model_id)
    params = {"compute": str(point.compute), "error_mean": str(point.error_mean)}
    params |= {f"input_{name}": json.dumps(data[name]) for name in ("mean", "std") if name in data}
    created = store.client.create_logged_model(
        experiment_id=state.experiment,
        name=f"model-{point.trial_key}",
        source_run_id=run_id,
        tags={names.TRIAL_KEY: point.trial_key, names.CONFIG_ID: point.config_id},
        params=params,
        model_type="rst_tune",
    )
    model_id = str(created.model_id)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        _save(model, path, run_id, model_id, data.get("shape"))
        store.client.log_model_artifacts(model_id, str(path))
    _link_models(store, run_id, [model_id])
    # The very points of the run, so that the run itself gets no new ones.
    points = [m for name in METRICS for m in store.client.get_metric_history(run_id, name)[-1:]]
    metrics = [Metric(m.key, m.value, m.timestamp, m.step, model_id=model_id) for m in points]
    store.client.log_batch(run_id, metrics)
    store.client.finalize_logged_model(model_id, "READY")
    return model_id


def _link_models(store: Store, run_id: str, models: list[str]) -> None:
    """Make models outputs of a run, except those that are."""
    from mlflow.entities import LoggedModelOutput

    outputs = store.client.get_run(run_id).outputs
    linked = {output.model_id for output in outputs.model_outputs} if outputs else set()
    if new := [LoggedModelOutput(model_id, 0) for model_id in models if model_id not in linked]:
        store.client.log_outputs(run_id, new)


def _save(model: "nn.Module", path: Path, run_id: str, model_id: str, shape: list[int] | None) -> None:
    """Save a model in MLflow's format; with the shape of an image, it has a signature and an input example."""
    import mlflow.pytorch
    from mlflow.models import Model

    model = model.cpu().eval()
    signature, example = _signature(model, shape) if shape else (None, None)
    with warnings.catch_warnings(), _silenced("mlflow.pytorch"):
        warnings.simplefilter("ignore")
        mlflow.pytorch.save_model(
            model,
            path,
            mlflow_model=Model(run_id=run_id, model_id=model_id),
            # Requirements are given, because inferring them loads the model in a second process.
            pip_requirements=_requirements(model),
            serialization_format="pickle",
            signature=signature,
            input_example=example,
        )


def _signature(model: "nn.Module", shape: list[int]) -> tuple["ModelSignature", "NDArray[np.float32]"]:
    """Return the types and shapes of inputs and outputs, and an input example."""
    import numpy as np
    import torch
    from mlflow.models import infer_signature

    example = np.zeros((1, *shape), dtype=np.float32)
    with torch.no_grad():
        output = model(torch.from_numpy(example)).numpy()
    return infer_signature(example, output), example


@contextmanager
def _silenced(name: str) -> Iterator[None]:
    """Keep a logger from warning, for each model, that a pickle must be trusted."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _requirements(model: "nn.Module") -> list[str]:
    """Return torch and the packages that define the model's parts, each with its version."""
    packages = {type(part).__module__.split(".")[0] for part in model.modules()} | {"torch"}
    distributions = packages_distributions()
    found = []
    for package in packages - set(sys.stdlib_module_names):
        name = distributions.get(package, [package])[0]
        try:
            found.append(f"{name}=={version(name).split('+')[0]}")
        except PackageNotFoundError:
            continue
    return sorted(found)


def _register(store: Store, name: str, points: tuple[ConfigSummary, ...], state: SyncState) -> None:
    """Create a version for each model that has none, and set the aliases."""
    from mlflow.exceptions import MlflowException

    client = store.client
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    versions = {v.tags.get(names.MODEL_ID): v.version for v in client.search_model_versions(f"name = '{name}'")}
    for point in points:
        model_id = state.models[point.trial_key]
        if model_id not in versions:
            # For a database, MLflow would look up a models:/ source in its global store.
            remote = store.uri.startswith("http")
            source = f"models:/{model_id}" if remote else client.get_logged_model(model_id).artifact_location
            tags = {names.MODEL_ID: model_id, names.TRIAL_KEY: point.trial_key}
            run_id = state.runs[point.trial_key]
            created = client.create_model_version(name, source, run_id=run_id, tags=tags, model_id=model_id)
            versions[model_id] = created.version
    knee = pareto.knee([(p.error_posterior, p.compute) for p in points])
    aliases = {
        names.CHEAPEST: min(points, key=lambda p: p.compute),
        names.MOST_ACCURATE: min(points, key=lambda p: p.error_posterior),
        names.KNEE: points[knee or 0],
    }
    for alias, point in aliases.items():
        client.set_registered_model_alias(name, alias, versions[state.models[point.trial_key]])

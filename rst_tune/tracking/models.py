"""The models of the confirmed front in MLflow: logged once each, registered on request."""

import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

from rst_tune.analysis import fronts, pareto, records
from rst_tune.analysis.noise import ConfigSummary
from rst_tune.errors import InputError
from rst_tune.tracking import names
from rst_tune.tracking.cursor import Cursor, exclusive
from rst_tune.tracking.delivery import Delivery
from rst_tune.tracking.store import Store

__all__ = ["log_models"]

Loader = Callable[[str], Any]


def log_models(
    directory: Path | str, load: Loader, *, register: str | None = None, uri: str | None = None
) -> dict[str, str]:
    """Log the models of the confirmed front and return key to model id. A model that is there is not sent again.

    `load` returns the trained torch.nn.Module of a trial's key. `register` names a registered model whose versions
    get the aliases `cheapest`, `most-accurate` and `knee`.
    """
    delivery = Delivery(Path(directory), uri)
    done = delivery.run(patience=60.0, check=True)
    if done.problem:
        raise RuntimeError(f"MLflow cannot be reached, so no model was logged ({done.problem}): try again later")
    points = fronts.delivered(records.load(directory)).confirmed
    if not points and register:
        raise InputError("only confirmed models are registered, but the front has none: confirm with more seeds first")
    with exclusive(delivery.path, 60.0):
        cursor = Cursor.load(delivery.path)
        store = Store(delivery.uri)
        for point in points:
            if point.run_id not in cursor.models:
                cursor.models[point.run_id] = _log(store, cursor, point, load(point.run_id))
                cursor.save(delivery.path)
    logged = {point.run_id: cursor.models[point.run_id] for point in points}
    if register:
        _register(store, register, points, cursor)
    return logged


def _log(store: Store, cursor: Cursor, point: ConfigSummary, model: Any) -> str:
    """Log one model to the run of its trial. The run's own status and times stay as they are."""
    from mlflow.entities import LoggedModelOutput

    run_id = cursor.runs[point.run_id]
    made = store.client.create_logged_model(
        experiment_id=cursor.experiment,
        name=f"model-{point.run_id}",
        source_run_id=run_id,
        tags={names.TRIAL_KEY: point.run_id, names.CONFIG_ID: point.config_id},
        params={"extra_propagation": str(point.extra_propagation), "error_mean": str(point.error_mean)},
        model_type="rst_tune",
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        _save(model, path, run_id, made.model_id)
        store.client.log_model_artifacts(made.model_id, str(path))
    store.client.finalize_logged_model(made.model_id, "READY")
    store.client.log_outputs(run_id, [LoggedModelOutput(made.model_id, 0)])
    return str(made.model_id)


def _save(model: Any, path: Path, run_id: str, model_id: str) -> None:
    import mlflow.pytorch
    from mlflow.models import Model

    description = Model(run_id=run_id, model_id=model_id)
    # Requirements are named, because finding them out would load the model in a second process.
    requirements = _requirements(model)
    with warnings.catch_warnings(), _silent("mlflow.pytorch"):
        warnings.simplefilter("ignore")
        mlflow.pytorch.save_model(
            model.cpu().eval(),
            path,
            mlflow_model=description,
            pip_requirements=requirements,
            serialization_format="pickle",
        )


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Keep one logger from repeating, for each model, that a pickle must be trusted."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _requirements(model: Any) -> list[str]:
    """Return torch and the packages that define the model's parts, each with its version."""
    packages = {type(part).__module__.split(".")[0] for part in model.modules()} | {"torch"}
    known = packages_distributions()
    found = {name: known.get(name, [name])[0] for name in packages if name not in sys.stdlib_module_names}
    return sorted(line for name in found.values() if (line := _pinned(name)))


def _pinned(distribution: str) -> str:
    try:
        return f"{distribution}=={version(distribution).split('+')[0]}"
    except PackageNotFoundError:
        return ""


def _register(store: Store, name: str, points: tuple[ConfigSummary, ...], cursor: Cursor) -> None:
    """Make one version of each model and move the aliases. A model that has a version keeps it."""
    from mlflow.exceptions import MlflowException

    try:
        store.client.create_registered_model(name)
    except MlflowException as problem:
        if problem.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    versions = {v.tags.get(names.MODEL_ID): v.version for v in store.client.search_model_versions(f"name = '{name}'")}
    for point in points:
        model_id = cursor.models[point.run_id]
        if model_id not in versions:
            tags = {names.MODEL_ID: model_id, names.TRIAL_KEY: point.run_id}
            made = store.client.create_model_version(
                name, _source(store, model_id), run_id=cursor.runs[point.run_id], tags=tags, model_id=model_id
            )
            versions[model_id] = made.version
    for alias, point in _aliases(points).items():
        store.client.set_registered_model_alias(name, alias, versions[cursor.models[point.run_id]])


def _source(store: Store, model_id: str) -> str:
    """Return where a version has its files. In a database, MLflow would look a model's id up in the global store."""
    if store.uri.startswith("http"):
        return f"models:/{model_id}"
    return str(store.client.get_logged_model(model_id).artifact_location)


def _aliases(points: tuple[ConfigSummary, ...]) -> dict[str, ConfigSummary]:
    knee = pareto.knee([(p.error_expected, p.extra_propagation) for p in points])
    return {
        names.CHEAPEST: min(points, key=lambda p: p.extra_propagation),
        names.MOST_ACCURATE: min(points, key=lambda p: p.error_expected),
        names.KNEE: points[knee or 0],
    }

"""Pure functions from the event log and its analysis to MLflow's parameters, metrics, tags and files."""

import getpass
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rst_tune.analysis import labels
from rst_tune.analysis.analysis import Analysis
from rst_tune.records import (
    EpochsReported,
    Role,
    RungReached,
    SearchStarted,
    Status,
    TestRead,
    Trial,
    TrialEnded,
    TrialStarted,
)
from rst_tune.records.events import TrialEvent
from rst_tune.redaction import redact, redact_text
from rst_tune.tracking import names

RUNNING = "RUNNING"
# MLflow has no status for a trial that a rung stopped; FINISHED is kept for a trial that was trained to its end.
STATUSES = {Status.COMPLETE: "FINISHED", Status.STOPPED: "KILLED"}
ROLES = {Role.SEARCH: "trial", Role.CONFIRM: "confirm"}
DIGEST_LENGTH = 36
"""The longest digest of a data set that MLflow stores."""
SPLIT_SEEDS = ("split_seed", "noise_seed")
PARAM_LENGTH = 500
"""The longest value of a parameter that every MLflow server accepts."""


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value of one metric; `time` in milliseconds."""

    name: str
    value: float
    time: int
    step: int


@dataclass(frozen=True, kw_only=True)
class DatasetRecord:
    """A data set as an input of a run; `tags` describe the split."""

    name: str
    digest: str
    source_type: str
    source: str
    profile: str
    tags: Mapping[str, str]


@dataclass(kw_only=True)
class Batch:
    """What one sync sends to the run of one trial. `dataset` is set when the run is new, `status` when it changed."""

    key: str
    name: str
    start: int
    identity: dict[str, str]
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: list[MetricPoint] = field(default_factory=list)
    dataset: DatasetRecord | None = None
    status: str = ""
    end: int | None = None


@dataclass(frozen=True, kw_only=True)
class SearchRecord:
    """What is known of a search from its first event, without credentials.

    `task_params` go to the children as well; `metric` is the name of the metric.
    """

    search_id: str
    name: str
    start: int
    params: Mapping[str, str]
    task_params: Mapping[str, str]
    tags: Mapping[str, str]
    files: Mapping[str, Any]
    dataset: DatasetRecord | None
    metric: str = ""


def milliseconds(seconds: float) -> int:
    """Return a time in MLflow's unit."""
    return round(seconds * 1000)


def search_record(header: SearchStarted) -> SearchRecord:
    """Return what the first event of a search says."""
    experiment = redact(header.experiment)
    task = experiment.get("task") or {}
    task_params = dict(_flatten(task, names.TASK_PREFIX))
    sections = {name: part for name, part in experiment.items() if name != "task"}
    environment = {name: getattr(header, name) for name in ("versions", "devices", "commit", "data")}
    files = {names.EXPERIMENT_FILE: experiment, names.SPACE_FILE: experiment.get("space")}
    files[names.ENVIRONMENT_FILE] = redact({name: part for name, part in environment.items() if part})
    tags = {names.SEARCH_ID: header.uid, names.ROLE: "search", names.SOURCE: "rst-tune", names.USER: _user()}
    return SearchRecord(
        search_id=header.uid,
        name=redact_text(header.name) or "rst-tune",
        start=milliseconds(header.time),
        params={**task_params, **dict(_flatten(sections, depth=2))},
        task_params=task_params,
        tags={**tags, names.COMMIT: header.commit} if header.commit else tags,
        files={path: content for path, content in files.items() if content},
        dataset=_dataset(redact(header.data), task.get("data") or {}) if header.data else None,
        metric=header.metric.name,
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may have a user without a name
        return "unknown"


def _flatten(value: Any, prefix: str = "", depth: int = 9) -> list[tuple[str, str]]:
    """Return nested values by dotted names; what lies deeper than `depth` is JSON, and None is left out.

    >>> _flatten({"model": {"name": "cnn", "root": None}, "seeds": [1, 2]}, "task")
    [('task.model.name', 'cnn'), ('task.seeds', '[1, 2]')]
    """
    if value is None:
        return []
    if isinstance(value, Mapping) and value and depth:
        pairs = ((f"{prefix}.{key}" if prefix else str(key), part) for key, part in value.items())
        return [pair for name, part in pairs for pair in _flatten(part, name, depth - 1)]
    return [(prefix, _text(value)[:PARAM_LENGTH])]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _dataset(data: Mapping[str, Any], spec: Mapping[str, Any]) -> DatasetRecord:
    """Return the data set with its source: the local folder of the data, else the code that loads them."""
    code = {"mlflow.source.type": "LOCAL", "mlflow.source.name": "rst_tune.training.data:load_dataset"}
    source: dict[str, Any] = {"tags": {**code, "data": str(spec.get("name", ""))}}
    if root := spec.get("root"):
        source = {"uri": Path(str(root)).resolve().as_uri()}
    split = ("validation", "split_seed", "train_size", "label_noise", "noise_seed")
    return DatasetRecord(
        name=str(data.get("name", "data")),
        digest=str(data.get("digest", "unknown"))[:DIGEST_LENGTH],
        source_type="local" if root else "code",
        source=json.dumps(source),
        profile=json.dumps(data.get("sizes", {})),
        tags={"mlflow.data.context": "training", **{name: str(spec[name]) for name in split if name in spec}},
    )


def new_batch(trial: Trial, search: SearchRecord) -> Batch:
    """Return a batch without content: with what is needed to find or create the run of the trial."""
    role = "" if trial.role is Role.SEARCH else " confirm"
    name = f"{trial.number:04d} {trial.config.family} {trial.compute:.3g}x s{trial.seed}{role}"
    identity = {
        names.SEARCH_ID: search.search_id,
        names.TRIAL_KEY: trial.key,
        names.ROLE: ROLES[trial.role],
        names.CONFIG_ID: trial.config_id,
        names.FULL_HORIZON: str(trial.full_horizon).lower(),
        names.USER: search.tags[names.USER],
    }
    start = trial.sampled_at if trial.started_at is None else trial.started_at
    return Batch(key=trial.key, name=redact_text(name), start=milliseconds(start), identity=identity)


def extend_batch(
    batch: Batch, event: TrialEvent, *, trial: Trial, search: SearchRecord, first: bool, epochs: int
) -> None:
    """Add one event of a trial to its batch; a later event replaces the tags of an earlier one.

    `trial` is as at the end of the event log. `first`: this event creates the run of the trial. `epochs`: how many
    epochs of the trial were reported before this event.
    """
    if first:
        batch.params.update(_params(trial), **_split_params(search.task_params, trial))
        batch.metrics.extend(_numbers(trial))
        if search.dataset is not None:
            batch.dataset = replace(search.dataset, tags=_split_params(search.dataset.tags, trial))
    match event:
        case TrialStarted():
            place = {"node": event.node, "worker": event.worker, "ray_trial": event.ray_trial}
            batch.tags.update({name: value for name, value in place.items() if value})
            batch.tags[names.STATUS] = trial.status.value
            if trial.status is Status.RUNNING:
                batch.status, batch.end = RUNNING, None
        case EpochsReported():
            batch.metrics.extend(_epoch_points(event, epochs, search.metric))
        case RungReached():
            batch.metrics.append(_point(names.RUNG_ERROR, event.error, event.time, event.epoch))
        case TrialEnded():
            batch.status, batch.end = STATUSES.get(event.status, "FAILED"), milliseconds(event.time)
            batch.tags |= {names.STATUS: event.status.value, names.REASON: redact_text(event.reason)}
            batch.metrics.extend(_totals(event, trial, epochs))
        case TestRead():
            batch.metrics.append(_point(names.TEST_ERROR, event.error, event.time, trial.epochs))


def _split_params(params: Mapping[str, str], trial: Trial) -> dict[str, str]:
    """Return the parameters or tags of the data of a trial: a replicate has its own split and its own wrong labels."""
    if trial.role is not Role.CONFIRM:
        return dict(params)
    return {k: f"replicate {trial.seed}" if k.rpartition(".")[2] in SPLIT_SEEDS else v for k, v in params.items()}


def _params(trial: Trial) -> dict[str, str]:
    """Return the configuration as parameters: nested parts by dotted names, and the schedule also in one line."""
    config = redact(trial.config.to_dict())
    config[names.SAMPLED_PREFIX] = config.pop("params")
    own = {"schedule": _text(config["schedule"]), names.SEED: str(trial.seed), names.EPOCHS: str(trial.epochs)}
    return {**own, names.COMPUTE: _text(trial.config.compute), **dict(_flatten(config))}


def _numbers(trial: Trial) -> list[MetricPoint]:
    config = trial.config
    found = {
        names.EXTRA_PROPAGATION: trial.extra_propagation,
        names.COMPUTE: config.compute,
        names.GAMMA_GNR: config.gamma_gnr,
        names.GAMMA_RST: config.gamma_rst,
        names.RHO: config.rho,
        names.SEED: trial.seed,
        names.EPOCHS: trial.epochs,
        **{names.SCHEDULE_PREFIX + name: value for name, value in config.schedule.items()},
    }
    return [_point(name, value, trial.sampled_at, 0) for name, value in found.items() if _is_number(value)]


def _epoch_points(event: EpochsReported, reported: int, metric: str) -> list[MetricPoint]:
    """Return the values of the epochs after `reported`: a resumed trial reports its last epochs again."""
    pairs = event.metrics.get(names.PAIRS, [])
    points = []
    for name, column in event.metrics.items():
        for index, value in enumerate(column):
            epoch = event.first_epoch + index
            if epoch <= reported or name == names.EXTRA_PROPAGATION:
                continue
            points.append(_point(name, value, event.time, epoch))
            if name in (*names.BY_PAIRS, metric) and index < len(pairs) and math.isfinite(pairs[index]):
                points.append(_point(name + names.BY_PAIRS_SUFFIX, value, event.time, pairs[index]))
    return points


def _totals(event: TrialEnded, trial: Trial, epochs: int) -> list[MetricPoint]:
    known = {*trial.history, names.EXTRA_PROPAGATION}
    totals = {names.ERROR: event.error, names.PAIRS_SPENT: event.pairs, names.SECONDS_SPENT: event.seconds}
    totals |= {name: value for name, value in event.metrics.items() if name not in known}
    return [_point(name, value, event.time, epochs) for name, value in totals.items() if _is_number(value)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _point(name: str, value: Any, time: float, step: float) -> MetricPoint:
    return MetricPoint(name, math.nan if value is None else float(value), milliseconds(time), int(step))


def front_tags(analysis: Analysis) -> dict[str, dict[str, str]]:
    """Return the tags `front` and, once there are replicates, `p_nondominated` of every trial that ended."""
    search = analysis.search
    tags = {trial.key: {names.FRONT: "false"} for trial in search.trials if trial.status.has_ended}
    groups = search.by_config()
    for row in analysis.summaries:
        own = {names.FRONT: str(row.on_front).lower()}
        if row.p_nondominated is not None:
            own[names.P_NONDOMINATED] = f"{row.p_nondominated:.2f}"
        tags |= {trial.key: own for trial in groups[row.config_id]}
    return tags


def front_description(analysis: Analysis, links: Mapping[str, str]) -> str:
    """Return the description of the search's run: the answer, the front, and the models of the confirmed points.

    `links` maps a trial key to the address of its model.
    """
    parts = [f"{analysis.answer[:1].upper()}{analysis.answer[1:]}."]
    if analysis.points:
        volume = "" if analysis.hypervolume is None else f" and a hypervolume of {analysis.hypervolume:.4g}"
        parts.append(f"The front has {len(analysis.points)} point{'s'[: len(analysis.points) > 1]}{volume}.")
    models = [(labels.describe(p.config), links[p.trial_key]) for p in analysis.confirmed if p.trial_key in links]
    if models:
        parts.append("\n".join(["Models of the confirmed front:", *(f"- [{text}]({link})" for text, link in models)]))
    return redact_text("\n\n".join(parts))

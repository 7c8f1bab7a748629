"""Study, MLflow and front against the event log: all of them must say the same."""

import json
from collections import Counter
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from rst_tune.analysis.analysis import analyze
from rst_tune.records import Role, Status, load
from rst_tune.tuning.study import JOURNAL_NAME

TOLD = {
    Status.COMPLETE: "COMPLETE",
    Status.STOPPED: "PRUNED",
    Status.DIVERGED: "PRUNED",
    Status.OUT_OF_MEMORY: "PRUNED",
    Status.FAILED: "FAIL",
    Status.LOST: "FAIL",
}


def states(output: Path) -> dict[str, list[str]]:
    """Return how each configuration stands in the study, by id; what never reached the event log is under ''."""
    storage = JournalStorage(JournalFileBackend(str(output / JOURNAL_NAME)))
    (study,) = optuna.get_all_study_summaries(storage)
    known = {trial.config_id for trial in load(output).trials}
    found: dict[str, list[str]] = {}
    for trial in optuna.load_study(study_name=study.study_name, storage=storage).trials:
        identity = trial.user_attrs.get("config_id", "")
        found.setdefault(identity if identity in known else "", []).append(trial.state.name)
    return found


def assert_study_agrees(output: Path, at_least: int = 3) -> None:
    found = states(output)
    assert set(found.pop("", ["FAIL"])) == {"FAIL"}, "a proposal that was lost with its driver is still open"
    ended = {trial.config_id: TOLD[trial.status] for trial in load(output).trials if trial.role is Role.SEARCH}
    for identity, told in found.items():
        others = Counter(told)
        others[ended[identity]] -= 1
        assert set(+others) <= {"FAIL"}, f"{identity} ended as {ended[identity]}, the study has {told}"
    assert len(found) >= at_least


def assert_mlflow_agrees(output: Path) -> None:
    from mlflow.tracking import MlflowClient

    from rst_tune.tracking import names
    from rst_tune.tracking.client import embedded_uri

    client = MlflowClient(tracking_uri=embedded_uri(output))
    experiments = [e.experiment_id for e in client.search_experiments() if e.name != "Default"]
    runs = client.search_runs(experiments, max_results=1000)
    keys = [run.data.tags[names.TRIAL_KEY] for run in runs if names.TRIAL_KEY in run.data.tags]
    search = load(output)
    assert Counter(keys) == Counter(trial.key for trial in search.trials), "each trial has one run"
    assert len(runs) == len(keys) + 1, "the search itself has one run"
    errors = {run.data.tags.get(names.TRIAL_KEY): run.data.metrics.get(names.ERROR) for run in runs}
    for trial in search.finished():
        assert errors[trial.key] == trial.error


def assert_front_agrees(output: Path) -> None:
    """The written front is that of the event log, and only trials that were trained to their end are on it."""
    front = json.loads((output / "front.json").read_text())
    assert front == json.loads(json.dumps(analyze(load(output)).rows()))
    finished = {trial.key for trial in load(output).finished()}
    assert {row["trial_key"] for row in front} <= finished

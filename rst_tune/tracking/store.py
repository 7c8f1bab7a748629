"""Requests to one MLflow store. Each may be repeated: a repetition changes nothing.

Many trials are sent in parallel by an upload pool, because most of the time of a long sync is MLflow's own work per
metric. A server handles parallel requests, so there the pool has threads. A database is written by MLflow's client
inside our own process, so there each worker is a process that reads jobs from its input and writes outcomes to its
output, one JSON line each.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import yaml

from rst_tune.redaction import redact, redact_text
from rst_tune.tracking import names
from rst_tune.tracking.client import artifact_root, connect
from rst_tune.tracking.mapping import RUNNING, Batch, DatasetRecord, MetricPoint, SearchRecord

# Limits of one request, set by MLflow. Metrics, parameters and tags together must not exceed the first.
METRICS_PER_REQUEST = 1000
NAMES_PER_REQUEST = 100
PAGE = 1000
PERMANENT_ERRORS = ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST")

MIN_TRIALS_FOR_POOL = 100
"""A smaller sync is faster without processes, which need seconds to import MLflow."""
POOL_SIZE = 4


class PermanentStoreError(RuntimeError):
    """The store rejected a request: repeating it gives the same answer."""


@dataclass(frozen=True)
class UploadJob:
    """A batch, where it belongs, and the run of its trial if that is known."""

    experiment: str
    parent: str
    batch: Batch
    run_id: str | None


@dataclass(frozen=True)
class Outcome:
    """The run of a job's trial, None where there is none yet, and what went wrong, if anything."""

    run_id: str | None
    error: Exception | None = None


class Store:
    """One MLflow store. Any error but `PermanentStoreError` means that it cannot be reached at the moment."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.client = connect(uri)

    def experiment(self, name: str, directory: Path) -> str:
        """Return the id of the experiment, which is created if it is missing."""
        found = self.client.get_experiment_by_name(name)
        if found is not None and found.lifecycle_stage == "deleted":
            raise PermanentStoreError(f"the MLflow experiment {name!r} is deleted: restore it, or choose another name")
        if found is not None:
            return str(found.experiment_id)
        return str(self.client.create_experiment(name, artifact_location=artifact_root(directory, self.uri)))

    def find_runs(self, experiment: str, search_id: str, key: str = "") -> tuple[str, dict[str, str]]:
        """Return the parent run of a search, empty if there is none, and its child runs by trial key.

        With `key` only the run of that trial is looked for.
        """
        wanted = f"tags.{names.SEARCH_ID} = '{search_id}'" + (f" and tags.{names.TRIAL_KEY} = '{key}'" if key else "")
        parent, children = "", {}
        token: str | None = None
        while True:
            page = self._ask(self.client.search_runs, [experiment], wanted, max_results=PAGE, page_token=token)
            for run in page:
                if trial_key := run.data.tags.get(names.TRIAL_KEY):
                    children[trial_key] = run.info.run_id
                elif run.data.tags.get(names.ROLE) == "search":
                    parent = run.info.run_id
            token = page.token
            if not token:
                return parent, children

    def has(self, run_id: str) -> bool:
        """Return whether the run exists and is not deleted."""
        try:
            found = self._ask(self.client.get_run, run_id)
        except PermanentStoreError:
            return False
        return bool(found.info.lifecycle_stage == "active")

    def create(self, experiment: str, name: str, start: int, tags: Mapping[str, str]) -> str:
        """Create a run and return its id."""
        created = self._ask(self.client.create_run, experiment, start_time=start, tags=dict(tags), run_name=name)
        return str(created.info.run_id)

    def describe_parent(self, run_id: str, search: SearchRecord) -> None:
        """Write what is known of a search from its start: parameters, resolved files, data set."""
        self.write(run_id, params=search.params)
        for path, content in search.files.items():
            self.client.log_text(run_id, yaml.safe_dump(content, sort_keys=False), path)
        if search.dataset is not None:
            self.log_dataset(run_id, search.dataset)

    def log_dataset(self, run_id: str, dataset: DatasetRecord) -> None:
        """Make the data set an input of a run."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        content = Dataset(dataset.name, dataset.digest, dataset.source_type, dataset.source, profile=dataset.profile)
        tags = [InputTag(name, value) for name, value in dataset.tags.items()]
        self._ask(self.client.log_inputs, run_id, datasets=[DatasetInput(content, tags)])

    def write(
        self,
        run_id: str,
        *,
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        metrics: Sequence[MetricPoint] = (),
    ) -> None:
        """Write to a run in as few requests as the limits allow: one, for a usual trial.

        Every parameter and tag is redacted here once more, whatever it was made from.
        """
        from mlflow.entities import Metric, Param, RunTag

        columns = (
            ([Metric(p.name, p.value, p.time, p.step) for p in metrics], METRICS_PER_REQUEST - 2 * NAMES_PER_REQUEST),
            ([Param(name, value) for name, value in redact(params or {}).items()], NAMES_PER_REQUEST),
            ([RunTag(name, value) for name, value in redact(tags or {}).items()], NAMES_PER_REQUEST),
        )
        for turn in range(max(-(-len(column) // limit) for column, limit in columns)):
            parts = [column[turn * limit : (turn + 1) * limit] for column, limit in columns]
            self._log_batch(run_id, *parts)

    def _log_batch(self, run_id: str, metrics: list[Any], *names: list[Any]) -> None:
        """Send one request. Before 3.16 MLflow takes a repeated NaN for a new value, and its database rejects it.

        The values that are not a number are then sent one by one, without those that the run has already.
        """
        from mlflow.exceptions import MlflowException

        try:
            self._ask(self.client.log_batch, run_id, metrics, *names)
        except MlflowException as error:
            missing = [metric for metric in metrics if math.isnan(metric.value)]
            if not missing or not _is_duplicate(error):
                raise
            if len(metrics) > 1 or any(names):
                self._ask(self.client.log_batch, run_id, [m for m in metrics if not math.isnan(m.value)], *names)
                for metric in missing:
                    self._log_batch(run_id, [metric])

    def finish(self, run_id: str, status: str, end: int) -> None:
        """Set the status of a run that ended."""
        self._ask(self.client.set_terminated, run_id, status, end)

    def upload(self, job: UploadJob) -> Outcome:
        """Write the batch of one trial to its run, which is created if there is none.

        The status is set even if the store rejects the content, so that no ended trial is shown as running.
        """
        batch, run_id, rejection = job.batch, job.run_id, None
        if run_id is None:
            tags = {**batch.identity, names.PARENT: job.parent, **redact(batch.tags)}
            run_id = self.create(job.experiment, batch.name, batch.start, tags)
        try:
            moved = {names.PARENT: job.parent} if batch.params else {}
            self.write(run_id, params=batch.params, metrics=batch.metrics, tags={**moved, **batch.tags})
            if batch.dataset is not None:
                self.log_dataset(run_id, batch.dataset)
        except PermanentStoreError as error:
            rejection = error
        if batch.end is not None:
            self.finish(run_id, batch.status, batch.end)
        elif batch.status == RUNNING and job.run_id is not None:
            self._ask(self.client.update_run, run_id, status=RUNNING)
        return Outcome(run_id, rejection)

    def try_upload(self, job: UploadJob) -> Outcome:
        """Upload one batch; an error becomes part of the outcome."""
        try:
            return self.upload(job)
        except Exception as error:  # noqa: BLE001 - the sync handles it
            return Outcome(None, error)

    @staticmethod
    def _ask(request: Callable[..., Any], *args: Any, **options: Any) -> Any:
        from mlflow.exceptions import MlflowException

        try:
            return request(*args, **options)
        except MlflowException as error:
            if error.error_code in PERMANENT_ERRORS:
                raise PermanentStoreError(str(error)) from error
            raise


def _is_duplicate(error: Exception) -> bool:
    """Return whether a database rejected a row that it has already: in the words of SQLite, PostgreSQL and MySQL."""
    return any(text in str(error).lower() for text in ("unique constraint", "duplicate"))


@contextmanager
def upload_pool(store: Store, trials: int) -> Iterator[Callable[[list[UploadJob]], list[Outcome]]]:
    """Yield a function that uploads jobs and returns their outcomes in order; `trials` is the expected number."""
    unreachable: list[Exception] = []

    def guarded(worker: Callable[[UploadJob], Outcome], job: UploadJob) -> Outcome:
        # After the first connection error every job is answered with that error, instead of one timeout per job.
        if unreachable:
            return Outcome(None, unreachable[0])
        outcome = worker(job)
        if outcome.error is not None and not isinstance(outcome.error, PermanentStoreError):
            unreachable.append(outcome.error)
        return outcome

    if trials < MIN_TRIALS_FOR_POOL:
        yield lambda jobs: [guarded(store.try_upload, job) for job in jobs]
        return
    free: SimpleQueue[Callable[[UploadJob], Outcome]] = SimpleQueue()

    def upload(job: UploadJob) -> Outcome:
        worker = free.get()
        try:
            return guarded(worker, job)
        finally:
            free.put(worker)

    with ExitStack() as stack:
        remote = store.uri.startswith("http")
        for _ in range(POOL_SIZE if remote else min(POOL_SIZE, os.cpu_count() or 1)):
            free.put(store.try_upload if remote else stack.enter_context(_worker_process(store.uri)))
        threads = stack.enter_context(ThreadPoolExecutor(POOL_SIZE))
        yield lambda jobs: list(threads.map(upload, jobs))


@contextmanager
def _worker_process(uri: str) -> Iterator[Callable[[UploadJob], Outcome]]:
    """Start an upload process, which ends when its input is closed. The URI is not an argument: those are public."""
    process = subprocess.Popen(  # noqa: S603 - this very module
        [sys.executable, "-c", f"from {__name__} import serve_uploads; serve_uploads()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    jobs, answers = process.stdin, process.stdout

    def upload(job: UploadJob) -> Outcome:
        try:
            print(json.dumps(asdict(job)), file=jobs, flush=True)
            answer = json.loads(answers.readline())
        except (OSError, ValueError) as error:
            return Outcome(None, ConnectionError(f"an upload process ended: {error}"))
        kind = PermanentStoreError if answer["permanent"] else ConnectionError
        return Outcome(answer["run_id"], None if answer["error"] is None else kind(answer["error"]))

    try:
        print(json.dumps(uri), file=jobs, flush=True)
        yield upload
    finally:
        jobs.close()
        process.wait()
        answers.close()


def serve_uploads() -> None:
    """Run an upload process: upload each job of the input until it ends."""
    # Output of libraries must not mix with the answers.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        store = Store(json.loads(sys.stdin.readline()))
        for line in sys.stdin:
            job = json.loads(line)
            batch = job["batch"]
            batch["metrics"] = [MetricPoint(**point) for point in batch["metrics"]]
            batch["dataset"] = DatasetRecord(**batch["dataset"]) if batch["dataset"] else None
            outcome = store.try_upload(UploadJob(**{**job, "batch": Batch(**batch)}))
            text = None if outcome.error is None else redact_text(str(outcome.error))
            permanent = isinstance(outcome.error, PermanentStoreError)
            answer = {"run_id": outcome.run_id, "error": text, "permanent": permanent}
            print(json.dumps(answer), file=answers, flush=True)

"""The few things asked of an MLflow store. Each may be repeated: a repetition changes nothing."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rst_tune.tracking import names
from rst_tune.tracking.door import artifact_root, connect
from rst_tune.tracking.progress import Point
from rst_tune.tracking.projection import Batch

__all__ = ["RefusedError", "Store"]

# Limits of one request, set by MLflow.
METRICS_A_REQUEST = 1000
NAMES_A_REQUEST = 100
PAGE = 1000

REFUSALS = ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST")


class RefusedError(RuntimeError):
    """The store is there and says no: asking again gives the same answer."""


class Store:
    """One MLflow store. Anything else than `RefusedError` means that it cannot be reached now."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.client = connect(uri)

    def experiment(self, name: str, directory: Path) -> str:
        """Return the experiment of that name, created where it is missing."""
        found = self.client.get_experiment_by_name(name)
        if found is not None and found.lifecycle_stage == "deleted":
            raise RefusedError(f"the MLflow experiment {name!r} is deleted: restore it, or choose another name")
        if found is not None:
            return str(found.experiment_id)
        return str(self.client.create_experiment(name, artifact_location=artifact_root(directory, self.uri)))

    def parent(self, experiment: str, search_id: str) -> str | None:
        """Return the run of a search."""
        found = self._find(experiment, {names.SEARCH_ID: search_id, names.ROLE: "search"})
        return next((run.info.run_id for run in found), None)

    def child(self, experiment: str, search_id: str, key: str) -> str | None:
        """Return the run of a trial."""
        found = self._find(experiment, {names.SEARCH_ID: search_id, names.TRIAL_KEY: key})
        return next((run.info.run_id for run in found), None)

    def children(self, experiment: str, search_id: str) -> dict[str, str]:
        """Return the runs of all trials of a search, by key."""
        found = self._find(experiment, {names.SEARCH_ID: search_id})
        pairs = ((run.data.tags.get(names.TRIAL_KEY), run.info.run_id) for run in found)
        return {key: run_id for key, run_id in pairs if key}

    def has(self, run_id: str) -> bool:
        """Whether the run is there, and not deleted."""
        try:
            found = self._ask(self.client.get_run, run_id)
        except RefusedError:
            return False
        return bool(found.info.lifecycle_stage == "active")

    def create(self, experiment: str, name: str, start: int, tags: Mapping[str, str]) -> str:
        """Create a run and return its id."""
        made = self._ask(self.client.create_run, experiment, start_time=start, tags=dict(tags), run_name=name)
        return str(made.info.run_id)

    def write(
        self,
        run_id: str,
        *,
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        metrics: Sequence[Point] = (),
    ) -> None:
        """Write to a run in as few requests as the limits allow: one, for a usual trial."""
        from mlflow.entities import Metric, Param, RunTag

        all_params = [Param(k, v) for k, v in (params or {}).items()]
        all_tags = [RunTag(k, v) for k, v in (tags or {}).items()]
        all_metrics = [Metric(p.name, p.value, p.time, p.step) for p in metrics]
        limits = (METRICS_A_REQUEST - 2 * NAMES_A_REQUEST, NAMES_A_REQUEST, NAMES_A_REQUEST)
        for parts in _rounds((all_metrics, all_params, all_tags), limits):
            self._ask(self.client.log_batch, run_id, *parts)

    def finish(self, run_id: str, status: str, end: int) -> None:
        """Set the status of a run that ended."""
        self._ask(self.client.set_terminated, run_id, status, end)

    def deliver(self, experiment: str, parent: str, batch: Batch, run_id: str | None) -> str:
        """Bring the batch of one trial to its run, which is created when there is none. Return the run's id."""
        tags = {**batch.identity, names.PARENT: parent, **batch.tags}
        if run_id is None:
            run_id = self.create(experiment, batch.name, batch.start, tags)
            self.write(run_id, params=batch.params, metrics=batch.metrics)
        else:
            self.write(run_id, params=batch.params, metrics=batch.metrics, tags=tags if batch.params else batch.tags)
        if batch.end is not None:
            self.finish(run_id, batch.status, batch.end)
        return run_id

    def _find(self, experiment: str, tags: Mapping[str, str]) -> Iterator[Any]:
        wanted = " and ".join(f"tags.{name} = '{value}'" for name, value in tags.items())
        token: str | None = None
        while True:
            page = self._ask(self.client.search_runs, [experiment], wanted, max_results=PAGE, page_token=token)
            yield from page
            token = page.token
            if not token:
                return

    @staticmethod
    def _ask(request: Any, *args: Any, **options: Any) -> Any:
        from mlflow.exceptions import MlflowException

        try:
            return request(*args, **options)
        except MlflowException as problem:
            if problem.error_code in REFUSALS:
                raise RefusedError(str(problem)) from problem
            raise


def _rounds(columns: Sequence[list[Any]], limits: Sequence[int]) -> Iterator[list[list[Any]]]:
    """Cut the columns side by side into pieces within their limits.

    >>> list(_rounds([[1, 2, 3], ["a"]], [2, 5]))
    [[[1, 2], ['a']], [[3], []]]
    """
    turn = 0
    while any(turn * limit < len(column) for column, limit in zip(columns, limits, strict=True)):
        yield [column[turn * limit : (turn + 1) * limit] for column, limit in zip(columns, limits, strict=True)]
        turn += 1

"""Sync while a search runs, in a background thread, and on request."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from rst_tune.analysis.analysis import Analysis
from rst_tune.errors import InputError
from rst_tune.files import BusyError
from rst_tune.records import LOG_NAME
from rst_tune.redaction import redact_text
from rst_tune.tracking.client import quiet, resolve_uri
from rst_tune.tracking.mapping import MetricPoint, milliseconds
from rst_tune.tracking.syncer import Syncer, SyncResult, SyncState, enqueue

log = logging.getLogger(__name__)

INTERVAL = 5.0
"""Seconds between two syncs."""
MAX_RETRY_SECONDS = 60.0
"""Longest pause between two attempts while the store is unreachable."""
CPU_SHARE = 0.02
"""A sync of n seconds of CPU time is followed by a pause of n / CPU_SHARE, or by syncs without the front so long."""
LOCK_SECONDS = 60.0
"""How long a sync on request waits for another process that syncs the same search."""


class Tracker:
    """Syncs a search to MLflow while its event log grows. No error of MLflow reaches the search."""

    def __init__(
        self,
        directory: Path | str,
        uri: str | None = None,
        experiment: str | None = None,
        interval: float = INTERVAL,
        *,
        draw_front: Callable[[Analysis], Path] | None = None,
        system_metrics: bool = False,
    ) -> None:
        """Prepare the sync of a search.

        `draw_front` writes the front as a picture, which becomes an artifact whenever the front changed.
        """
        self.directory = Path(directory)
        self._draw_front = draw_front
        self._wants_system_metrics = system_metrics
        self._system: _SystemMetrics | None = None
        self._target = resolve_uri(self.directory, uri, experiment, remember=True)
        self._interval = interval
        self._closing = threading.Event()
        self._total = SyncResult()
        self._unreachable = False
        self._front_due = 0.0
        self._thread = threading.Thread(target=self._work, name="rst-tune-tracking", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout: float = 60.0) -> SyncResult:
        """Sync a last time, wait at most `timeout` seconds for it, and return what all syncs did."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        if self._thread.is_alive():
            self._warn(f"the last sync takes longer than {timeout:g} s")
        return self._total

    def _work(self) -> None:
        quiet()
        import mlflow.tracking  # noqa: F401 - here, because its seconds are no measure of a sync

        syncer: Syncer | None = None
        pause = 0.0
        last = False
        while not last:
            last = self._closing.wait(pause)
            if syncer is None and (self.directory / LOG_NAME).exists():
                syncer = Syncer(self.directory, self._target.uri, self._target.experiment, self._draw_front)
            pause = self._interval if syncer is None else max(self._sync(syncer, pause), self._interval)

    def _sync(self, syncer: Syncer, pause: float) -> float:
        """Sync once and return the seconds until the next time. The front takes longest, so it is sent less often."""
        begin = time.thread_time()
        with_front = self._closing.is_set() or time.monotonic() >= self._front_due
        try:
            result = syncer.run(with_front=with_front)
            if self._wants_system_metrics and not result.problem:
                self._system = self._system or _SystemMetrics()
                syncer.write_to_parent(self._system.points())
        except BusyError:
            return self._interval
        except Exception as error:  # noqa: BLE001 - a defect of tracking must not end a search
            result = SyncResult(pending=self._total.pending, problem=redact_text(repr(error)))
        total = self._total
        sums = {name: getattr(total, name) + getattr(result, name) for name in ("runs", "metrics", "rejected")}
        self._total = replace(result, **sums)
        if result.problem:
            self._warn(result.problem)
            return min(2 * pause, MAX_RETRY_SECONDS)
        if self._unreachable:
            self._unreachable = False
            log.info("MLflow at %s is reachable again: everything is delivered", redact_text(self._target.uri))
        rest = (time.thread_time() - begin) / CPU_SHARE
        if with_front:
            self._front_due = time.monotonic() + rest
        return self._interval if with_front else rest

    def _warn(self, problem: str) -> None:
        """Log a problem once, until a sync succeeds."""
        if not self._unreachable:
            self._unreachable = True
            log.warning(
                "MLflow at %s does not have everything yet (%s). The event log keeps it: the sync is repeated, and "
                "`rst-tune sync %s` does it by hand",
                redact_text(self._target.uri),
                problem,
                self.directory,
            )


class _SystemMetrics:
    """The load of this machine, as MLflow measures it: CPU, memory, disk, network, and GPUs where there are any."""

    def __init__(self) -> None:
        quiet()
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        # Only its monitors are used: its own thread ends at the first request that fails.
        self._monitor = SystemMetricsMonitor("", tracking_uri="sqlite://")

    def points(self) -> list[MetricPoint]:
        """Return the present load; the step is the time in seconds, so a resumed search continues the curves."""
        self._monitor.collect_metrics()
        values, now = self._monitor.aggregate_metrics(), time.time()
        for monitor in self._monitor.monitors:
            monitor.clear_metrics()
        return [
            MetricPoint(f"system/{name}", float(value), milliseconds(now), int(now)) for name, value in values.items()
        ]


def sync(directory: Path | str, uri: str | None = None, *, analysis: Analysis | None = None) -> SyncResult:
    """Sync everything that is in the event log of a search now.

    Raises:
        BusyError: another process syncs the search.
        InputError: there is no search, or the URI is wrong.
    """
    syncer = Syncer(Path(directory), uri)
    return syncer.run(lock_timeout=LOCK_SECONDS, verify=True, analysis=analysis)


def has_results(analysis: Analysis, uri: str | None = None) -> bool:
    """Return whether events, files and models of a search were sent; the store is not asked."""
    try:
        syncer = Syncer(analysis.search.directory, uri)
    except InputError:
        return False
    syncer.index.read()
    state = SyncState.load(syncer.path)
    models = all(point.trial_key in state.models for point in analysis.confirmed)
    return models and state.up_to_date and syncer.pending(state) == 0


def log_results(
    directory: Path | str, artifacts: Iterable[Path | str], uri: str | None = None, *, analysis: Analysis | None = None
) -> SyncResult:
    """Make files (report, front as CSV and PNG, experiment) artifacts of the search, and sync.

    The files are noted on disk first: if the store is unreachable, a later sync uploads them.
    """
    enqueue(Path(directory), artifacts)
    try:
        result = sync(directory, uri, analysis=analysis)
    except (InputError, BusyError) as error:
        result = SyncResult(pending=1, problem=redact_text(str(error)))
    if result.problem:
        log.warning("MLflow does not have the results yet (%s): `rst-tune sync %s`", result.problem, directory)
    return result

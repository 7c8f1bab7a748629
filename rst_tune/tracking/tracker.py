"""Delivery while a search runs: a background thread that never gets in its way."""

import logging
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from rst_tune.analysis.records import RECORD_NAME
from rst_tune.errors import InputError
from rst_tune.tracking.cursor import BusyError
from rst_tune.tracking.delivery import Delivered, Delivery
from rst_tune.tracking.results import hand_over
from rst_tune.tracking.secrets import scrub_text
from rst_tune.tracking.target import choose

__all__ = ["NullTracker", "Tracker", "TrackerLike", "log_results", "sync"]

log = logging.getLogger(__name__)

INTERVAL = 5.0
"""Seconds between two deliveries."""
LONGEST_PAUSE = 60.0
"""Seconds between two attempts when the store has been away for long."""
SHARE = 20
"""A delivery that took n seconds is followed by at least this many times n of rest."""


class TrackerLike(Protocol):
    """What a search asks of a tracker."""

    def start(self) -> None:
        """Begin."""

    def close(self, timeout: float = 60.0) -> Delivered:
        """Deliver what can be delivered in that time, end, and tell what is left."""


class NullTracker:
    """Tracks nothing, so that nothing else asks whether there is tracking."""

    def start(self) -> None:
        """Do nothing."""

    def close(self, timeout: float = 60.0) -> Delivered:  # noqa: ARG002 - the shape of a tracker
        """Return that nothing was to be done."""
        return Delivered()


class Tracker:
    """Delivers a search to MLflow as its record grows. No problem of MLflow's reaches the search."""

    def __init__(
        self, directory: Path | str, uri: str | None = None, experiment: str | None = None, interval: float = INTERVAL
    ) -> None:
        self.directory = Path(directory)
        self._target = choose(self.directory, uri, experiment, remember=True)
        self._interval = interval
        self._end = threading.Event()
        self._total = Delivered()
        self._away = False
        self._thread = threading.Thread(target=self._work, name="rst-tune-tracking", daemon=True)

    def start(self) -> None:
        """Begin to deliver in the background."""
        self._thread.start()

    def close(self, timeout: float = 60.0) -> Delivered:
        """Deliver what can be delivered in that time, and tell what is left for `sync`."""
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        if self._thread.is_alive():
            self._warn(f"not done within {timeout:g} s")
        return self._total

    def _work(self) -> None:
        delivery: Delivery | None = None
        pause = 0.0
        last = False
        while not last:
            last = self._end.wait(pause)
            if delivery is None and (self.directory / RECORD_NAME).exists():
                delivery = Delivery(self.directory, self._target.uri, self._target.experiment)
            if delivery is not None:
                pause = self._attempt(delivery, pause)
            pause = max(pause, self._interval)

    def _attempt(self, delivery: Delivery, pause: float) -> float:
        """Deliver once and return how long to rest."""
        begun = time.monotonic()
        try:
            done = delivery.run()
        except BusyError:
            return self._interval
        except Exception as problem:  # noqa: BLE001 - a fault in tracking must not end a search
            done = Delivered(left=self._total.left, problem=scrub_text(repr(problem)))
        self._add(done)
        if done.problem:
            self._warn(done.problem)
            return min(max(2 * pause, self._interval), LONGEST_PAUSE)
        if self._away:
            self._away = False
            log.info("MLflow at %s is back: everything was delivered", scrub_text(self._target.uri))
        return max(self._interval, SHARE * (time.monotonic() - begun))

    def _add(self, done: Delivered) -> None:
        total = self._total
        self._total = Delivered(
            runs=total.runs + done.runs,
            metrics=total.metrics + done.metrics,
            refused=total.refused + done.refused,
            left=done.left,
            problem=done.problem,
        )

    def _warn(self, problem: str) -> None:
        if not self._away:
            self._away = True
            log.warning(
                "MLflow at %s was not told everything (%s). The record keeps it: it is tried again, and "
                "`rst-tune sync %s` delivers it by hand",
                scrub_text(self._target.uri),
                problem.splitlines()[0],
                self.directory,
            )


def sync(directory: Path | str, uri: str | None = None, experiment: str | None = None) -> Delivered:
    """Deliver everything that is in the record of a search now."""
    return Delivery(Path(directory), uri, experiment).run(patience=60.0, check=True)


def log_results(
    directory: Path | str, artifacts: Iterable[Path | str], summary: str, uri: str | None = None
) -> Delivered:
    """Hand over the files of a search (report, front, experiment) and its summary, and deliver them.

    They are noted on disk first: if the store is away, `sync` brings them later.
    """
    hand_over(Path(directory), artifacts, summary)
    try:
        done = sync(directory, uri)
    except (InputError, BusyError) as problem:
        done = Delivered(left=1, problem=scrub_text(str(problem)))
    if done.problem:
        log.warning("MLflow does not have the results yet (%s): `rst-tune sync %s`", done.problem, directory)
    return done

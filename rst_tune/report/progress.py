"""Progress of a running search: a live display in a terminal, plain lines elsewhere.

A running search is not analysed at every tick: the progress shows measured numbers and labels them so. The hypervolume
of the delivered front is that of `status_rows` and the page.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rst_tune.analysis import pareto
from rst_tune.records import PERCENT_ERROR, Metric, Phase, Search, Status
from rst_tune.report import formatting
from rst_tune.report.status import PHASES

ACCIDENTS = (Status.STOPPED, Status.DIVERGED, Status.OUT_OF_MEMORY, Status.FAILED, Status.LOST)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The state of a running search, by measured errors.

    `share` is the spent part of the budget (None if unlimited), `eta` the remaining time in seconds.
    """

    phase: Phase
    counts: Mapping[Status, int]
    pairs: float
    measured_hypervolume: float | None
    measured_error: float | None
    metric: Metric = PERCENT_ERROR
    share: float | None = None
    eta: float | None = None

    def parts(self) -> list[str]:
        """Return the numbers as short texts, the first one with the phase and all counts of trials."""
        ended = sum(n for status, n in self.counts.items() if status.has_ended)
        trials = [f"{PHASES[self.phase]}: {ended} trials ended, {self.counts.get(Status.RUNNING, 0)} running"]
        trials += [f"{self.counts[s]} {s}" for s in ACCIDENTS if self.counts.get(s)]
        parts = [", ".join(trials), f"{formatting.number(self.pairs)} pairs"]
        parts += [f"{100 * self.share:.0f} % of the budget"] if self.share is not None else []
        if self.measured_error is not None:
            parts.append(f"measured: best {self.metric.phrase(self.measured_error)}")
        if self.measured_hypervolume is not None:
            parts.append(f"hypervolume {formatting.number(self.measured_hypervolume, 3)}")
        return parts

    def time_left(self) -> str:
        """Return the remaining time as text, empty if unknown."""
        return f"about {formatting.duration(self.eta)} left" if self.eta is not None else ""

    def line(self) -> str:
        """Return the snapshot as one line."""
        return ", ".join(part for part in (*self.parts(), self.time_left()) if part)


def snapshot(search: Search, *, share: float | None = None, eta: float | None = None) -> Snapshot:
    """Return the state of a running search; no surrogate is fitted, so it costs little."""
    points = [(t.error, t.compute) for t in search.finished() if t.error is not None]
    reference = pareto.reference_point(search)
    return Snapshot(
        phase=search.phase,
        counts=Counter(t.status for t in search.trials),
        pairs=search.pairs,
        measured_hypervolume=pareto.hypervolume(points, reference) if points and reference else None,
        measured_error=min((error for error, _ in points), default=None),
        metric=search.metric,
        share=share,
        eta=eta,
    )


class ProgressView:
    """Shows snapshots, at most one per `period` seconds."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet
        self._live: Live | None = None
        self.period = 1.0 if console.is_terminal else 20.0
        self._last = float("-inf")
        self._begun: tuple[float, float] | None = None

    def due(self) -> bool:
        """Return whether the next snapshot is due."""
        return not self._quiet and time.monotonic() - self._last >= self.period

    def update(self, search: Callable[[], Search], spent: float, limit: float) -> None:
        """Show a search if that is due; the time left is estimated by the pace since the first call."""
        if not self.due():
            return
        now = time.monotonic()
        self._begun = self._begun or (now, spent)
        passed, done = now - self._begun[0], spent - self._begun[1]
        finite = 0 < limit < math.inf
        eta = passed * max(limit - spent, 0.0) / done if finite and done > 0 else None
        self.show(snapshot(search(), share=spent / limit if finite else None, eta=eta))

    def show(self, snap: Snapshot) -> None:
        """Show a snapshot."""
        self._last = time.monotonic()
        if self._live is not None:
            self._live.update(_lines(snap), refresh=True)
        elif not self._quiet:
            self._console.print(Text(snap.line()), soft_wrap=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        """Remove the live display."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def _lines(snap: Snapshot) -> Group:
    head, *rest = snap.parts()
    lines: list[RenderableType] = [Text(head, style="bold"), Text(", ".join(rest))]
    if snap.share is not None:
        bar = Table.grid(padding=(0, 2))
        bar.add_row(ProgressBar(total=1.0, completed=min(snap.share, 1.0), width=40), snap.time_left())
        lines.append(bar)
    return Group(*lines)

"""Progress of a running search: a live line in a terminal, calm plain lines elsewhere."""

import time
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from rst_tune.analysis import pareto
from rst_tune.analysis.records import Search
from rst_tune.report import words

__all__ = ["ProgressView", "Snapshot", "snapshot"]

PHASES = {"search": "searching", "confirm": "confirming", "test": "reading the test set", "done": "done"}


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """How a search stands at one moment. `share` is how much of the budget is spent, None where it has no end."""

    phase: str
    counts: dict[str, int]
    pairs: float
    share: float | None
    hypervolume: float | None
    best_error: float | None
    eta: float | None = None

    def line(self) -> str:
        """Return it as one plain line."""
        done = sum(n for status, n in self.counts.items() if status not in ("running", "waiting"))
        parts = [f"{PHASES[self.phase]}: {done} trials ended, {self.counts.get('running', 0)} running"]
        parts += [f"{self.counts[s]} {s}" for s in ("stopped", "diverged", "failed") if self.counts.get(s)]
        parts += [f"{self.pairs:,.0f} pairs"]
        parts += [f"{100 * self.share:.0f} % of the budget"] if self.share is not None else []
        parts += [f"lowest error {self.best_error:.2f} %"] if self.best_error is not None else []
        parts += [f"hypervolume {self.hypervolume:.3f}"] if self.hypervolume is not None else []
        parts += [f"about {words.duration(self.eta)} left"] if self.eta is not None else []
        return ", ".join(parts)


def snapshot(search: Search, *, share: float | None = None, eta: float | None = None) -> Snapshot:
    """Return how a search stands."""
    points = [(t.error, t.extra_propagation) for t in search.finished() if t.error is not None]
    reference = pareto.reference_of(search)
    return Snapshot(
        phase=search.phase,
        counts=dict(Counter(t.status for t in search.trials)),
        pairs=search.pairs,
        share=share,
        hypervolume=pareto.hypervolume(points, reference) if points and reference else None,
        best_error=min((error for error, _ in points), default=None),
        eta=eta,
    )


class ProgressView:
    """Shows snapshots as they come, at most once a `period`."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet
        self._live: Live | None = None
        self.period = 1.0 if console.is_terminal else 20.0
        self._last = 0.0
        self._phase = ""

    def due(self) -> bool:
        """Return whether it is time to show another snapshot."""
        return not self._quiet and time.monotonic() - self._last >= self.period

    def show(self, snap: Snapshot) -> None:
        """Show a snapshot."""
        self._last = time.monotonic()
        if self._live is not None:
            self._live.update(_table(snap), refresh=True)
        elif not self._quiet:
            self._console.print(snap.line(), highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)
            self._live = None


def _table(snap: Snapshot) -> Table:
    table = Table.grid(padding=(0, 2))
    head, *rest = snap.line().split(", ")
    table.add_row(f"[bold]{head}[/bold]", ", ".join(rest[:-1] if snap.eta is not None else rest))
    if snap.share is not None:
        left = f"about {words.duration(snap.eta)} left" if snap.eta is not None else ""
        table.add_row(ProgressBar(total=1.0, completed=min(snap.share, 1.0), width=40), left)
    return table

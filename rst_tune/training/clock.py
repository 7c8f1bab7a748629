"""Seconds per phase of an epoch. On CUDA the device is synchronized only when the clock is read."""

import time
from collections import defaultdict

import torch

from rst_tune.training import metrics

PHASES = ("data", "pass1", "pass2", "step", "evaluation")

_Event = torch.cuda.Event


class Clock:
    """Accumulates seconds per phase: `mark(phase)` adds the time since the last mark to `phase`."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._last = time.perf_counter()

    def start(self) -> None:
        """Start counting now; earlier time belongs to no phase."""
        self._last = time.perf_counter()

    def mark(self, phase: str) -> None:
        """Add the time since the last mark to `phase`."""
        now = time.perf_counter()
        self._seconds[phase] += now - self._last
        self._last = now

    def read(self) -> dict[str, float]:
        """Return the seconds per phase so far."""
        return dict(self._seconds)

    def close_epoch(self, images: int) -> dict[str, float]:
        """Return the timings of an epoch over `images` images and reset the clock."""
        phases = self.read()
        self.load({})
        seconds = {f"seconds_{phase}": phases.get(phase, 0.0) for phase in PHASES}
        total = sum(seconds.values())
        training = total - seconds[metrics.SECONDS_EVALUATION]
        return {metrics.SECONDS: total, **seconds, metrics.IMAGES_PER_SECOND: images / training}

    def load(self, seconds: dict[str, float]) -> None:
        """Continue from the seconds of an earlier process."""
        self._seconds = defaultdict(float, seconds)


class _CudaClock(Clock):
    """Records events on the stream and reads them later, so that `mark` never synchronizes."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device
        self._events: list[tuple[str, _Event]] = []

    def start(self) -> None:
        self.mark("")

    def mark(self, phase: str) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        self._events.append((phase, event))

    def read(self) -> dict[str, float]:
        synchronize(self._device)
        for (_, earlier), (phase, later) in zip(self._events, self._events[1:], strict=False):
            if phase:
                self._seconds[phase] += earlier.elapsed_time(later) / 1000
        self._events.clear()
        self.start()
        return dict(self._seconds)


def synchronize(device: torch.device) -> None:
    """Wait until `device` has finished all work. Call this before reading a wall clock; a no-op on the CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def make_clock(device: torch.device) -> Clock:
    """Return the clock for `device`."""
    return _CudaClock(device) if device.type == "cuda" else Clock()

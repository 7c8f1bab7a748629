"""Several trials delivered at once, for a long record: what takes the time is MLflow's own work on each point.

A server works in parallel when it is asked in parallel, so threads do. A database is written by the library in our
own process, one point after the other, so there each lane is a process (`serve`) that reads batches from its input
and writes the answers to its output, one JSON line each.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from queue import SimpleQueue

from rst_tune.tracking.progress import Point
from rst_tune.tracking.projection import Batch
from rst_tune.tracking.secrets import scrub_text
from rst_tune.tracking.store import RefusedError, Store

__all__ = ["Job", "Outcome", "lanes", "serve"]

Job = tuple[str, str, Batch, str | None]
"""Experiment, parent run, batch, and the trial's run if it is known."""
Outcome = str | Exception
"""The trial's run, or why there is none."""
Deliver = Callable[[Job], Outcome]

WORTH_IT = 100
"""Trials from which on it pays to start processes: each needs seconds to load MLflow."""
MOST = 4


@contextmanager
def lanes(store: Store, trials: int) -> Iterator[Callable[[list[Job]], list[Outcome]]]:
    """Yield a function that delivers jobs and returns their outcomes in order."""
    if trials < WORTH_IT:
        alone = _until_it_fails(lambda job: _here(store, job))
        yield lambda jobs: [alone(job) for job in jobs]
        return
    free: SimpleQueue[Deliver] = SimpleQueue()
    with ExitStack() as stack:
        for _ in range(MOST if store.uri.startswith("http") else min(MOST, os.cpu_count() or 1)):
            free.put(_lane(store, stack))
        pool = stack.enter_context(ThreadPoolExecutor(MOST))
        any_lane = _until_it_fails(lambda job: _borrow(free, job))
        yield lambda jobs: list(pool.map(any_lane, jobs))


def _until_it_fails(deliver: Deliver) -> Deliver:
    """Give a store that went away no further job: each would wait for it in vain."""
    problems: list[Exception] = []

    def guarded(job: Job) -> Outcome:
        outcome = problems[0] if problems else deliver(job)
        if isinstance(outcome, Exception) and not isinstance(outcome, RefusedError):
            problems.append(outcome)
        return outcome

    return guarded


def _lane(store: Store, stack: ExitStack) -> Deliver:
    if store.uri.startswith("http"):
        return lambda job: _here(store, job)
    return stack.enter_context(_process(store.uri))


def _borrow(free: "SimpleQueue[Deliver]", job: Job) -> Outcome:
    lane = free.get()
    try:
        return lane(job)
    finally:
        free.put(lane)


def _here(store: Store, job: Job) -> Outcome:
    try:
        return store.deliver(*job)
    except Exception as problem:  # noqa: BLE001 - an outcome, which the delivery judges
        return problem


@contextmanager
def _process(uri: str) -> Iterator[Deliver]:
    """Start a lane of its own; closing its input ends it. The address goes through the pipe: others see arguments."""
    process = subprocess.Popen(  # noqa: S603 - this very module
        [sys.executable, "-c", f"from {__name__} import serve; serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    writes, reads = process.stdin, process.stdout

    def deliver(job: Job) -> Outcome:
        try:
            print(json.dumps([*job[:2], asdict(job[2]), job[3]]), file=writes, flush=True)
            answer = json.loads(reads.readline())
        except (OSError, ValueError) as problem:
            return ConnectionError(f"a process of the delivery ended: {problem}")
        return _outcome(answer)

    try:
        print(json.dumps(uri), file=writes, flush=True)
        yield deliver
    finally:
        writes.close()
        process.wait()
        reads.close()


def _outcome(answer: dict[str, str]) -> Outcome:
    if "refused" in answer:
        return RefusedError(answer["refused"])
    return ConnectionError(answer["problem"]) if "problem" in answer else answer["run"]


def _answer(outcome: Outcome) -> dict[str, str]:
    if isinstance(outcome, str):
        return {"run": outcome}
    kind = "refused" if isinstance(outcome, RefusedError) else "problem"
    return {kind: scrub_text(str(outcome))}


def serve() -> None:
    """Be a lane: deliver what comes in, until the input ends."""
    # Whatever a library prints must not get between the answers.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        store = Store(json.loads(sys.stdin.readline()))
        for line in sys.stdin:
            experiment, parent, batch, run_id = json.loads(line)
            batch["metrics"] = [Point(**point) for point in batch["metrics"]]
            answer = _answer(_here(store, (experiment, parent, Batch(**batch), run_id)))
            print(json.dumps(answer), file=answers, flush=True)

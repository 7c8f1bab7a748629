"""The trainings of the result page in the order of their worth: an interrupted run has the most important ones."""

import time
from collections.abc import Callable, Sequence
from functools import partial

import claims
import equal_compute
import starting_point
from trainings import OutOfTimeError, Record

__all__ = ["STAGES", "judge_start", "run"]

FEW, MORE = equal_compute.SEEDS
Stage = Callable[[Record], int]
STAGES: dict[str, Stage] = {
    "claims, 8 seeds": partial(claims.train, look=8),
    "equal compute": partial(equal_compute.train, at=[1.0], seeds=FEW),
    "claims, 16 seeds": partial(claims.train, look=16),
    "claims, 32 seeds": partial(claims.train, look=32),
    "equal compute, more seeds": partial(equal_compute.train, at=[1.0], seeds=MORE),
    "curves": partial(equal_compute.train, at=equal_compute.AT, seeds=MORE),
    "claims, 64 seeds": partial(claims.train, look=64),
}


def run(records: Sequence[Record], stages: Sequence[str] = tuple(STAGES)) -> None:
    """Train everything that is missing, stage by stage; the record of a task is kept after each."""
    for stage in stages:
        for record in records:
            begun = time.process_time()
            try:
                count = STAGES[stage](record)
            except OutOfTimeError:
                return
            finally:
                record.keep()
            spent = time.process_time() - begun
            print(f"{time.strftime('%H:%M:%S')} {record.name}, {stage}: {count} trainings, {spent:.0f} s", flush=True)


def judge_start(records: Sequence[Record]) -> None:
    """Train the starting points on the seeds that judge them, for the tasks that have all rules.

    They are few, and the page needs them whenever the training was stopped: they have no time limit.
    """
    usable = {record.name: record for record in records if equal_compute.field(record, 1.0) is not None}
    for record in usable.values():
        record.until = None
    count = starting_point.train(usable) if len(usable) > 2 else 0
    for record in usable.values():
        record.keep()
    print(f"{time.strftime('%H:%M:%S')} starting points: {count} trainings", flush=True)

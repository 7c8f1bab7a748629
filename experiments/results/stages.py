"""The trainings of the result page in the order of their worth: an interrupted run has the most important ones."""

import time
from collections.abc import Sequence

import claims
import equal_compute
import starting_point
from decide import LOOKS
from trainings import OutOfTimeError, Record

__all__ = ["judge_start", "run"]

STAGES = ("claims", "compute", "curves", "more claims", "more seeds")
AFTER = [look for look in LOOKS if look > min(LOOKS)]


def run(records: Sequence[Record], stages: Sequence[str] = STAGES) -> None:
    """Train everything that is missing, stage by stage; the record of a task is kept after each."""
    for stage in stages:
        for record in records:
            begun = time.monotonic()
            try:
                count = _run(record, stage)
            except OutOfTimeError:
                record.keep()
                return
            record.keep()
            print(f"{time.strftime('%H:%M:%S')} {record.name} {stage}: {count} trainings, "
                  f"{time.monotonic() - begun:.0f} s", flush=True)  # fmt: skip


def judge_start(records: Sequence[Record]) -> None:
    """Train the starting points on the seeds that judge them, for the tasks that have all rules."""
    usable = {record.name: record for record in records if equal_compute.field(record, 1.0) is not None}
    try:
        count = starting_point.train(usable) if len(usable) > 2 else 0
    except OutOfTimeError:
        count = 0
    for record in usable.values():
        record.keep()
    print(f"{time.strftime('%H:%M:%S')} starting points: {count} trainings", flush=True)


def _run(record: Record, stage: str) -> int:
    match stage:
        case "claims":
            return claims.train(record, min(LOOKS))
        case "compute":
            return equal_compute.train(record, [1.0], equal_compute.SEEDS[0])
        case "curves":
            return equal_compute.train(record, equal_compute.AT, equal_compute.SEEDS[0])
        case "more claims":
            return sum(claims.train(record, look) for look in AFTER)
    return equal_compute.train(record, equal_compute.AT, equal_compute.SEEDS[1])

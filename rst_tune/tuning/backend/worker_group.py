"""Several workers on one trial: rank 0 is the trial's own actor, the others are plain actors beside it.

All of them run the same task on shares of every batch. The others occupy the further bundles of the trial's placement
group and are kept from one task to the next. If one fails the whole group ends, and the next task, or the next attempt
at this one, gets a new group.
"""

import os
import threading
from datetime import timedelta
from typing import Any

import ray
import torch
import torch.distributed as dist
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from torch._C._distributed_c10d import TCPStore

from rst_tune.records import Status
from rst_tune.tuning.backend.protocol import TestReport, TrialReport, TrialTask
from rst_tune.tuning.backend.runner import TrialContext, TrialRunner

Report = TrialReport | TestReport

# How long a collective call waits for a worker that died without closing its connection.
_TIMEOUT = timedelta(minutes=10)
_SECONDS_TO_DELIVER = 1.0


def current_group(context: Any) -> "WorkerGroup | None":
    """Return the group of the trial this actor belongs to, or None where the trial has one worker."""
    placement = ray.util.get_current_placement_group()
    return WorkerGroup(placement, context) if placement is not None and placement.bundle_count > 1 else None


def _join(store: TCPStore, rank: int, bundles: list[dict[str, float]]) -> None:
    # NCCL needs a GPU of its own for every worker.
    backend = "nccl" if torch.cuda.is_available() and bundles[rank].get("GPU", 0.0) >= 1 else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=len(bundles), timeout=_TIMEOUT)


class RankActor:
    """A worker of rank 1 or above."""

    def __init__(self, context: TrialContext, host: str, port: int, rank: int, bundles: list[dict[str, float]]) -> None:
        self._context = context
        self._runner: TrialRunner | None = None
        _join(TCPStore(host, port, len(bundles), is_master=False, timeout=_TIMEOUT), rank, bundles)

    def begin(self, task: TrialTask) -> None:
        """Prepare for the next task."""
        self._runner = TrialRunner(task, self._context)

    def advance(self) -> Report:
        """Do this worker's share of a slice. After a failure the process ends: the other ranks wait for it."""
        assert self._runner is not None
        report = self._runner.advance()
        if _has_failed(report):
            threading.Timer(_SECONDS_TO_DELIVER, os._exit, (1,)).start()
        return report


def _has_failed(report: Report) -> bool:
    return isinstance(report, TrialReport) and report.status in (Status.FAILED, Status.OUT_OF_MEMORY)


class WorkerGroup:
    """The workers of one trial, driven by rank 0."""

    def __init__(self, placement: PlacementGroup, context: Any) -> None:
        self._placement, self._context = placement, context
        self._members: list[Any] = []
        self._task: TrialTask | None = None

    def reset(self) -> None:
        """Forget the task before: the workers prepare for another one at the next slice."""
        self._task = None

    def advance(self, runner: TrialRunner) -> Report:
        """Do one slice together and return rank 0's report, or that of another rank that failed."""
        if not self._members:
            self._start()
        if self._task is not runner.task:
            ray.get([member.begin.remote(runner.task) for member in self._members])
            self._task = runner.task
        others = [member.advance.remote() for member in self._members]
        try:
            report = runner.advance()
        except Exception:
            failure = _failure(others)
            self.close()
            if failure is None:
                raise
            return failure
        if _has_failed(report):
            cause = _failure(others)
            self.close()
            return cause or report
        ray.get(others)
        return report

    def _start(self) -> None:
        bundles = self._placement.bundle_specs
        host = ray.util.get_node_ip_address()
        store = TCPStore(host, 0, len(bundles), is_master=True, wait_for_workers=False, timeout=_TIMEOUT)
        for rank in range(1, len(bundles)):
            place = PlacementGroupSchedulingStrategy(self._placement, placement_group_bundle_index=rank)
            actor = ray.remote(RankActor).options(
                num_cpus=bundles[rank].get("CPU", 0), num_gpus=bundles[rank].get("GPU", 0), scheduling_strategy=place
            )
            self._members.append(actor.remote(self._context, host, store.port, rank, bundles))
        _join(store, 0, bundles)

    def close(self) -> None:
        """End the other workers and the process group."""
        for member in self._members:
            ray.kill(member)
        self._members, self._task = [], None
        if dist.is_initialized():
            dist.destroy_process_group()


def _failure(others: list[Any]) -> Report | None:
    """Return the report of another rank that says why it failed, if there is one."""
    ready, _ = ray.wait(others, num_returns=len(others), timeout=5 * _SECONDS_TO_DELIVER)
    for reference in ready:
        try:
            report: Report = ray.get(reference)
        except ray.exceptions.RayError:
            continue
        if _has_failed(report):
            return report
    return None

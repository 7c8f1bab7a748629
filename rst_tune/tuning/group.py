"""Several workers on one trial: rank 0 is the trial's own actor, the others are plain actors beside it.

All of them run the same job on shares of every batch. The others live in the further bundles of the trial's
placement group and are kept from one plan to the next; one that fails takes the whole group with it, and the next
plan, or the next attempt at this one, gets a new group.
"""

import os
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import ray
import torch
import torch.distributed as dist
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from torch._C._distributed_c10d import TCPStore

from rst_tune.tuning.job import Job, Shop

__all__ = ["Group", "current_group"]

# How long a collective call may wait for a worker that is gone without closing its connection.
_PATIENCE = timedelta(minutes=10)
_SECONDS_TO_DELIVER = 1.0


def current_group(shop: Any) -> "Group | None":
    """Return the group of the trial this actor belongs to, or None where the trial has one worker."""
    placement = ray.util.get_current_placement_group()
    return Group(placement, shop) if placement is not None and placement.bundle_count > 1 else None


def _backend(bundle: Mapping[str, float]) -> str:
    """Return `nccl` where every worker has a GPU of its own, which NCCL needs."""
    return "nccl" if torch.cuda.is_available() and bundle.get("GPU", 0.0) >= 1 else "gloo"


def _join(store: TCPStore, rank: int, bundles: list[dict[str, float]]) -> None:
    backend = _backend(bundles[rank])
    dist.init_process_group(backend, store=store, rank=rank, world_size=len(bundles), timeout=_PATIENCE)


class _Member:
    """A worker of rank 1 or above."""

    def __init__(self, shop: Shop, host: str, port: int, rank: int, bundles: list[dict[str, float]]) -> None:
        self._shop = shop
        self._job: Job | None = None
        _join(TCPStore(host, port, len(bundles), is_master=False, timeout=_PATIENCE), rank, bundles)

    def begin(self, plan: Mapping[str, Any]) -> None:
        """Make ready for the next plan."""
        self._job = Job(plan, self._shop)

    def advance(self) -> dict[str, Any]:
        """Do this worker's share of a slice. After a failure the process ends, which frees whoever waits for it."""
        assert self._job is not None
        result = self._job.advance()
        if result["status"] == "failed":
            threading.Timer(_SECONDS_TO_DELIVER, os._exit, (1,)).start()
        return result


class Group:
    """The workers of one trial, seen from rank 0."""

    def __init__(self, placement: PlacementGroup, shop: Any) -> None:
        self._placement, self._shop = placement, shop
        self._members: list[Any] = []
        self._begun: Mapping[str, Any] | None = None

    def begin(self) -> None:
        """Forget the plan before: its workers make ready for another one at the next slice."""
        self._begun = None

    def advance(self, job: Job) -> dict[str, Any]:
        """Do one slice of the job together and return what rank 0 knows of it, or how another rank failed."""
        self._assemble(job.plan)
        others = [member.advance.remote() for member in self._members]
        try:
            result = job.advance()
        except Exception:
            told = _failure(others)
            self.close()
            if told is None:
                raise
            return told
        if result["status"] == "failed":
            self.close()
        else:
            ray.get(others)
        return result

    def _assemble(self, plan: Mapping[str, Any]) -> None:
        if not self._members:
            self._start()
        if self._begun is not plan:
            ray.get([member.begin.remote(plan) for member in self._members])
            self._begun = plan

    def _start(self) -> None:
        bundles = self._placement.bundle_specs
        host = ray.util.get_node_ip_address()
        store = TCPStore(host, 0, len(bundles), is_master=True, wait_for_workers=False, timeout=_PATIENCE)
        for rank in range(1, len(bundles)):
            place = PlacementGroupSchedulingStrategy(self._placement, placement_group_bundle_index=rank)
            actor = ray.remote(_Member).options(
                num_cpus=bundles[rank].get("CPU", 0), num_gpus=bundles[rank].get("GPU", 0), scheduling_strategy=place
            )
            self._members.append(actor.remote(self._shop, host, store.port, rank, bundles))
        _join(store, 0, bundles)

    def close(self) -> None:
        """End the other workers and the process group."""
        for member in self._members:
            ray.kill(member)
        self._members, self._begun = [], None
        if dist.is_initialized():
            dist.destroy_process_group()


def _failure(others: list[Any]) -> dict[str, Any] | None:
    """Return the result of a worker that says why it failed, if there is one."""
    ready, _ = ray.wait(others, num_returns=len(others), timeout=5 * _SECONDS_TO_DELIVER)
    for reference in ready:
        try:
            result: dict[str, Any] = ray.get(reference)
        except ray.exceptions.RayError:
            continue
        if result["status"] == "failed":
            return result
    return None

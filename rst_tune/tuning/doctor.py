"""What is wrong before anything is spent: checks from the driver and from a worker on every node."""

import os

from rst_tune.tuning.experiment import Resources

__all__ = ["slots_of"]


def slots_of(resources: Resources, address: str | None) -> int:
    """Return how many trials fit at a time: on the cluster at `address`, or on this machine."""
    if address is None and "RAY_ADDRESS" not in os.environ:
        return max(1, int((os.cpu_count() or 1) / resources.cpu / resources.workers))
    import tempfile
    from pathlib import Path

    from rst_tune.tuning.cluster import connected

    with tempfile.TemporaryDirectory() as folder, connected(address, log=Path(folder) / "log.txt"):
        from rst_tune.tuning.engine import cluster_slots

        return cluster_slots(resources)

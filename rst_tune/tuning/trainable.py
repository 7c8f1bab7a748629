"""The Ray Tune trainable: a long-lived worker that takes one plan after another."""

import faulthandler
import json
import os
import socket
from typing import Any, TextIO

import ray
from ray import tune

from rst_tune.tuning.group import current_group
from rst_tune.tuning.job import Job, Shop

__all__ = ["RstTrainable"]


class RstTrainable(tune.Trainable):  # type: ignore[misc]  # Ray is untyped
    """Trains what the plan in its config says. Actors are reused, so nothing of one plan may reach the next."""

    def setup(self, config: dict[str, Any], shop: list[Any]) -> None:
        """Begin with the first plan. `shop` holds a reference to the Shop, which lies once in a node's memory."""
        self._shop: Shop = ray.get(shop[0])
        self._group = current_group(shop[0])
        self._watch: TextIO | None = None
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin with the next plan. Whatever is wrong with it shows in `step`: a failing reset would hang Tune."""
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        self._unwatch()
        self._job = Job(json.loads(config["plan"]), self._shop)
        if self._group is not None:
            self._group.begin()
        self._announced = False

    def step(self) -> dict[str, Any]:
        """Say first who took the plan, then do a slice of it at a time."""
        if not self._announced:
            self._announced = True
            return {"key": self._job.plan["key"], "status": "taken", "node": _node(), "worker": str(os.getpid())}
        if self._job.hung():
            return self._ended(self._job.out_of_time())
        self._watch_over()
        result = self._job.advance() if self._group is None else self._group.advance(self._job)
        return result if result["status"] == "running" else self._ended(result)

    def _ended(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the last result, without `done`: that would end the trial before the scheduler has seen it."""
        self._unwatch()
        return result

    def _watch_over(self) -> None:
        """End this process when the plan exceeds its time limit, even inside native code that holds the GIL."""
        if self._shop.time_limit is None or self._watch is not None:
            return
        self._job.hang_file.parent.mkdir(parents=True, exist_ok=True)
        self._watch = self._job.hang_file.open("w")
        faulthandler.dump_traceback_later(self._shop.time_limit, exit=True, file=self._watch)

    def _unwatch(self) -> None:
        if getattr(self, "_watch", None) is not None:
            faulthandler.cancel_dump_traceback_later()
            self._watch.close()  # type: ignore[union-attr]
            self._watch = None

    def cleanup(self) -> None:
        """Leave nothing armed or running behind."""
        self._unwatch()
        if self._group is not None:
            self._group.close()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Tune keeps no checkpoint: ours lie under the trial's key."""

    def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
        """Tune restores nothing: the job finds its own checkpoint."""


def _node() -> str:
    return f"{socket.gethostname()}/{ray.get_runtime_context().get_node_id()[:8]}"

"""What one trial gets of a cluster."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rst_tune.records import devices_per_trial

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class Resources(BaseModel):
    """What one worker gets, and how many workers a trial has: more than one trains data-parallel.

    `max_concurrent_trials` bounds the trials at a time; None: as many as the cluster holds. A trial whose worker or
    node dies is started again up to `max_failures` times. `wait_for_nodes_minutes` is how long a search waits for a
    cluster that has no room yet, because its autoscaler still has to add nodes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    cpus_per_worker: Positive = 1.0
    gpus_per_worker: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    workers: Count = 1
    max_concurrent_trials: Count | None = None
    max_failures: Annotated[int, Field(ge=0)] = 2
    time_limit_minutes: Positive | None = None
    wait_for_nodes_minutes: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    checkpoint_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 10.0

    @model_validator(mode="after")
    def _one_gpu_per_worker(self) -> Self:
        if self.gpus_per_worker > 1:
            raise ValueError(
                f"gpus_per_worker: a worker trains on one GPU or a fraction of one, but got {self.gpus_per_worker:g}: "
                "for several GPUs per trial set gpus_per_worker: 1 and workers: to their number"
            )
        return self

    @property
    def devices(self) -> float:
        """How many devices one trial occupies."""
        return devices_per_trial(self.gpus_per_worker, self.workers)

    @property
    def threads(self) -> int:
        """How many threads a worker computes with."""
        return max(1, int(self.cpus_per_worker))

    def __str__(self) -> str:
        one = f"{self.cpus_per_worker:g} CPU" + (f" and {self.gpus_per_worker:g} GPU" if self.gpus_per_worker else "")
        return one if self.workers == 1 else f"{self.workers} workers of {one} each"

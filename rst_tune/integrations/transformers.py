"""Hugging Face Trainer: RST around the optimizer of its TrainingArguments, exact with gradient accumulation."""

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rst_tune.errors import InputError
from rst_tune.method.optimizer import RST

try:
    from transformers import Trainer
except ImportError as error:
    raise ImportError("transformers is not installed: pip install 'rst_tune[transformers]'") from error

__all__ = ["RSTTrainer", "RSTTrainerMixin"]

_Base: Any = object  # in use a Trainer is behind the mixin


class RSTTrainerMixin(_Base):  # type: ignore[misc]
    """Adds RST to a Trainer: `class MyTrainer(RSTTrainerMixin, Seq2SeqTrainer)`.

    The base optimizer is the Trainer's own, or that of its argument `optimizers`. All passes of an update are taken in
    the `training_step` of its last micro-batch; the Trainer then clips the mixed gradient and calls `step()`. The
    Trainer's checkpoints contain the state of the RST.

    Args:
        rst: the settings of RST, such as {"schedule": schedules.constant(0.5), "rho": 0.05}. total_steps is the
            number of updates of the training, unless it is among them.
        args, kwargs: the arguments of the Trainer.
    """

    optimizer: Any

    def __init__(self, *args: Any, rst: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rst_settings = dict(rst)
        self._micro_batches: list[Any] = []
        if isinstance(self.optimizer, RST):
            raise InputError("optimizers must hold the base optimizer, but got an RST: pass its settings as rst={...}")
        unsupported = {
            "fp16": self.args.fp16,
            "FSDP": self.is_fsdp_enabled,
            "DeepSpeed": self.is_deepspeed_enabled,
        }
        for name, used in unsupported.items():
            if used:
                raise InputError(
                    f"RST needs whole, unscaled gradients in .grad between its passes, but the TrainingArguments use "
                    f"{name}: use bf16, and one device or DDP"
                )

    @property
    def rst(self) -> RST:
        """The RST of the current training, with its counters t, pairs and ascents."""
        opt = getattr(self.optimizer, "optimizer", self.optimizer)  # accelerate wraps it
        if not isinstance(opt, RST):
            raise InputError("there is no RST before train() was called")
        return opt

    def create_optimizer(self, model: nn.Module | None = None) -> RST:
        """Return a new RST around the base optimizer."""
        current = getattr(self.optimizer, "optimizer", self.optimizer)
        if isinstance(current, RST):  # of an earlier train()
            self.optimizer = current.base
        base = super().create_optimizer(model)
        settings = {"total_steps": self.state.max_steps, **self.rst_settings}
        opt = self.optimizer = RST(base, self.model if model is None else model, **settings)
        return opt

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Keep a micro-batch; at the last one of an update take all passes and return the loss of the update."""
        self._micro_batches.append(partial(super().training_step, model, inputs, num_items_in_batch))
        if not self.accelerator.sync_gradients:
            return torch.zeros((), device=self.args.device)
        # An epoch that a callback stopped inside an update leaves micro-batches behind.
        micro_batches = self._micro_batches[-self.current_gradient_accumulation_steps :]
        self._micro_batches = []

        def closure() -> Tensor:
            self.rst.zero_grad()
            losses = []
            for backward in micro_batches:
                last = backward is micro_batches[-1]
                with nullcontext() if last else self.accelerator.no_sync(model):
                    losses.append(backward())
            return torch.stack(losses).sum()

        return self.rst.propagate(closure)


class RSTTrainer(RSTTrainerMixin, Trainer):  # type: ignore[misc]
    """A Trainer with RST: `RSTTrainer(model, args, train_dataset=data, rst={"schedule": schedule, "rho": 0.05})`."""

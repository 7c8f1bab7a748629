"""Lightning: an RST for `configure_optimizers`, exact with gradient clipping, accumulation, bf16 and checkpoints; and
a callback that makes a Trainer the training of a search.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from rst_tune.errors import InputError
from rst_tune.method.ascent.rule import Closure, PerSample
from rst_tune.method.memory import RngState
from rst_tune.method.optimizer import RST
from rst_tune.method.schedules import Schedule

if TYPE_CHECKING:
    from rst_tune.training.function_run import FunctionTrial  # needs the packages of a search, which may be missing

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise ImportError("Lightning is not installed: pip install 'rst_tune[lightning]'") from error

__all__ = ["LightningRST", "TrialCallback"]


class LightningRST(RST):
    """An RST that `configure_optimizers` of a LightningModule returns.

    With automatic optimization Lightning takes the first pass of each part of a batch. Before Lightning clips the
    gradient, the second pass repeats `training_step` for these parts with the same random numbers, and the mixed
    gradient is what Lightning clips and what `on_before_optimizer_step` of the module receives. Nothing is logged in a
    second pass; a metric object that `training_step` updates counts it, though. With manual optimization it is a plain
    RST: `self.optimizers().step(lambda: loss)`.

    Args:
        base: any torch optimizer of the module's parameters.
        module: the LightningModule, attached to its Trainer, as it is inside `configure_optimizers`.
        schedule: p(t), from `rst_tune.schedules`.
        rho: the radius of the ascent.
        total_steps: T; None is `trainer.estimated_stepping_batches`.
        settings: other arguments of RST.
    """

    def __init__(
        self,
        base: Optimizer,
        module: LightningModule,
        *,
        schedule: Schedule,
        rho: float,
        total_steps: int | None = None,
        **settings: Any,
    ) -> None:
        trainer = module.trainer
        _check_trainer(trainer)
        total_steps = _estimated_steps(trainer) if total_steps is None else total_steps
        super().__init__(base, module, schedule=schedule, rho=rho, total_steps=total_steps, **settings)
        if self.rule.passes_ahead and trainer.accumulate_grad_batches > 1 and module.automatic_optimization:
            raise InputError(
                f"accumulate_grad_batches = 1 must hold for rule {self.rule.name!r}, whose only pass is at w + eps, "
                f"but it is {trainer.accumulate_grad_batches}: use manual optimization or another rule"
            )
        self._module = module
        others = [each for each in trainer.callbacks if not isinstance(each, _SecondPass)]
        trainer.callbacks[:] = [*others, _SecondPass(self)]

    def propagate(
        self,
        closure: Closure | Sequence[Closure] | None,
        per_sample: PerSample | Sequence[PerSample] | None = None,
    ) -> Tensor:
        """Take the passes of one iteration. With automatic optimization the closure is Lightning's own."""
        if closure is None or not self._module.automatic_optimization or self.rule.passes_ahead:
            return super().propagate(closure, per_sample)
        assert callable(closure), "Lightning accepts one closure only"
        return closure()  # its hook on_before_optimizer_step calls add_second_pass

    def add_second_pass(self, parts: Sequence["_Part"]) -> None:
        """Complete the gradient of the parts, which is in `.grad`, by the second pass, if one is due."""
        trainer = self._module.trainer
        # Under DDP a gradient may be a view of a bucket that the second pass writes into.
        is_view = getattr(trainer.strategy.model, "gradient_as_bucket_view", False)
        first = {p: p.grad.clone() if is_view else p.grad for p in self._all_params() if p.grad is not None}
        if not first:
            return  # training_step returned None
        for p in first:
            p.grad = None

        def closure() -> Tensor:
            if not first:
                with _unlogged(self._module):
                    return torch.stack([part.run(trainer, self, last=part is parts[-1]) for part in parts]).sum()
            for p, grad in first.items():
                p.grad = grad
            first.clear()
            return torch.zeros(())

        super().propagate(closure)


class TrialCallback(Callback):  # type: ignore[misc]
    """Makes a Trainer the training of a search: it reports after each epoch, is saved there and continues there.

    `fit` replaces `trainer.fit`. The optimizer comes from the trial, inside of `configure_optimizers`:
    `trial.optimizer(base, self, steps_per_epoch=..., optimizer_class=LightningRST)`.

    Args:
        trial: what the training function was called with.
        monitor: the logged metric to report.
    """

    def __init__(self, trial: "FunctionTrial", monitor: str) -> None:
        self.trial, self.monitor = trial, monitor
        self._first, self._open = 0, False

    def fit(self, trainer: Trainer, module: LightningModule, *arguments: Any, **settings: Any) -> None:
        """Call `trainer.fit`; after an interruption it continues with the epoch after the last checkpoint."""
        if self not in trainer.callbacks:
            trainer.callbacks.append(self)
        self._state = _TrainerState(trainer)
        self._first = self.trial.resume(trainer=self._state, module=module)
        trainer.fit(module, *arguments, **settings)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Continue where the last checkpoint was written."""
        self._state.apply(self._first)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the epoch before: only now its learning-rate schedulers have stepped."""
        self._end_epoch()
        if self._first and trainer.current_epoch == self._first:
            # The Trainer has drawn random numbers on its way here. It fetches its first batch after this.
            self.trial.restore_random_state()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report the metric."""
        if self.monitor not in trainer.callback_metrics:
            raise InputError(
                f"a trial reports a logged metric after each epoch, but {self.monitor!r} is not among "
                f"{sorted(trainer.callback_metrics)}: log it in validation_step, or give another name as `monitor`"
            )
        self.trial.report(float(trainer.callback_metrics[self.monitor]))
        self._open = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the last epoch."""
        self._end_epoch()

    def _end_epoch(self) -> None:
        if self._open:
            self._open = False
            self.trial.end_epoch()


class _TrainerState:
    """What changes in a Trainer besides its module: optimizers, schedulers, callbacks and counters.

    Lightning's own checkpoints are not used: one that is written between two epochs is continued without its last
    step of the learning-rate schedulers.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._loaded: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the state at the end of an epoch."""
        trainer, loop = self._trainer, self._trainer.fit_loop.epoch_loop
        return {
            "optimizers": [opt.state_dict() for opt in trainer.optimizers],
            "schedulers": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
            "callbacks": {each.state_key: state for each in trainer.callbacks if (state := each.state_dict())},
            "automatic": loop.automatic_optimization.optim_progress.state_dict(),
            "manual": loop.manual_optimization.optim_step_progress.state_dict(),
            "batches": loop._batches_that_stepped,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep the state until the Trainer has built what it belongs to."""
        self._loaded = state

    def apply(self, epoch: int) -> None:
        """Set the state that was loaded, if there is one, in a Trainer that is about to train its first epoch."""
        if not self._loaded:
            return
        trainer, state, loop = self._trainer, self._loaded, self._trainer.fit_loop.epoch_loop
        for opt, own in zip(trainer.optimizers, state["optimizers"], strict=True):
            opt.load_state_dict(own)
        for config, own in zip(trainer.lr_scheduler_configs, state["schedulers"], strict=True):
            config.scheduler.load_state_dict(own)
        for each in trainer.callbacks:
            if each.state_key in state["callbacks"]:
                each.load_state_dict(state["callbacks"][each.state_key])
        loop.automatic_optimization.optim_progress.load_state_dict(state["automatic"])
        loop.manual_optimization.optim_step_progress.load_state_dict(state["manual"])
        loop._batches_that_stepped = state["batches"]
        progress = trainer.fit_loop.epoch_progress.current
        progress.ready = progress.started = progress.processed = progress.completed = epoch


class _Part(NamedTuple):
    """A batch of an accumulation, with the state of the random generators before its first pass."""

    batch: Any
    batch_idx: int
    rng: RngState

    def run(self, trainer: Trainer, opt: RST, *, last: bool) -> Tensor:
        """Add the gradient of this part to `.grad` by Lightning's own closure; the first part resets it."""
        loop = trainer.fit_loop.epoch_loop
        kwargs = loop._build_kwargs(OrderedDict(), self.batch, self.batch_idx)
        closure = loop.automatic_optimization._make_closure(kwargs, opt, self.batch_idx)
        self.rng.restore()
        with nullcontext() if last else getattr(trainer.strategy, "block_backward_sync", nullcontext)():
            loss: Tensor = closure()
        return loss


class _SecondPass(Callback):  # type: ignore[misc]
    """Collects the parts of a batch and adds the second pass before the gradient is clipped."""

    def __init__(self, opt: LightningRST) -> None:
        self.opt, self.parts = opt, list[_Part]()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self.parts = []
        if self._is_due(trainer, pl_module):
            self.parts.append(_Part(batch, batch_idx, RngState(self.opt._devices())))

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        if self._is_due(trainer, pl_module):
            self.opt.add_second_pass(self.parts)
            self.parts = []

    def _is_due(self, trainer: Trainer, module: LightningModule) -> bool:
        return module.automatic_optimization and not self.opt.rule.passes_ahead and trainer.optimizers[0] is self.opt


@contextmanager
def _unlogged(module: LightningModule) -> Iterator[None]:
    module.log = lambda *_args, **_kwargs: None
    try:
        yield
    finally:
        del module.log


def _check_trainer(trainer: Trainer) -> None:
    if getattr(trainer.precision_plugin, "scaler", None) is not None:
        raise InputError(
            f"precision must not need a gradient scaler, but it is {trainer.precision!r}: Lightning then calls the "
            "closure and the optimizer's step apart, without a second pass; use precision='bf16-mixed'"
        )
    strategy = type(trainer.strategy).__name__
    if strategy in ("FSDPStrategy", "DeepSpeedStrategy"):
        raise InputError(
            f"the strategy must leave whole gradients or FSDP2 shards in .grad, but it is {strategy}: "
            "use ModelParallelStrategy (FSDP2) or DDPStrategy"
        )


def _estimated_steps(trainer: Trainer) -> int:
    steps = trainer.estimated_stepping_batches
    if steps == float("inf"):
        raise InputError(
            "total_steps must be known, but the Trainer has no end: set max_epochs or max_steps, or pass total_steps"
        )
    return int(steps)

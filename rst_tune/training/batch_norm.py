"""Batch normalization over the global batch of all ranks, so that their number does not change a training."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def synchronize_batch_norm(model: nn.Module, device: torch.device) -> nn.Module:
    """Return the model with batch statistics of the global batch.

    On CUDA this is torch's SyncBatchNorm. That one refuses CPU tensors, so on the CPU the modules get a class that
    computes the same with two all-reduces per layer; it is exact, and made for tests and small models, not for speed.
    """
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-any-return, no-untyped-call]
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            # Parameters, buffers and hooks stay those of the module.
            module.__class__ = _CpuSyncBatchNorm
    return model


class _AllReduce(torch.autograd.Function):
    """Sum over the ranks. The gradient is summed as well: every rank's loss depends on every rank's input."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:  # noqa: ARG004
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:  # noqa: ARG004
        total = grads[0].contiguous().clone()
        dist.all_reduce(total)
        return total


class _CpuSyncBatchNorm(_BatchNorm):
    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002
        """Accept what any of torch's batch norms accepts."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        if not self.training:
            return super().forward(input)
        dims, shape = [0, *range(2, input.ndim)], (1, -1, *(1,) * (input.ndim - 2))
        values = input.float()
        count = values.new_tensor([values.numel() / values.shape[1]])
        sums = _all_reduce(torch.cat([values.sum(dims), count]))
        mean, total = sums[:-1] / sums[-1], sums[-1].detach()
        centred = values - mean.view(shape)
        variance = _all_reduce(centred.square().sum(dims)) / total
        self._track(mean.detach(), variance.detach() * total / (total - 1))
        normalized = centred * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            normalized = normalized * self.weight.view(shape) + self.bias.view(shape)
        return normalized.to(input.dtype)

    def _track(self, mean: Tensor, unbiased_variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        rate = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, rate)
        self.running_var.lerp_(unbiased_variance, rate)


def _all_reduce(values: Tensor) -> Tensor:
    return _AllReduce.apply(values)  # type: ignore[no-any-return]

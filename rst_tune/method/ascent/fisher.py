"""The diagonal of the empirical Fisher information: the sum of squared gradients of single samples."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rst_tune.method.ascent.rule import AscentContext


def fisher_information(context: AscentContext, samples: int) -> tuple[Tensor, float]:
    """Return Σ_i (∂ℓ_i)² over at most `samples` samples of the batch, flat over trained parameters, and its pairs.

    Samples are propagated one by one in evaluation mode, since a batch of one has no batch statistics. Sums of ranks
    are added.
    """
    assert context.per_sample is not None
    trained = [p for p in context.all_params if p.requires_grad]
    information = [torch.zeros_like(p, dtype=torch.float32) for p in trained]
    sizes = [len(losses) for losses in context.losses]
    wanted = min(samples, sum(sizes))
    places = [(part, i) for part, size in enumerate(sizes) for i in range(size)][:wanted]
    with _evaluation_mode(context.model):
        for part, i in places:
            loss = context.per_sample[part](torch.tensor([i], device=context.losses[part].device)).sum()
            grads = torch.autograd.grad(loss, trained, allow_unused=True)
            for entry, grad in zip(information, grads, strict=True):
                if grad is not None:
                    entry.addcmul_(grad.float(), grad.float())
    flat = torch.cat([entry.flatten() for entry in information])
    if hasattr(context.model, "no_sync") and dist.is_available() and dist.is_initialized():
        dist.all_reduce(flat)
    return flat, wanted / sum(sizes)


@contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Set the model to evaluation mode without exchange between ranks, then restore its modes."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with getattr(model, "no_sync", nullcontext)():
            yield
    finally:
        for module, training in modes:
            module.training = training

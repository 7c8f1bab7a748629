"""Loss and error of a model on a split, and the sharpness of its minimum."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rst_tune.method.memory import WeightPerturbation
from rst_tune.training import metrics
from rst_tune.training.batches import Batch
from rst_tune.training.distributed import sum_over_processes


def batch_loss(outputs: Tensor, batch: Batch, *, label_smoothing: float = 0.0, reduction: str = "mean") -> Tensor:
    """Return the cross-entropy in fp32; under mixup, the weighted mean over both labels."""
    outputs = outputs.float()
    loss = functional.cross_entropy(outputs, batch.labels, label_smoothing=label_smoothing, reduction=reduction)
    if batch.partners is None or batch.weight is None:
        return loss
    other = functional.cross_entropy(outputs, batch.partners, label_smoothing=label_smoothing, reduction=reduction)
    return batch.weight * loss + (1 - batch.weight) * other


@torch.no_grad()
def evaluate(
    model: nn.Module, batches: Iterable[Batch], count: int, precision: AbstractContextManager[Any]
) -> tuple[float, float]:
    """Return the error in percent and the mean loss over the `count` images of all ranks."""
    model.eval()
    totals = torch.zeros(2, dtype=torch.float64, device=next(model.parameters()).device)
    for batch in batches:
        with precision:
            outputs = model(batch.images)
        totals[0] += (outputs.argmax(1) != batch.labels).sum()
        totals[1] += batch_loss(outputs, batch, reduction="sum")
    wrong, loss = (sum_over_processes(totals) / count).tolist()
    return 100 * wrong, loss


def measure_sharpness(model: nn.Module, loss: Callable[[], Tensor], rho: float) -> dict[str, float]:
    """Return L(w + rho g/|g|) - L(w), |g| and L(w). The weights are restored bit for bit.

    `loss` computes L on a fixed sample in evaluation mode, so that batch-norm statistics do not change.
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    with torch.enable_grad():
        here = loss()
        gradients = torch.autograd.grad(here, weights, allow_unused=True)
    moved, direction = zip(*((w, g) for w, g in zip(weights, gradients, strict=True) if g is not None), strict=True)
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(each) for each in direction]))
    here, perturbation = here.detach(), WeightPerturbation()
    try:
        perturbation.move(list(moved), list(direction), rho / float(norm) if norm > 0 else 0.0)
        with torch.no_grad():
            perturbed = loss()
    finally:
        perturbation.restore()
    return {
        metrics.SHARPNESS: float(perturbed) - float(here),
        metrics.GRADIENT_NORM: float(norm),
        metrics.SAMPLE_LOSS: float(here),
    }

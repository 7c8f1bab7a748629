"""The training function of `rst-tune run results/tabular`: a small network on a generated table.

Nothing of the built-in image classifier takes part: data, model, loop and learning rate are those of the function.
"""

from functools import cache
from typing import Any

import torch
from sklearn.datasets import make_classification
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

COLUMNS, WIDTH = 24, 64
BATCH, LEARNING_RATE = 64, 0.1


def train(trial: Any, *, classes: int, train: int, validation: int, test: int) -> float:
    """Train on so many rows of a table of so many classes and return the error on the test rows, in percent."""
    (x, y), held_out, unseen = table(classes, train, validation, test)
    model = nn.Sequential(nn.Linear(COLUMNS, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU(), nn.Linear(WIDTH, classes))
    base, steps = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9), train // BATCH
    opt = trial.optimizer(base, model, steps_per_epoch=steps)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps * trial.total_epochs)
    for _ in trial.epochs(cosine=cosine):
        for batch in torch.randperm(train)[: steps * BATCH].split(BATCH):
            losses = _losses(model, x[batch], y[batch])
            opt.step(lambda losses=losses: losses(None).mean(), per_sample=losses)
            cosine.step()
        trial.report(error(model, *held_out))
    return error(model, *unseen)


def _losses(model: nn.Module, x: Tensor, y: Tensor) -> Any:
    """Return the function of the losses of all samples, or of those with the given indices, that some rules need."""
    return lambda chosen: cross_entropy(model(_part(x, chosen)), _part(y, chosen), reduction="none")


def _part(values: Tensor, chosen: Tensor | None) -> Tensor:
    return values if chosen is None else values[chosen]


@torch.no_grad()
def error(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of wrong predictions, in percent."""
    return 100 * float((model(x).argmax(1) != y).double().mean())


@cache
def table(classes: int, *rows: int) -> list[tuple[Tensor, Tensor]]:
    """Return columns and classes of parts with so many rows. They do not depend on the seed of a training."""
    x, y = make_classification(
        sum(rows), COLUMNS, n_informative=12, n_redundant=6, n_classes=classes, n_clusters_per_class=3, class_sep=1.5,
        flip_y=0.0, random_state=0,
    )  # fmt: skip
    columns = torch.tensor((x - x.mean(0)) / x.std(0), dtype=torch.float32)
    return list(zip(columns.split(rows), torch.tensor(y).split(rows), strict=True))

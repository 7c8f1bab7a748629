"""RST in a plain torch loop: `python examples/plain_torch.py [epochs]`."""

import sys

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rst_tune import RST, schedules


def spiral(n, seed):
    """Return n points of a plane and their classes: two spirals with noise."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(n) % 2
    angle = 6 * torch.rand(n, generator=generator) + 1
    turned = angle + torch.pi * label
    points = torch.stack([angle * turned.cos(), angle * turned.sin()], dim=1)
    return points + 0.4 * torch.randn(n, 2, generator=generator), label


def main(epochs=60):
    torch.manual_seed(0)
    (x, y), (test_x, test_y) = spiral(512, seed=1), spiral(2000, seed=2)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    steps = epochs * len(x.split(64))
    # No second pass at first, one in almost every step at the end.
    opt = RST(base, model, schedule=schedules.linear(0.0, 0.9), total_steps=steps, rho=0.05, clip=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=steps)
    for _ in range(epochs):
        for part in torch.randperm(len(x)).split(64):
            opt.step(lambda part=part: cross_entropy(model(x[part]), y[part]))
            scheduler.step()
    with torch.no_grad():
        error = (model(test_x).argmax(1) != test_y).float().mean()
    print(f"test error {error:.1%}, {opt.t} steps, {opt.pairs:.0f} forward-backward pairs")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

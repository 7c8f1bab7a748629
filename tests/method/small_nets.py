"""Small networks, batches and runs for the tests of the method."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rst_tune import RST, schedules
from rst_tune.method import ascent

STEPS = 12


def mlp(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 3)).to(dtype)


def convnet(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(4 * 16, 3)
    )


def batch(t, shape=(6,), n=16, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1000 + t)
    x = torch.randn(n, *shape, generator=generator, dtype=dtype)
    return x, torch.randint(0, 3, (n,), generator=generator)


def losses_of(model, x, y):
    """`per_sample` of one batch."""
    return lambda indices: cross_entropy(
        model(x if indices is None else x[indices]), y if indices is None else y[indices], reduction="none"
    )


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3, **options})


def rst(model, base=None, *, p=1.0, T=STEPS, rho=0.05, **options):
    schedule = p if isinstance(p, schedules.Schedule) else schedules.constant(p)
    return RST(base or sgd(model), model, schedule=schedule, total_steps=T, rho=rho, **options)


def train(model, opt, steps=range(1, STEPS + 1), shape=(6,)):
    losses = []
    for t in steps:
        x, y = batch(t, shape, dtype=next(model.parameters()).dtype)
        losses.append(opt.step(lambda x=x, y=y: cross_entropy(model(x), y), per_sample=losses_of(model, x, y)))
    return losses


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


ALL_RULES = {
    "sam": ("sam", {}),
    "asam": ("asam", {"eta": 0.01}),
    "gsam": ("gsam", {"alpha": 0.4}),
    "looksam": ("looksam", {"k": 3, "alpha": 0.7}),
    "esam": ("esam", {"beta": 0.6, "gamma": 0.5}),
    "ssam-fisher": ("ssam", {"mask": "fisher", "sparsity": 0.5, "samples": 8, "every": 4}),
    "ssam-dynamic": ("ssam", {"mask": "dynamic", "sparsity": 0.5, "every": 4, "drop": 0.5}),
    "fsam": ("fsam", {"sigma": 0.8, "lam": 0.6}),
    "vasso": ("vasso", {"theta": 0.4}),
    "sam-on": ("sam-on", {}),
    "s2sam": ("s2sam", {}),
    "msam": ("msam", {}),
}
AHEAD = [case for case, (rule, _) in ALL_RULES.items() if ascent.RULES[rule].passes_ahead]
TWO_PASS = [case for case in ALL_RULES if case not in AHEAD]


def with_gamma(*gammas):
    """Every rule with every gamma that it takes: a rule that passes ahead takes 1 only."""
    return [(case, gamma) for case in ALL_RULES for gamma in gammas if gamma == 1.0 or case in TWO_PASS]

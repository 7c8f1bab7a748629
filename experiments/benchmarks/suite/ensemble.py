"""Many small networks trained at once: each member has its own configuration, seed and length.

The weights of all members are stacked, so one matrix product serves all of them. That makes a training of a suite task
cost about ten milliseconds, and a table of tens of thousands of trainings affordable on one core. A member follows
`rst_tune.RST` with the rules `sam` and `s2sam`, the same coin and the recipe's learning rate: a test trains one member
with both.

The seed of a training decides everything that is random in it: the split into training and validation examples, the
wrong labels, the initial weights, the order of the batches and the coin.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  the usual name
from torch import Tensor

from rst_tune.method import schedules
from rst_tune.method.coin import uniform
from rst_tune.records import TrialConfig

Arrays = tuple[np.ndarray, np.ndarray]
BATCH_NORM_EPS = 1e-5


@dataclass(frozen=True, kw_only=True)
class SuiteTask:
    """A task of real training. `pool` returns all examples (float32) and labels; the seed splits them."""

    name: str
    about: str
    pool: Callable[[], Arrays]
    classes: int
    train: int
    validation: int
    label_noise: float = 0.0
    hidden: tuple[int, ...] = (32,)
    batch_norm: bool = False
    optimizer: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 0.0
    batch_size: int = 48
    epochs: int = 20
    rho: float = 0.2
    data: dict[str, Tensor] = field(default_factory=dict, compare=False, repr=False)

    @property
    def steps_per_epoch(self) -> int:
        """Full batches per epoch; the rest is dropped."""
        return self.train // self.batch_size

    def examples(self) -> tuple[Tensor, Tensor]:
        """Return all examples and labels, read once."""
        if not self.data:
            x, y = self.pool()
            self.data.update(x=torch.from_numpy(x.astype(np.float32)), y=torch.from_numpy(y.astype(np.int64)))
        return self.data["x"], self.data["y"]

    def rungs(self, epochs: int) -> list[int]:
        """Return the epochs at which errors are kept: those of our rungs and of ASHA's, and the last."""
        ours = {math.ceil(epochs / 9), math.ceil(epochs / 3)}
        return sorted(e for e in {1, 4, 16, *ours, epochs} if e <= epochs)


@dataclass(frozen=True)
class Member:
    """One training of the ensemble."""

    config: TrialConfig
    seed: int
    epochs: int


class _State:
    """Weights, momentum and data of the members that still train, longest first."""

    def __init__(self, task: SuiteTask, members: Sequence[Member]) -> None:
        self.task, self.members = task, list(members)
        x, y = task.examples()
        self.x = x
        splits = [split(task, m.seed) for m in members]
        self.train = torch.stack([s[0] for s in splits])
        self.labels = torch.stack([s[1] for s in splits])
        self.validation = torch.stack([s[2] for s in splits])
        self.validation_labels = y[self.validation]
        drawn = [initial_weights(task, m.seed) for m in members]
        self.w = [torch.stack(each) for each in zip(*drawn, strict=True)]
        self.buffers = [[torch.zeros_like(w) for w in self.w] for _ in range(2)]
        self.last = [torch.zeros_like(w) for w in self.w]

    def keep(self, count: int) -> None:
        """Drop all members but the first `count`, whose trainings go on."""
        self.members = self.members[:count]
        for name in ("train", "labels", "validation", "validation_labels"):
            setattr(self, name, getattr(self, name)[:count])
        self.w, self.last = ([v[:count].clone() for v in part] for part in (self.w, self.last))
        self.buffers = [[v[:count].clone() for v in part] for part in self.buffers]


def split(task: SuiteTask, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the training examples, their labels (some wrong) and the validation examples of a seed."""
    rng = np.random.default_rng([seed, 1])
    _, y = task.examples()
    order = rng.permutation(len(y))
    train, validation = order[: task.train], order[task.train : task.train + task.validation]
    labels = y.numpy()[train].copy()
    wrong = rng.permutation(task.train)[: round(task.label_noise * task.train)]
    labels[wrong] = (labels[wrong] + rng.integers(1, task.classes, len(wrong))) % task.classes
    return torch.from_numpy(train), torch.from_numpy(labels), torch.from_numpy(validation)


def initial_weights(task: SuiteTask, seed: int) -> list[Tensor]:
    """Return weights and biases, drawn as torch.nn.Linear draws them; with batch norm, scale and shift too."""
    rng = torch.Generator().manual_seed(seed)
    sizes = (task.examples()[0].shape[1], *task.hidden, task.classes)
    weights = []
    for inputs, outputs in itertools.pairwise(sizes):
        bound = 1 / math.sqrt(inputs)
        weights.append(torch.empty(inputs, outputs).uniform_(-bound, bound, generator=rng))
        weights.append(torch.empty(1, outputs).uniform_(-bound, bound, generator=rng))
        if task.batch_norm and len(weights) < 4 * len(task.hidden):
            weights += [torch.ones(1, outputs), torch.zeros(1, outputs)]
    return weights


def logits(task: SuiteTask, w: Sequence[Tensor], x: Tensor) -> Tensor:
    """Return the outputs (members, batch, classes). Batch norm takes the statistics of the batch, also to validate."""
    per_layer = 4 if task.batch_norm else 2
    for layer in range(len(task.hidden)):
        own = w[per_layer * layer : per_layer * (layer + 1)]
        x = torch.baddbmm(own[1], x, own[0])
        if task.batch_norm:
            mean, variance = x.mean(1, keepdim=True), x.var(1, keepdim=True, unbiased=False)
            x = (x - mean) * torch.rsqrt(variance + BATCH_NORM_EPS) * own[2] + own[3]
        x = torch.relu(x)
    return torch.baddbmm(w[-1], x, w[-2])


def gradients(task: SuiteTask, w: Sequence[Tensor], x: Tensor, y: Tensor) -> list[Tensor]:
    """Return the gradient of each member's mean loss."""
    leaves = [each.detach().requires_grad_() for each in w]
    out = logits(task, leaves, x)
    loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1), reduction="sum") / y.shape[1]
    return list(torch.autograd.grad(loss, leaves))


def _norms(grads: Sequence[Tensor]) -> Tensor:
    return torch.stack([g.flatten(1).square().sum(1) for g in grads]).sum(0).sqrt()


def _spread(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *(1 for _ in like.shape[1:]))


def _ascents(task: SuiteTask, members: Sequence[Member]) -> np.ndarray:
    """Return X_t of every member and step."""
    longest = members[0].epochs * task.steps_per_epoch
    out = np.zeros((len(members), longest), dtype=bool)
    for row, member in zip(out, members, strict=True):
        if member.config.is_base:
            continue
        total = member.epochs * task.steps_per_epoch
        p = schedules.from_dict(member.config.schedule).values(total)
        row[:total] = [uniform(member.seed, t) < chance for t, chance in enumerate(p, start=1)]
    return out


def train(task: SuiteTask, members: Sequence[Member]) -> list[dict[int, float]]:
    """Train all members; return for each the validation error in percent at its rungs (NaN where it diverged)."""
    order = sorted(range(len(members)), key=lambda i: -members[i].epochs)
    found = _train_sorted(task, [members[i] for i in order])
    return [errors for _, errors in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]


def _train_sorted(task: SuiteTask, members: list[Member]) -> list[dict[int, float]]:
    state, coins = _State(task, members), _ascents(task, members)
    gamma = torch.tensor([m.config.gamma_gnr for m in members], dtype=torch.float32)
    rho = torch.tensor([m.config.rho for m in members], dtype=torch.float32)
    ahead = torch.tensor([m.config.rule == "s2sam" for m in members])
    totals = np.array([m.epochs * task.steps_per_epoch for m in members])
    rungs = [set(task.rungs(m.epochs)) for m in members]
    found: list[dict[int, float]] = [{} for _ in members]
    rngs = [np.random.default_rng([m.seed, 2]) for m in members]
    t, steps = 0, task.steps_per_epoch
    for epoch in range(1, members[0].epochs + 1):
        count = sum(m.epochs >= epoch for m in members)
        if count < len(state.members):
            state.keep(count)
        batches = np.stack([rng.permutation(task.train)[: steps * task.batch_size] for rng in rngs[:count]])
        for at in torch.from_numpy(batches).split(task.batch_size, dim=1):
            t += 1
            done = (t - 1) / totals[:count]
            rate = torch.tensor(task.lr * 0.5 * (1 + np.cos(math.pi * done)), dtype=torch.float32)
            heads = torch.from_numpy(coins[:count, t - 1])
            _step(task, state, at, heads, gamma[:count], rho[:count], ahead[:count], rate, t)
        due = [i for i in range(count) if epoch in rungs[i]]
        if due:
            for i, error in zip(due, _validate(task, state, due), strict=True):
                found[i][epoch] = error
    return found


@torch.no_grad()
def _step(
    task: SuiteTask, state: _State, at: Tensor, heads: Tensor, gamma: Tensor, rho: Tensor, ahead: Tensor,
    rate: Tensor, t: int,
) -> None:  # fmt: skip
    x, y = state.x[state.train.gather(1, at)], state.labels.gather(1, at)
    w = state.w
    look = heads & ahead
    if bool(look.any()):
        scale = rho * look / _norms(state.last).clamp_min(1e-12)
        w = [v + _spread(scale, v) * last for v, last in zip(w, state.last, strict=True)]
    with torch.enable_grad():
        g = gradients(task, w, x, y)
    if bool(ahead.any()):
        state.last = [each.clone() for each in g]
    up = (heads & ~ahead).nonzero().flatten()
    if len(up):
        scale = (rho / _norms(g).clamp_min(1e-12))[up]
        lifted = [v[up] + _spread(scale, v) * each[up] for v, each in zip(state.w, g, strict=True)]
        with torch.enable_grad():
            g2 = gradients(task, lifted, x[up], y[up])
        for each, second in zip(g, g2, strict=True):
            first = each[up]
            each[up] = first + _spread(gamma[up], first) * (second - first)
    _base_step(task, state, g, rate, t)


def _base_step(task: SuiteTask, state: _State, g: list[Tensor], rate: Tensor, t: int) -> None:
    first, second = state.buffers
    for i, (w, grad) in enumerate(zip(state.w, g, strict=True)):
        step = _spread(rate, w)
        if task.weight_decay:
            grad = grad + task.weight_decay * w
        if task.optimizer == "sgd":
            first[i].mul_(task.momentum).add_(grad)
            w.sub_(step * first[i])
        else:
            first[i].mul_(0.9).add_(grad, alpha=0.1)
            second[i].mul_(0.999).addcmul_(grad, grad, value=0.001)
            denominator = (second[i] / (1 - 0.999**t)).sqrt_().add_(1e-8)
            w.sub_(step * (first[i] / (1 - 0.9**t)) / denominator)


@torch.no_grad()
def _validate(task: SuiteTask, state: _State, due: Sequence[int]) -> list[float]:
    index = torch.tensor(due)
    w = [each[index] for each in state.w]
    wrong = torch.zeros(len(due))
    for at in state.validation[index].split(500, dim=1):
        out = logits(task, w, state.x[at])
        wrong += (out.argmax(-1) != state.task.examples()[1][at]).sum(1)
    errors = 100 * wrong / task.validation
    finite = torch.stack([torch.isfinite(each).flatten(1).all(1) for each in w]).all(0)
    return [float(e) if ok else math.nan for e, ok in zip(errors, finite, strict=True)]

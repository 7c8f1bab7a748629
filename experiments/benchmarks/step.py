"""The overhead of a sharpness-aware step over its passes.

    python experiments/benchmarks/step.py [--rounds 200] [--clock cpu]
    python experiments/benchmarks/step.py --quick

The passes are replaced by one that only writes given gradients, so that the work of the optimizers remains. The
overhead of a variant is its time minus that of the same passes followed by the bare base step. All variants take turns
in one process, in a rotating order, and are compared within a turn, because the load of the machine changes. Printed
are medians over the turns; for the ascent rules, the policy by gradient norm and the cap also means, since some do
their work every few steps, beside the forward-backward pairs per step.
"""

import argparse
import time
from collections.abc import Callable
from statistics import fmean, median

import torch
import torchvision
from pytorch_optimizer import SAM
from torch import Tensor, nn

from rst_tune import RST, schedules
from rst_tune.method.ascent import RULES

STEPS = 10**6  # the horizon of the schedules, never reached
BATCH = 64  # samples that a per-sample loss pretends to have


class CopyGradients(torch.autograd.Function):
    """A loss whose backward pass makes new gradients and does nothing else."""

    @staticmethod
    def forward(ctx, gradients, *params):
        ctx.gradients = gradients
        return params[0].new_zeros(())

    @staticmethod
    def backward(ctx, _grad_output):
        return None, *torch._foreach_mul(ctx.gradients, 1.0)


def resnet18() -> nn.Module:
    return torchvision.models.resnet18(num_classes=10)


def small_tensors() -> nn.Module:
    return nn.ParameterList([nn.Parameter(torch.randn(1000)) for _ in range(600)])


class Case:
    """A new copy of the parameters with the pass that writes their gradients and a base optimizer."""

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        torch.manual_seed(0)
        self.model = build()
        self.params = list(self.model.parameters())
        self.gradients = [torch.randn_like(p) * 1e-3 for p in self.params]
        self.base = torch.optim.SGD(self.params, lr=1e-4, momentum=0.9, foreach=True)

    def loss(self) -> Tensor:
        return CopyGradients.apply(self.gradients, *self.params)

    def losses(self, indices: Tensor | None) -> Tensor:
        return self.loss().expand(BATCH if indices is None else len(indices))

    def propagate(self) -> Tensor:
        self.base.zero_grad()
        loss = self.loss()
        loss.backward()
        return loss


def base_step(case: Case, passes: int) -> Callable[[], None]:
    def step() -> None:
        for _ in range(passes):
            case.propagate()
        case.base.step()

    return step


def ours(case: Case, p: float, gamma_gnr: float = 1.0) -> Callable[[], object]:
    schedule = schedules.constant(p)
    opt = RST(case.base, case.model, schedule=schedule, total_steps=STEPS, rho=0.05, gamma_gnr=gamma_gnr)
    return lambda: opt.step(case.loss)


class RuleStep:
    """Steps of one ascent rule with p = 1, or another method, and the pairs that each took."""

    def __init__(self, case: Case, p: float = 1.0, **method: object) -> None:
        schedule = schedules.constant(p)
        self.case, self.pairs = case, []
        self.opt = RST(case.base, case.model, schedule=schedule, total_steps=STEPS, rho=0.05, **method)

    def __call__(self) -> None:
        before = self.opt.pairs
        self.opt.step(self.case.loss, per_sample=self.case.losses)
        self.pairs.append(self.opt.pairs - before)


def peer(case: Case) -> Callable[[], None]:
    opt = SAM(case.params, torch.optim.SGD, rho=0.05, lr=1e-4, momentum=0.9, foreach=True)

    def step() -> None:
        case.propagate()
        opt.step(case.propagate)

    return step


def plain_loop(case: Case) -> Callable[[], None]:
    def step() -> None:
        case.propagate()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in case.params]).norm()
            moves = [p.grad * (0.05 / (norm + 1e-12)) for p in case.params]
            for p, move in zip(case.params, moves, strict=True):
                p.add_(move)
        case.propagate()
        with torch.no_grad():
            for p, move in zip(case.params, moves, strict=True):
                p.sub_(move)
        case.base.step()

    return step


def variants(build: Callable[[], nn.Module]) -> dict[str, Callable[[], object]]:
    return {
        "base, one pass": base_step(Case(build), 1),
        "base, two passes": base_step(Case(build), 2),
        "ours, p = 0": ours(Case(build), 0.0),
        "ours, p = 1": ours(Case(build), 1.0),
        "ours, p = 1, gamma 2": ours(Case(build), 1.0, 2.0),
        "pytorch_optimizer SAM, foreach": peer(Case(build)),
        "plain loop over the parameters": plain_loop(Case(build)),
    }


def rule_steps(build: Callable[[], nn.Module]) -> dict[str, RuleStep]:
    has_norm = any("Norm" in type(module).__name__ for module in build().modules())
    rules = {f"rule {rule}": {"rule": rule} for rule in RULES.names() if rule != "sam-on" or has_norm}
    others = {"policy gradient-norm, p = 0.5": {"p": 0.5, "policy": "gradient-norm"}, "cap 3": {"cap": 3.0}}
    return {name: RuleStep(Case(build), **method) for name, method in {**rules, **others}.items()}


def measure(steps: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    names, times = list(steps), {name: [] for name in steps}
    for turn in range(rounds + 3):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = clock()
            steps[name]()
            if turn >= 3:  # the first turns allocate
                times[name].append((clock() - start) * 1e3)
    return times


def table(title: str, times: dict[str, list[float]], rules: dict[str, RuleStep]) -> None:
    one, two = times["base, one pass"], times["base, two passes"]
    overheads = {
        name: median(a - b for a, b in zip(values, two, strict=True))
        for name, values in list(times.items())[3:]
        if name not in rules
    }
    theirs = overheads["pytorch_optimizer SAM, foreach"]
    print(f"\n{title}: base step with one pass {median(one):.2f} ms, with two {median(two):.2f} ms")
    for name, extra in overheads.items():
        print(f"  {name:<32} overhead {extra:7.2f} ms   of pytorch_optimizer's  {extra / theirs:6.3f}")
    ours = times["ours, p = 0"]
    ratio = median(a / b for a, b in zip(ours, one, strict=True))
    print(f"  {'ours, p = 0':<32} step     {median(ours):7.2f} ms   of the bare base loop  {ratio:6.3f}")
    for name, step in rules.items():
        extra = rule_overheads(times[name], step.pairs[-len(one) :], one, two)
        middle, mean, pairs = median(extra), fmean(extra), fmean(step.pairs)
        print(f"  {name:<32} overhead {middle:7.2f} ms   mean {mean:7.2f} ms   pairs per step {pairs:6.3f}")


def rule_overheads(times: list[float], pairs: list[float], one: list[float], two: list[float]) -> list[float]:
    rows = zip(times, pairs, one, two, strict=True)
    return [time - single - (taken - 1) * (double - single) for time, taken, single, double in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: for a machine with other load")
    parser.add_argument("--quick", action="store_true", help="2 rounds")
    arguments = parser.parse_args()
    clock = time.perf_counter if arguments.clock == "wall" else time.process_time
    torch.set_num_threads(arguments.threads)
    rounds = 2 if arguments.quick else arguments.rounds
    for title, build in (("ResNet-18, 11.2 M in 62 tensors", resnet18), ("600 tensors of 1,000", small_tensors)):
        rules = rule_steps(build)
        table(title, measure({**variants(build), **rules}, rounds, clock), rules)


if __name__ == "__main__":
    main()

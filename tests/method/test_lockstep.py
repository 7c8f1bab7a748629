"""Every rule in lockstep with its literal formula, and p = 1 with another implementation of SAM."""

import copy
from itertools import product

import pytest
import reference
import torch
from pytorch_optimizer import SAM
from small_nets import ALL_RULES, TWO_PASS, batch, losses_of, mlp, rst, weights
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from rst_tune import schedules
from rst_tune.method import ascent
from rst_tune.method.coin import hash64, toss, uniform

T = 50
SEED = 3
NO = ("msam", 0.0)  # refused: there is no momentum


def problem_of(model, dtype):
    shapes = {name: p.shape for name, p in model.named_parameters()}

    def losses(w, t):
        x, y = batch(t, dtype=dtype)
        parts = w.split([shape.numel() for shape in shapes.values()])
        tensors = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        return cross_entropy(functional_call(model, tensors, (x,)), y, reduction="none")

    tensors = tuple((name, shape.numel()) for name, shape in shapes.items())
    return reference.Problem(losses, tensors, frozenset({"1.weight", "1.bias"}))


def shuffled(t, count):
    return torch.randperm(count, generator=torch.Generator().manual_seed(hash64(SEED, t) >> 1))


def literal(name, model, rho, gamma_gnr, schedule, dtype, policy="coin", **more):
    coin = lambda t: toss(SEED, t, schedule(t, T))  # noqa: E731
    by_norm = reference.ae_sam(0.9, lambda t: schedule(t, T), coin)
    settings = reference.Settings(
        T=T,
        rho=rho,
        options=ALL_RULES[name][1],
        chosen=lambda t, tensor: uniform(SEED, t, tensor) < ALL_RULES[name][1]["beta"],
        shuffled=shuffled,
    )
    return reference.algorithm1(
        problem_of(model, dtype),
        weights(model),
        settings,
        lr=0.1,
        decide=by_norm if policy == "gradient-norm" else lambda t, g: coin(t),
        rule=reference.REFERENCES[name],
        gamma_gnr=gamma_gnr,
        **more,
    )


def test_every_rule_has_a_reference():
    assert {rule for rule, _ in ALL_RULES.values()} == set(ascent.RULES.names())
    assert set(ALL_RULES) == set(reference.REFERENCES)


CASES = [
    *[(name, {"momentum": momentum}) for name, momentum in product(ALL_RULES, (0.0, 0.9)) if (name, momentum) != NO],
    *[(name, {"gamma_gnr": gamma}) for name, gamma in product(TWO_PASS, (2.0, 0.5))],
    *[(name, {"policy": "gradient-norm"}) for name in TWO_PASS],
    *[(name, {"gamma_gnr": 3.0, "cap": 1.05}) for name in TWO_PASS],
]


@pytest.mark.parametrize(("name", "case"), CASES, ids=str)
def test_in_lockstep_with_the_formula(name, case):
    model, dtype = mlp(dtype=torch.float64), torch.float64
    schedule = schedules.with_mean("ramp-up", 0.6, T, shape=0.9)
    path = literal(name, copy.deepcopy(model), 0.1, **{"gamma_gnr": 1.0, **case}, schedule=schedule, dtype=dtype)
    rule, options = ALL_RULES[name]
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=case.get("momentum", 0.0))
    settings = {key: value for key, value in case.items() if key != "momentum"}
    opt = rst(model, base, p=schedule, T=T, rho=0.1, rule=rule, rule_options=options, seed=SEED, **settings)
    for t in range(1, T + 1):
        x, y = batch(t, dtype=dtype)
        opt.step(lambda x=x, y=y: cross_entropy(model(x), y), per_sample=losses_of(model, x, y))
        difference = (weights(model) - path[t - 1]).norm() / path[t - 1].norm()
        assert difference < 1e-6, f"step {t}"
    assert 15 < opt.ascents < 45


def test_without_the_ascent_the_path_is_another():
    """The lockstep test has power only if the rules differ from the base and from each other."""
    ends = []
    for name in ALL_RULES:
        model = mlp(dtype=torch.float64)
        ends.append(literal(name, model, 0.1, 1.0, schedules.constant(1.0), torch.float64, momentum=0.5)[-1])
    model = mlp(dtype=torch.float64)
    ends.append(literal("sam", model, 0.1, 1.0, schedules.constant(0.0), torch.float64, momentum=0.5)[-1])
    for i, one in enumerate(ends):
        assert all((one - other).norm() / one.norm() > 1e-4 for other in ends[:i])


@pytest.mark.parametrize("width", [16, 300])  # 300: tensors large enough to be repointed instead of copied
def test_p_one_is_the_sam_of_pytorch_optimizer(width):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, width), torch.nn.Tanh(), torch.nn.Linear(width, width))
    twin = copy.deepcopy(model)
    opt = rst(model, p=1.0, T=T, rho=0.05)
    peer = SAM(twin.parameters(), torch.optim.SGD, rho=0.05, lr=0.1, momentum=0.9, weight_decay=1e-3)
    for t in range(1, T + 1):
        x, y = batch(t)

        def closure(x=x, y=y):
            peer.zero_grad()
            loss = cross_entropy(twin(x), y)
            loss.backward()
            return loss

        opt.step(lambda x=x, y=y: cross_entropy(model(x), y))
        closure()
        peer.step(closure)
        assert (weights(model) - weights(twin)).norm() / weights(twin).norm() < 1e-6, f"step {t}"

"""The paper's bounds, compared with RST on losses with known constants."""

from functools import cache
from itertools import product
from math import cos, pi

import pytest
import torch
from torch import nn

from rst_tune import RST, schedules
from rst_tune.errors import InputError
from rst_tune.method import theory

T = 20
SEEDS = range(15)


class Quadratic(nn.Module):
    """L(w) = ½ wᵀdiag(a)w: beta = max a, varrho = min a, L_* = 0."""

    beta, varrho, least = 2.0, 0.25, 0.0

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([3.0, -2.0, 1.0, 4.0], dtype=torch.float64))
        self.a = torch.tensor([2.0, 1.0, 0.5, 0.25], dtype=torch.float64)

    def forward(self):
        return 0.5 * (self.a * self.w**2).sum()


class Logistic(nn.Module):
    """Regularized logistic regression: beta = λmax(XᵀX)/4n + λ, varrho = λ; L_* by Newton's method."""

    varrho = 0.1

    def __init__(self, least=None):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(60, 3, generator=generator, dtype=torch.float64)
        noise = torch.randn(60, generator=generator, dtype=torch.float64)
        self.y = torch.sign(self.x @ torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64) + noise)
        self.beta = float(torch.linalg.eigvalsh(self.x.T @ self.x)[-1] / (4 * 60) + self.varrho)
        self.w = nn.Parameter(torch.tensor([3.0, 3.0, -3.0], dtype=torch.float64))
        self.least = least_logistic() if least is None else least

    def forward(self, w=None):
        w = self.w if w is None else w
        return nn.functional.softplus(-self.y * (self.x @ w)).mean() + self.varrho / 2 * (w @ w)


@cache
def least_logistic():
    problem, w = Logistic(least=0.0), torch.zeros(3, dtype=torch.float64)
    for _ in range(30):
        hessian = torch.autograd.functional.hessian(problem.forward, w)
        w = w - torch.linalg.solve(hessian, torch.autograd.functional.jacobian(problem.forward, w))
    return float(problem(w))


def measured(build, alpha, p, rho, seed):
    """Run RST; return L − L_* and ‖∇L‖ before each step, and L − L_* at the end."""
    model = build()
    base = torch.optim.SGD(model.parameters(), lr=1.0)
    opt = RST(base, model, schedule=p, total_steps=len(alpha), rho=rho, seed=seed)
    gaps, norms = [], []
    for alpha_t in alpha:
        base.param_groups[0]["lr"] = alpha_t
        norms.append(float(torch.autograd.grad(model(), model.w)[0].norm()))
        gaps.append(float(opt.step(lambda: model())) - model.least)
    return [*gaps, float(model().detach()) - model.least], norms


@pytest.fixture(params=[Quadratic, Logistic], ids=["quadratic", "logistic"])
def build(request):
    return request.param


def rates(kind, beta):
    return {
        "constant": [0.9 / beta] * T,
        "cosine": [0.5 / beta * (1 + cos(pi * t / T)) for t in range(T)],
        "decayed": [0.9 / beta / t for t in range(1, T + 1)],
    }[kind]


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", ["constant", "cosine", "decayed"])
def test_theorem_1_and_its_corollaries(build, kind, p):
    problem = build()
    alpha, rho, beta = rates(kind, problem.beta), 0.3 / problem.beta, problem.beta
    runs = [measured(build, alpha, schedules.constant(p), rho, seed) for seed in SEEDS]
    gap = runs[0][0][0]
    least = min(sum(norms[t] ** 2 for _, norms in runs) / len(runs) for t in range(T))
    bound = theory.theorem1(gap, alpha, [p] * T, rho, beta)
    assert least <= bound
    if kind == "decayed":
        assert bound <= theory.corollary2(gap, 0.9 / beta, T, p, rho, beta)
    else:
        C = 0.9 if kind == "constant" else 0.5
        corollary = theory.corollary1(gap, C, T, p, rho, beta, cosine=kind == "cosine")
        assert bound <= corollary * (1 + 1e-12)
        if kind == "constant":
            assert bound == pytest.approx(corollary)


def test_theorem_1_with_a_schedule_that_moves(build):
    problem = build()
    schedule = schedules.with_mean("ramp-up", 0.5, T)
    alpha, rho = rates("cosine", problem.beta), 0.3 / problem.beta
    runs = [measured(build, alpha, schedule, rho, seed) for seed in SEEDS]
    least = min(sum(norms[t] ** 2 for _, norms in runs) / len(runs) for t in range(T))
    assert least <= theory.theorem1(runs[0][0][0], alpha, schedule.values(T), rho, problem.beta)


def test_theorem_2_over_every_sequence_of_coins(build):
    """With 5 steps all 32 sequences can be run, so the expectation is exact."""
    problem, steps, p = build(), 5, 0.4
    alpha, rho = [0.5 / problem.beta] * steps, 0.05 / problem.beta
    expected, least = 0.0, [float("inf")] * steps
    for coins in product((0.0, 1.0), repeat=steps):
        pinned = schedules.interpolate([((t + 1) / steps, coin) for t, coin in enumerate(coins)])
        assert pinned.values(steps) == coins
        gaps, norms = measured(build, alpha, pinned, rho, seed=0)
        chance = p ** sum(coins) * (1 - p) ** (steps - sum(coins))
        expected += chance * gaps[-1] / gaps[0]
        least = [min(a, b) for a, b in zip(least, norms, strict=True)]
    bound = theory.theorem2(alpha, [p] * steps, rho, least, problem.beta, problem.varrho)
    assert expected <= bound < 1.0


def test_gamma_rst():
    assert theory.gamma_rst(0.5, 2.0) == 1.0
    assert theory.gamma_rst(0.3) == 0.3


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"alpha": [0.5, 0.51]}, r"alpha_t = 0.51 at t = 1"),
        ({"alpha": [0.5, 0.0]}, r"alpha_t = 0.0"),
        ({"rho": 0.8}, r"sqrt\(p_t\)·rho <= 1/beta"),
        ({"p": [0.5, 1.2]}, r"p_t = 1.2 at t = 1"),
        ({"p": [0.5]}, "one length"),
        ({"beta": 0.0}, "beta > 0"),
    ],
)
def test_a_run_that_violates_the_assumptions_is_not_accepted(broken, message):
    good = {"alpha": [0.5, 0.5], "p": [0.5, 0.5], "rho": 0.5, "beta": 2.0}
    theory.check_assumptions(**good)
    with pytest.raises(InputError, match=message):
        theory.check_assumptions(**{**good, **broken})
    with pytest.raises(InputError, match=message):
        theory.theorem1(1.0, **{**good, **broken})


def test_a_diverging_run_is_outside_the_theorem():
    alpha = [1.5 / Quadratic.beta * 2] * T
    gaps, norms = measured(Quadratic, alpha, schedules.constant(0.5), 0.1, seed=0)
    assert gaps[-1] > gaps[0]
    for refused in (
        lambda: theory.theorem1(gaps[0], alpha, [0.5] * T, 0.1, Quadratic.beta),
        lambda: theory.theorem2(alpha, [0.5] * T, 0.1, norms, Quadratic.beta, Quadratic.varrho),
        lambda: theory.corollary1(gaps[0], 0.6, T, 0.5, 0.1, 2.0, cosine=True),
        lambda: theory.corollary2(gaps[0], 0.6, T, 0.5, 0.1, 2.0),
        lambda: theory.corollary2(gaps[0], 0.5, 1, 0.5, 0.1, 2.0),
        lambda: theory.theorem2([0.5], [0.5], 0.1, [1e-3], 2.0, 0.25),
        lambda: theory.theorem2([0.5], [0.5], 0.1, [0.0], 2.0, 0.25),
        lambda: theory.theorem2([0.5], [0.5], 0.1, [5.0], 2.0, 3.0),
    ):
        with pytest.raises(InputError, match="must hold"):
            refused()

"""Policies: the frequency of X_t = 1, the limits, and the cap."""

import random

import pytest
import torch
from small_nets import batch, mlp, rst, sgd, train, weights
from torch.nn.functional import cross_entropy

from rst_tune.method import policies
from rst_tune.method.coin import toss
from rst_tune.method.cost import describe_policies, describe_rules


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.8])
def test_the_frequency_of_ascents_is_about_p_for_a_normal_norm(p):
    """delta = 0.99 estimates mean and deviation well; the paper's 0.9 is within a few percent of p."""
    for delta, tolerance in ((0.99, 0.02), (0.9, 0.05)):
        policy, draw = policies.build("gradient-norm", {"delta": delta}), random.Random(0)
        ascents = sum(policy.decide(0, t, p, draw.gauss(5.0, 0.7)) for t in range(1, 20_001))
        assert ascents / 20_000 == pytest.approx(p, abs=tolerance)


def test_a_high_norm_is_an_ascent_and_a_low_one_is_not():
    policy = policies.build("gradient-norm")
    for t in range(1, 200):
        policy.decide(0, t, 0.5, 1.0 + 0.1 * (-1) ** t)
    assert policy.decide(0, 200, 0.1, 2.0)
    assert not policy.decide(0, 201, 0.9, 0.1)


def test_a_norm_that_overflowed_is_no_ascent_and_leaves_the_statistics():
    policy = policies.build("gradient-norm")
    policy.decide(0, 1, 0.5, 1.0)
    before = policy.state_dict()
    assert not policy.decide(0, 2, 1.0, float("inf"))
    assert policy.state_dict() == before


def test_the_coin_is_the_toss():
    coin = policies.build("coin")
    assert [coin.decide(3, t, 0.4) for t in range(1, 50)] == [toss(3, t, 0.4) for t in range(1, 50)]


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_p_zero_and_p_one_do_not_depend_on_the_policy(p):
    ends = []
    for policy in policies.POLICIES.names():
        model = mlp()
        opt = rst(model, p=p, policy=policy, gamma_gnr=1.5, eps="global")
        train(model, opt)
        ends.append((weights(model), opt.pairs, opt.ascents))
    assert torch.equal(ends[0][0], ends[1][0])
    assert ends[0][1:] == ends[1][1:]


def test_realized_pairs_are_counted_with_a_policy():
    model = mlp()
    opt = rst(model, p=0.5, T=60, policy="gradient-norm")
    train(model, opt, range(1, 61))
    assert 10 < opt.ascents < 50
    assert opt.pairs == 60 + opt.ascents


def test_the_policy_does_not_depend_on_the_loss_scale():
    plain, scaled = mlp(), mlp()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=4)
    settings = {"p": 0.5, "T": 30, "policy": "gradient-norm"}
    opts = [rst(plain, **settings), rst(scaled, scaler=scaler, **settings)]
    for model, opt in zip((plain, scaled), opts, strict=True):
        train(model, opt, range(1, 31))
    assert opts[0].ascents == opts[1].ascents
    assert torch.allclose(weights(plain), weights(scaled), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rule", ["sam", "gsam", "looksam"])
def test_the_mixed_gradient_is_at_most_cap_times_g1_long(rule):
    lengths = {}
    for cap in (None, 0.5, 100.0):
        model, (x, y) = mlp(dtype=torch.float64), batch(1, dtype=torch.float64)
        g1 = torch.autograd.grad(cross_entropy(model(x), y), list(model.parameters()))
        start = weights(model)
        base = sgd(model, lr=1.0, momentum=0.0, weight_decay=0.0)
        train(model, rst(model, base, T=1, rule=rule, gamma_gnr=5.0, rho=0.5, cap=cap), range(1, 2))
        lengths[cap] = float((weights(model) - start).norm() / torch.cat([g.flatten() for g in g1]).norm())
    assert lengths[None] > 0.5
    assert lengths[0.5] == pytest.approx(0.5)
    assert lengths[100.0] == pytest.approx(lengths[None])


def test_the_listing_has_cost_options_and_citation():
    rules = {row.name: row for row in describe_rules()}
    assert rules["looksam"].cost == pytest.approx(0.2)
    assert rules["looksam"].options == {"k": 5, "alpha": 0.7}
    assert rules["s2sam"].cost == rules["msam"].cost == 0.0
    assert all(row.citation for row in [*rules.values(), *describe_policies()])
    assert describe_policies()[1].options == {"delta": 0.9}

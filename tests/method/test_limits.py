"""Limit cases: zero probability, radius or strength, and the count of pairs."""

import copy
import random
from itertools import product

import pytest
import torch
from small_nets import AHEAD, ALL_RULES, STEPS, TWO_PASS, batch, convnet, mlp, rst, sgd, train, weights
from torch.nn.functional import cross_entropy

from rst_tune import schedules
from rst_tune.method.ascent import RULES
from rst_tune.method.cost import expected_extra_propagation

BASES = {
    "sgd": lambda model: sgd(model),
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=1e-2),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2),
}
NOTHING = {"p = 0": {"p": 0.0}, "rho = 0": {"rho": 0.0}, "gamma = 0": {"gamma_gnr": 0.0}}


@pytest.mark.parametrize(("rule", "limit"), [*product(TWO_PASS, NOTHING), *product(AHEAD, ["p = 0", "rho = 0"])])
@pytest.mark.parametrize("base", BASES)
def test_without_ascent_it_is_the_base_optimizer_bit_for_bit(base, limit, rule):
    model = convnet()
    twin = copy.deepcopy(model)
    name, options = ALL_RULES[rule]
    opt = rst(model, BASES[base](model), rule=name, rule_options=options, **NOTHING[limit])
    torch.manual_seed(1)
    train(model, opt, shape=(1, 6, 6))
    bare = BASES[base](twin)
    torch.manual_seed(1)
    for t in range(1, STEPS + 1):
        x, y = batch(t, (1, 6, 6))
        bare.zero_grad()
        cross_entropy(twin(x), y).backward()
        bare.step()
    for (key, ours), theirs in zip(model.state_dict().items(), twin.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), key
    assert (opt.pairs, opt.ascents) == (STEPS, 0)


SAM_LIMITS = {
    "gsam": {"alpha": 0.0},
    "looksam": {"k": 1},
    "esam": {"beta": 1.0, "gamma": 1.0},
    "ssam": {"sparsity": 0.0},
    "fsam": {"sigma": 0.0},
    "vasso": {"theta": 1.0},
}


@pytest.mark.parametrize("rule", SAM_LIMITS)
def test_rules_with_a_limit_that_is_sam_reach_it(rule):
    model, sam = mlp(dtype=torch.float64), mlp(dtype=torch.float64)
    train(model, rst(model, p=0.7, rule=rule, rule_options=SAM_LIMITS[rule], gamma_gnr=1.5))
    train(sam, rst(sam, p=0.7, gamma_gnr=1.5))
    assert torch.allclose(weights(model), weights(sam), rtol=1e-9)


def test_every_rule_has_a_limit_that_is_sam_or_none_by_its_formula():
    assert set(RULES.names()) - set(SAM_LIMITS) == {"sam", "asam", "sam-on", "s2sam", "msam"}


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_pairs_are_steps_and_ascents(p):
    model = mlp()
    opt = rst(model, p=p, T=40)
    train(model, opt, range(1, 41))
    assert opt.pairs == 40 + opt.ascents
    assert (opt.ascents == 0) == (p == 0.0)
    assert (opt.ascents == 40) == (p == 1.0)


@pytest.mark.parametrize(
    ("rule", "options", "extra"),
    [
        ("sam", {}, 10.0),
        ("gsam", {}, 10.0),
        ("looksam", {"k": 5}, 2.0),
        ("esam", {"gamma": 0.5}, 10 * (1 / 3 + 0.5)),
        ("esam", {"gamma": 1.0}, 10.0),
        ("ssam", {"mask": "fisher", "samples": 8, "every": 4}, 10 + 3 * 8 / 16),
        ("ssam", {"mask": "dynamic"}, 10.0),
    ],
)
def test_pairs_of_the_rules_are_counted_as_they_happen(rule, options, extra):
    model = mlp()
    opt = rst(model, T=10, rule=rule, rule_options=options)
    train(model, opt, range(1, 11))
    assert opt.pairs == pytest.approx(10 + extra)
    assert opt.ascents == 10


def test_expected_extra_propagation_is_the_cost_of_a_rule():
    half = schedules.constant(0.5)
    assert expected_extra_propagation(half, 100) == 0.5
    assert expected_extra_propagation(half, 10_000, "looksam", {"k": 5}) == pytest.approx(0.1, abs=1e-4)
    assert expected_extra_propagation(half, 100, "esam", {"gamma": 0.5}) == pytest.approx(0.5 * (1 / 3 + 0.5))
    assert expected_extra_propagation(half, 100, "ssam", {"samples": 16, "every": 1}, 16) == pytest.approx(1.0)
    assert expected_extra_propagation(half, 100, "ssam", {"samples": 16, "every": 1}) == 0.5


OPTIONS = {
    "looksam": [{}, {"k": 2}],
    "esam": [{"gamma": 0.3}, {"gamma": 1.0}],
    "ssam": [{"samples": 8, "every": 2}, {"samples": 64, "every": 3}, {"mask": "dynamic"}],
}


@pytest.mark.parametrize(
    ("rule", "options"), [(rule, options) for rule in RULES.names() for options in OPTIONS.get(rule, [{}])]
)
def test_expected_pairs_are_the_mean_of_the_realized_ones(rule, options):
    """With 5 steps all 32 sequences of X_t can be run, so the expectation is exact."""
    T, p = 5, 0.4
    expected = expected_extra_propagation(schedules.constant(p), T, rule, options, batch_size=16)
    mean = 0.0
    for coins in product((0.0, 1.0), repeat=T):
        pinned = schedules.interpolate([((t + 1) / T, coin) for t, coin in enumerate(coins)])
        model = mlp()
        opt = rst(model, p=pinned, T=T, rule=rule, rule_options=options)
        train(model, opt, range(1, T + 1))
        assert opt.ascents == sum(coins)
        assert opt.pairs / T - 1.0 == pytest.approx(expected_extra_propagation(pinned, T, rule, options, 16), abs=1e-9)
        mean += p ** sum(coins) * (1 - p) ** (T - sum(coins)) * (opt.pairs / T - 1.0)
    assert mean == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("rule", ALL_RULES)
def test_global_random_streams_do_not_depend_on_the_coin(rule):
    name, options = ALL_RULES[rule]
    states = []
    for p in (0.0, 1.0):
        model = convnet()
        torch.manual_seed(5)
        random.seed(5)
        train(model, rst(model, p=p, rule=name, rule_options=options), shape=(1, 6, 6))
        states.append((torch.get_rng_state(), random.getstate()))
    assert torch.equal(states[0][0], states[1][0])
    assert states[0][1] == states[1][1]


def test_the_mean_gradient_of_g_rst_with_gamma_one_over_p_is_sams():
    """E[g] = g1 + p·(1/p)·(g_sam − g1) = g_sam."""
    after = {}
    for name, settings in {"sam": {}, "g-rst": {"gamma_gnr": 4.0}, "base": {"p": 0.0}}.items():
        model = mlp(dtype=torch.float64)
        start = weights(model)
        train(model, rst(model, sgd(model, momentum=0.0), T=1, **settings), range(1, 2))
        after[name] = weights(model) - start
    mean = 0.25 * after["g-rst"] + 0.75 * after["base"]
    assert torch.allclose(mean, after["sam"], rtol=1e-9)

"""Wrong input: each error states the rule, the value and the remedy, and nothing was changed before it."""

import pytest
import torch
from small_nets import batch, mlp, rst, sgd, train, weights
from torch import nn
from torch.nn.functional import cross_entropy

from rst_tune import RST, schedules
from rst_tune.errors import InputError
from rst_tune.method import ascent
from rst_tune.method.policies import POLICIES


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rule": "sma"}, "did you mean 'sam'"),
        ({"rule_options": {"k": 3}}, "option of rule sam 'k'"),
        ({"T": 0}, "total_steps >= 1 must hold, but got 0"),
        ({"T": 10.0}, "total_steps must be a whole number, but got 10.0"),
        ({"rho": -0.1}, "rho >= 0 must hold, but got rho = -0.1"),
        ({"rho": float("nan")}, "rho >= 0"),
        ({"gamma_gnr": -1.0}, "gamma_gnr >= 0"),
        ({"clip": 0.0}, "clip > 0"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"eps": "both"}, "unknown eps 'both'"),
        ({"eps": "local", "rule": "gsam"}, "use eps='global'"),
        ({"rule": "looksam", "rule_options": {"k": 0}}, "k >= 1"),
        ({"rule": "looksam", "rule_options": {"alpha": -1}}, "alpha >= 0"),
        ({"rule": "gsam", "rule_options": {"alpha": -1}}, "alpha >= 0"),
        ({"rule": "gsam", "rule_options": {"rho_min": 0.01}}, "lr_max > lr_min"),
        ({"rule": "asam", "rule_options": {"eta": -1}}, "eta >= 0"),
        ({"rule": "esam", "rule_options": {"beta": 0.0}}, "0 < beta <= 1"),
        ({"rule": "esam", "rule_options": {"gamma": 1.5}}, "0 < gamma <= 1"),
        ({"rule": "ssam", "rule_options": {"mask": "random"}}, "unknown mask"),
        ({"rule": "ssam", "rule_options": {"sparsity": 1.0}}, "0 <= sparsity < 1"),
        ({"rule": "ssam", "rule_options": {"every": 0}}, "every >= 1"),
        ({"rule": "fsam", "rule_options": {"lam": 1.0}}, "0 <= lam < 1"),
        ({"rule": "fsam", "rule_options": {"sigma": -1.0}}, "sigma >= 0"),
        ({"rule": "vasso", "rule_options": {"theta": 0.0}}, "0 < theta <= 1"),
        ({"rule": "s2sam", "gamma_gnr": 2.0}, "gamma_gnr = 1 must hold.*no g1 to mix with"),
        ({"rule": "msam", "gamma_gnr": 0.0}, "gamma_gnr = 1 must hold"),
        ({"rule": "s2sam", "cap": 2.0}, "use cap=None"),
        ({"rule": "msam", "policy": "gradient-norm"}, "use policy='coin'"),
        ({"rule": "s2sam", "eps": "local"}, "use eps='global'"),
        ({"rule": "s2sam", "weight_decay_in_ascent": True}, "no gradient at w"),
        ({"policy": "gradient"}, "did you mean 'gradient-norm'"),
        ({"policy": "gradient-norm", "eps": "local"}, "policy 'gradient-norm' needs the gradient of all ranks"),
        ({"policy": "gradient-norm", "policy_options": {"delta": 1.0}}, "0 < delta < 1"),
        ({"policy_options": {"delta": 0.9}}, "option of policy coin 'delta'"),
        ({"cap": 0.0}, "cap > 0"),
        ({"cap": 2.0, "eps": "local"}, "cap needs the gradient of all ranks"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(InputError, match=message):
        rst(mlp(), **settings)


def test_a_probability_out_of_range_on_the_horizon():
    class Rising(schedules.Schedule):
        family = "rising"

        def at(self, t, T):
            return t / 10

    rst(mlp(), p=Rising(), T=10)
    with pytest.raises(InputError, match=r"p\(t = 11\) = 1.1"):
        rst(mlp(), p=Rising(), T=11)


def test_wrong_objects():
    model = mlp()
    settings = {"total_steps": 3, "rho": 0.1}
    with pytest.raises(InputError, match="torch optimizer"):
        RST(model, model, schedule=schedules.cos1(), **settings)
    with pytest.raises(InputError, match="LBFGS"):
        RST(torch.optim.LBFGS(model.parameters()), model, schedule=schedules.cos1(), **settings)
    with pytest.raises(InputError, match="RST"):
        RST(rst(model), model, schedule=schedules.cos1(), **settings)
    with pytest.raises(InputError, match=r"schedules\.constant\(0\.5\)"):
        RST(sgd(model), model, schedule=0.5, **settings)


def test_a_step_past_the_last():
    model = mlp()
    opt = rst(model, T=2)
    train(model, opt, range(1, 3))
    before = weights(model)
    with pytest.raises(InputError, match="step 3 of 2"):
        train(model, opt, range(3, 4))
    assert torch.equal(weights(model), before)


@pytest.mark.parametrize("p", [0.0, 1.0])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda loss: loss.detach(), "requires no gradient"),
        (lambda loss: float(loss.detach()), "one number in a tensor"),
        (lambda loss: None, "returned None"),
        (lambda loss: loss.expand(3), "shape \\(3,\\)"),
    ],
)
def test_wrong_closures(spoil, message, p):
    model, (x, y) = mlp(), batch(1)
    opt, before = rst(model, p=p), weights(model)
    with pytest.raises(InputError, match=f"(?s){message}.*leave"):
        opt.step(lambda: spoil(cross_entropy(model(x), y)))
    assert torch.equal(weights(model), before)
    assert opt.t == 0


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_sparse_gradients(p):
    model = nn.Sequential(nn.Embedding(10, 3, sparse=True))
    opt = rst(model, torch.optim.SGD(model.parameters(), lr=0.1), p=p)
    before = weights(model)
    with pytest.raises(InputError, match=r"dense.*\(10, 3\).*sparse=False"):
        opt.step(lambda: model(torch.tensor([1, 2])).sum())
    assert torch.equal(weights(model), before)


@pytest.mark.parametrize("rule", ["esam", "ssam"])
def test_a_rule_that_uses_single_samples_names_the_argument(rule):
    model, (x, y) = mlp(), batch(1)
    opt = rst(model, rule=rule)
    with pytest.raises(InputError, match=r"per_sample=losses"):
        opt.step(lambda: cross_entropy(model(x), y))
    with pytest.raises(InputError, match="needs 2 per_sample, but got 1"):
        opt.step([lambda: cross_entropy(model(x), y)] * 2, per_sample=lambda i: cross_entropy(model(x), y))
    with pytest.raises(InputError, match="reduction='none'"):
        opt.step(lambda: cross_entropy(model(x), y), per_sample=lambda i: cross_entropy(model(x), y))
    rst(model, rule="esam", rule_options={"gamma": 1.0}).step(lambda: cross_entropy(model(x), y))


def test_a_state_of_another_rule():
    with pytest.raises(InputError, match="has no state"):
        ascent.build("sam").load_state_dict({"count": 3})


def test_every_rule_has_a_description_and_a_citation():
    for entry in ascent.RULES:
        assert entry.description
        assert entry.citation
        assert entry.value.name == entry.name
        assert (entry.value().expected_pairs([1.0] * 10) == 0.0) == entry.value.passes_ahead


def test_every_policy_has_a_description_and_a_citation():
    for entry in POLICIES:
        assert entry.description
        assert entry.citation
        assert entry.value.name == entry.name


def test_msam_needs_momentum_and_sam_on_needs_norm_layers():
    model = mlp()
    for base in (torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adagrad(model.parameters())):
        with pytest.raises(InputError, match=r"momentum.*Adam.*s2sam"):
            rst(model, base, rule="msam")
    with pytest.raises(InputError, match="BatchNorm or LayerNorm"):
        rst(nn.Linear(6, 3), rule="sam-on")

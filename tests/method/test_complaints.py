"""Known defects of other implementations, one test each."""

import copy
import io
import warnings
from itertools import product

import pytest
import torch
from small_nets import AHEAD, ALL_RULES, STEPS, TWO_PASS, batch, convnet, mlp, rst, sgd, train, weights, with_gamma
from torch import nn
from torch.nn.functional import cross_entropy

from rst_tune.errors import InputError
from rst_tune.method.policies import POLICIES


def saved_and_loaded(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("base", [sgd, lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2)], ids=["sgd", "adamw"])
@pytest.mark.parametrize(("rule", "policy"), [*product(TWO_PASS, POLICIES.names()), *product(AHEAD, ["coin"])])
def test_1_a_resumed_run_is_bit_identical(rule, policy, base):
    name, options = ALL_RULES[rule]
    gamma = {} if rule in AHEAD else {"gamma_gnr": 1.5, "cap": 2.0}
    settings = {"p": 0.7, "rule": name, "rule_options": options, "policy": policy, **gamma}
    whole = convnet()
    uninterrupted = rst(whole, base(whole), **settings)
    torch.manual_seed(2)
    train(whole, uninterrupted, shape=(1, 6, 6))

    first = convnet()
    opt = rst(first, base(first), **settings)
    torch.manual_seed(2)
    train(first, opt, range(1, 6), shape=(1, 6, 6))
    state = saved_and_loaded({"opt": opt.state_dict(), "model": first.state_dict(), "rng": torch.get_rng_state()})
    second = convnet(seed=9)
    resumed = rst(second, base(second), **settings)
    second.load_state_dict(state["model"])
    resumed.load_state_dict(state["opt"])
    torch.set_rng_state(state["rng"])
    train(second, resumed, range(6, STEPS + 1), shape=(1, 6, 6))

    for key, value in whole.state_dict().items():
        assert torch.equal(value, second.state_dict()[key]), key
    for attribute in ("t", "pairs", "ascents"):
        assert getattr(resumed, attribute) == getattr(uninterrupted, attribute)


def scaler(start=2.0**8):
    return torch.amp.GradScaler("cpu", init_scale=start, growth_interval=4)


@pytest.mark.parametrize(("rule", "gamma_gnr"), with_gamma(1.0, 2.0))
def test_2_a_gradient_scaler_changes_nothing(rule, gamma_gnr):
    name, options = ALL_RULES[rule]
    plain, scaled = mlp(), mlp()
    train(plain, rst(plain, rule=name, rule_options=options, gamma_gnr=gamma_gnr, clip=0.5))
    opt = rst(scaled, rule=name, rule_options=options, gamma_gnr=gamma_gnr, clip=0.5, scaler=scaler())
    train(scaled, opt)
    assert torch.allclose(weights(plain), weights(scaled), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("gamma_gnr", [1.0, 2.0])
@pytest.mark.parametrize("broken_pass", [1, 2])
@pytest.mark.parametrize("rule", [rule for rule in TWO_PASS if rule not in ("esam", "ssam-fisher")])
def test_2_an_inf_in_either_pass_skips_the_step(rule, broken_pass, gamma_gnr):
    name, options = ALL_RULES[rule]
    model = mlp()
    opt = rst(model, rule=name, rule_options={**options, **({"k": 2} if rule == "looksam" else {})},
              gamma_gnr=gamma_gnr, scaler=scaler())  # fmt: skip
    train(model, opt, range(1, 3))
    before, calls, (x, y) = weights(model), [], batch(3)

    def closure():
        calls.append(1)
        loss = cross_entropy(model(x), y)
        return loss * (float("inf") if len(calls) == broken_pass else 1.0)

    opt.step(closure)
    assert len(calls) == 2
    assert torch.equal(weights(model), before)
    assert opt.t == 3
    assert opt.scaler.get_scale() == 2.0**7
    train(model, opt, range(4, STEPS + 1))
    assert torch.isfinite(weights(model)).all()
    assert not torch.equal(weights(model), before)


class OwnNorm(nn.Module):
    """A custom batch norm, which replaces its buffers by new tensors."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            self.seen += 1
        return x - self.mean


def test_3_only_the_first_pass_updates_statistics():
    def build():
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(16)
        return nn.Sequential(OwnNorm(), nn.Linear(6, 16), nn.Sequential(norm, nn.Tanh(), norm), nn.Linear(16, 3))

    model, twin = build(), build()
    opt = rst(model)
    x, y = batch(1)
    for _ in range(3):
        twin.load_state_dict(model.state_dict())
        twin(x)  # one training-mode forward pass at the same weights
        opt.step(lambda: cross_entropy(model(x), y))
        for (name, ours), theirs in zip(model.named_buffers(), twin.buffers(), strict=True):
            assert torch.equal(ours, theirs), name
    assert int(model[2][0].num_batches_tracked) == 6  # the layer is used twice in a pass
    assert float(model[0].seen) == 3
    assert all(module.training for module in model.modules())


def test_3_a_closure_that_fails_leaves_weights_and_statistics():
    model, calls, (x, y) = convnet(), [], batch(1, (1, 6, 6))
    opt = rst(model)
    state = {}

    def closure():
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("out of memory")
        loss = cross_entropy(model(x), y)
        state.update(copy.deepcopy(model.state_dict()))
        return loss

    with pytest.raises(RuntimeError, match="out of memory"):
        opt.step(closure)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name
    assert opt.t == 0


def test_5_a_scheduler_changes_the_one_learning_rate_there_is():
    model = mlp()
    base = sgd(model)
    opt = rst(model, base)
    assert opt.param_groups is base.param_groups
    assert opt.state is base.state
    schedule = torch.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.5)
    train(model, opt, range(1, 2))
    schedule.step()
    assert base.param_groups[0]["lr"] == 0.05
    opt.load_state_dict(saved_and_loaded(opt.state_dict()))
    assert opt.param_groups is base.param_groups
    schedule.step()
    assert base.param_groups[0]["lr"] == 0.025
    opt.add_param_group({"params": [nn.Parameter(torch.zeros(2))], "lr": 0.3})
    assert [group["lr"] for group in base.param_groups] == [0.025, 0.3]


@pytest.mark.parametrize(("rule", "gamma_gnr"), with_gamma(1.0, 2.0))
@pytest.mark.parametrize("p", [0.0, 1.0])
def test_6_parts_of_a_batch_are_the_batch(rule, p, gamma_gnr):
    name, options = ALL_RULES[rule]
    if rule == "esam":  # it keeps the worst samples of each part, so only all of them are those of the whole batch
        options = {**options, "gamma": 1.0}
    whole, parted = mlp(dtype=torch.float64), mlp(dtype=torch.float64)
    settings = {"p": p, "rule": name, "rule_options": options, "gamma_gnr": gamma_gnr}
    train(whole, rst(whole, **settings))
    opt = rst(parted, **settings)
    for t in range(1, STEPS + 1):
        x, y = batch(t, dtype=torch.float64)
        halves = [slice(0, 8), slice(8, 16)]
        closures = [lambda h=h, x=x, y=y: cross_entropy(parted(x[h]), y[h]) for h in halves]
        each = [
            lambda i, h=h, x=x, y=y: cross_entropy(
                parted(x[h] if i is None else x[h][i]), y[h] if i is None else y[h][i], reduction="none"
            )
            for h in halves
        ]
        loss = opt.step(closures, per_sample=each)
    assert torch.allclose(weights(whole), weights(parted), rtol=1e-9)
    assert loss.shape == ()
    assert opt.pairs == pytest.approx(STEPS + (rst_pairs(rule, p)))


def rst_pairs(rule, p):
    each = {"looksam": STEPS / 3, "ssam-fisher": STEPS + 3 * 8 / 16, **dict.fromkeys(AHEAD, 0)}
    return p * each.get(rule, STEPS)


def test_7_step_returns_the_loss_of_the_first_pass():
    model, (x, y) = mlp(), batch(1)
    expected = cross_entropy(model(x), y)
    loss = rst(model).step(lambda: cross_entropy(model(x), y))
    assert torch.equal(loss, expected.detach())
    assert not loss.requires_grad


def test_8_an_ordinary_scheduler_gives_no_warning():
    model = mlp()
    opt = rst(model, scaler=scaler())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=STEPS)
        for t in range(1, STEPS + 1):
            train(model, opt, range(t, t + 1))
            schedule.step()
    assert opt.param_groups[0]["lr"] == pytest.approx(0.0)


@pytest.mark.parametrize("rule", ["sam", "gsam"])
def test_9_the_final_gradient_is_clipped_and_only_that(rule):
    unclipped, clipped = mlp(dtype=torch.float64), mlp(dtype=torch.float64)
    steps = {}
    for model, clip in ((unclipped, None), (clipped, 1e-3)):
        start = weights(model)
        train(model, rst(model, torch.optim.SGD(model.parameters(), lr=1.0), rule=rule, clip=clip), range(1, 2))
        steps[clip] = weights(model) - start
    assert float(steps[1e-3].norm()) == pytest.approx(1e-3, rel=1e-3)
    assert torch.allclose(steps[1e-3] / steps[1e-3].norm(), steps[None] / steps[None].norm(), rtol=1e-6)


def test_10_weight_decay_is_in_the_ascent_only_when_asked():
    def first_step(decay, **options):
        model = mlp(dtype=torch.float64)
        start, rho = weights(model), 0.3
        base = torch.optim.SGD(model.parameters(), lr=1.0, weight_decay=decay)
        train(model, rst(model, base, rho=rho, **options), range(1, 2))
        return weights(model) - start + decay * start  # what is left is −g2

    without = first_step(0.0)
    assert torch.allclose(first_step(0.5), without, rtol=1e-9)
    asked = first_step(0.5, weight_decay_in_ascent=True)
    assert (asked - without).norm() / without.norm() > 1e-3

    model, (x, y) = mlp(dtype=torch.float64), batch(1, dtype=torch.float64)
    cross_entropy(model(x), y).backward()
    up = torch.cat([(p.grad + 0.5 * p.detach()).flatten() for p in model.parameters()])
    nn.utils.vector_to_parameters(weights(model) + 0.3 * up / up.norm(), model.parameters())
    model.zero_grad()
    cross_entropy(model(x), y).backward()
    g2 = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert torch.allclose(asked, -g2, rtol=1e-9)


@pytest.mark.parametrize("rule", ALL_RULES)
def test_11_a_zero_gradient_is_no_nan(rule):
    name, options = ALL_RULES[rule]
    model, (x, _) = mlp(), batch(1)
    opt = rst(model, sgd(model, weight_decay=0.0), rule=name, rule_options=options)
    before = weights(model)

    def flat(indices=None):
        return (model(x if indices is None else x[indices]) * 0.0).sum(1)

    for _ in range(5):
        opt.step(lambda: flat().mean(), per_sample=flat)
    assert torch.equal(weights(model), before)


def test_11_a_dead_layer_is_no_nan():
    model = mlp()
    with torch.no_grad():
        model[3].weight.zero_()  # the gradient of the layers before it is zero
    opt = rst(model, rule="looksam", rule_options={"k": 2})
    train(model, opt)
    assert torch.isfinite(weights(model)).all()


def test_13_looksam_with_k_5_takes_12_pairs_for_10_ascents():
    model, calls = mlp(), []
    opt = rst(model, T=10, rule="looksam", rule_options={"k": 5})
    for t in range(1, 11):
        x, y = batch(t)
        opt.step(lambda x=x, y=y: (calls.append(1), cross_entropy(model(x), y))[1])
    assert (len(calls), opt.pairs, opt.ascents) == (12, 12.0, 10)


def test_13_looksam_counts_sharpness_aware_iterations_only():
    model = mlp()
    opt = rst(model, p=0.5, T=40, rule="looksam", rule_options={"k": 3})
    train(model, opt, range(1, 41))
    assert 10 < opt.ascents < 30
    assert opt.pairs == 40 + -(-opt.ascents // 3)


@pytest.mark.parametrize("parts", [1, 3])
def test_14_both_passes_have_the_same_dropout_masks(parts):
    dropout = nn.Dropout(0.5)
    model = nn.Sequential(nn.Linear(6, 64), dropout, nn.Linear(64, 3))
    masks = []
    dropout.register_forward_hook(lambda module, args, out: masks.append((out == 0) & (args[0] != 0)))
    x, y = batch(1)
    closure = lambda: cross_entropy(model(x), y)  # noqa: E731
    opt = rst(model)
    opt.step([closure] * parts)
    assert all(torch.equal(a, b) for a, b in zip(masks[:parts], masks[parts:], strict=True))
    assert not torch.equal(masks[0], masks[1]) or parts == 1
    opt.step([closure] * parts)
    assert not torch.equal(masks[0], masks[2 * parts])  # the next step draws anew


def test_a_state_of_other_settings_is_refused():
    model = mlp()
    state = rst(model, p=0.5).state_dict()
    with pytest.raises(InputError, match=r"seed was 0 and is 1.*strict=False"):
        rst(model, p=0.5, seed=1).load_state_dict(state)
    rst(model, p=0.5, seed=1).load_state_dict(state, strict=False)
    with pytest.raises(InputError, match=r"opt\.base"):
        rst(model).load_state_dict(sgd(model).state_dict())

"""Precision, compilation, frozen parameters, groups, and scales that stay on the device."""

import copy
from contextlib import nullcontext

import pytest
import torch
from small_nets import ALL_RULES, STEPS, batch, convnet, losses_of, mlp, rst, sgd, train, weights, with_gamma
from torch import nn
from torch.nn.functional import cross_entropy

from rst_tune import RST, schedules
from rst_tune.method import memory, vectors
from rst_tune.method.memory import WeightPerturbation


@pytest.mark.parametrize(("rule", "gamma_gnr"), with_gamma(1.0, 2.0))
def test_scales_that_stay_on_the_device_give_the_same(rule, gamma_gnr, monkeypatch):
    """On CUDA norms stay 0-dim tensors; the same code path is taken here on the CPU."""
    name, options = ALL_RULES[rule]
    settings = {"rule": name, "rule_options": options, "gamma_gnr": gamma_gnr, "p": 0.8}
    settings["cap"] = None if gamma_gnr == 1.0 else 1.1
    host, device = mlp(dtype=torch.float64), mlp(dtype=torch.float64)
    train(host, rst(host, **settings))
    monkeypatch.setattr(vectors, "is_host", lambda vector: False)
    assert isinstance(vectors.norm([torch.ones(3)]), torch.Tensor)
    train(device, rst(device, **settings))
    assert torch.allclose(weights(host), weights(device), rtol=1e-9)


@pytest.mark.parametrize("rule", ALL_RULES)
def test_an_inf_that_stays_on_the_device_skips_the_step_too(rule, monkeypatch):
    monkeypatch.setattr(vectors, "is_host", lambda vector: False)
    model, (name, options) = mlp(), ALL_RULES[rule]
    opt = rst(model, rule=name, rule_options=options, scaler=torch.amp.GradScaler("cpu", init_scale=4.0))
    train(model, opt, range(1, 3))
    before, calls, each = weights(model), [], losses_of(model, *batch(3))

    def losses(indices):
        calls.append(1)
        return each(indices) * (float("inf") if len(calls) == 1 else 1.0)

    opt.step(lambda: losses(None).mean(), per_sample=losses)
    assert torch.equal(weights(model), before)
    train(model, opt, range(4, STEPS + 1))
    assert torch.isfinite(weights(model)).all()


@pytest.mark.parametrize("size", [3, memory.LARGE])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_weights_are_restored_exactly(dtype, size):
    param = nn.Parameter(torch.randn(size).to(dtype))
    start, place, kept = param.detach().clone(), param.data_ptr(), WeightPerturbation()
    for _ in range(50):
        kept.move([param], [torch.randn(size).to(dtype)], 0.3)
        assert not torch.equal(param, start)
        kept.restore()
        assert torch.equal(param, start)
    assert param.data_ptr() == place


@pytest.mark.parametrize("cast", [lambda m: m.bfloat16(), lambda m: m.double()], ids=["bfloat16", "float64"])
def test_a_model_that_is_cast_between_steps(cast):
    model = mlp()
    opt = rst(model, sgd(model, momentum=0.0))
    train(model, opt, range(1, 3))
    cast(model)
    train(model, opt, range(3, 5))
    twin = copy.deepcopy(model)
    opt.rho = 0.0  # a base step from here
    train(model, opt, range(5, 6))
    x, y = batch(5, dtype=next(twin.parameters()).dtype)
    bare = sgd(twin, momentum=0.0)
    cross_entropy(twin(x), y).backward()
    bare.step()
    assert torch.equal(weights(model), weights(twin))


def test_a_large_parameter_that_is_a_view_keeps_its_storage():
    whole = torch.randn(2 * memory.LARGE)
    part = nn.Parameter(whole[: memory.LARGE])
    shared = torch.randn(memory.LARGE)
    twins = [nn.Parameter(shared), nn.Parameter(shared)]
    alone = nn.Parameter(torch.randn(memory.LARGE))
    kept, params = WeightPerturbation(), [part, *twins, alone]
    places = [p.data_ptr() for p in params]
    kept.move(params, [torch.ones_like(p) for p in params], 0.1)
    assert [p.data_ptr() == place for p, place in zip(params, places, strict=True)] == [True, True, True, False]
    kept.restore()
    assert [p.data_ptr() for p in params] == places


@pytest.mark.parametrize("rule", ALL_RULES)
def test_an_outer_autocast_and_a_gradient_scaler_change_nothing(rule):
    """Autocast caches the cast of a weight; after an ascent the cached casts are those of the weights before it.

    The scale is a power of two, so that it changes no bit.
    """
    inner, outer = mlp(), mlp()
    name, options = ALL_RULES[rule]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=4)
    cases = [(inner, nullcontext, None), (outer, lambda: torch.autocast("cpu", dtype=torch.bfloat16), scaler)]
    for model, around, scaled in cases:
        opt = rst(model, rho=0.5, rule=name, rule_options=options, scaler=scaled)
        for t in range(1, STEPS + 1):
            each = losses_of(model, *batch(t))

            def losses(indices, each=each):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    return each(indices)

            with around():
                opt.step(lambda losses=losses: losses(None).mean(), per_sample=losses)
    assert torch.equal(weights(inner), weights(outer))


def test_a_compiled_model():
    plain = convnet()
    compiled = convnet()
    wrapped = torch.compile(compiled, backend="aot_eager")
    ends = []
    for model, called in ((plain, plain), (compiled, wrapped)):
        torch.manual_seed(3)
        opt = RST(sgd(model), called, schedule=schedules.constant(0.6), total_steps=STEPS, rho=0.1, gamma_gnr=2.0)
        train(called, opt, shape=(1, 6, 6))
        ends.append(model.state_dict())
        assert 0 < opt.ascents < STEPS
    for name, value in ends[0].items():
        assert torch.allclose(value, ends[1][name], atol=1e-5), name


@pytest.mark.parametrize("rule", ALL_RULES)
def test_frozen_unused_and_grouped_parameters(rule):
    torch.manual_seed(0)
    model = nn.ModuleDict(
        {"body": nn.Linear(6, 8), "norm": nn.LayerNorm(8), "head": nn.Linear(8, 3), "unused": nn.Linear(2, 2)}
    )
    model["body"].bias.requires_grad_(False)
    groups = [
        {"params": model["body"].parameters(), "lr": 0.1},
        {"params": [*model["norm"].parameters(), *model["head"].parameters()], "lr": 0.0},
        {"params": model["unused"].parameters(), "lr": 0.1},
    ]
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    name, options = ALL_RULES[rule]
    opt = rst(model, torch.optim.SGD(groups, lr=0.1, momentum=0.5), rule=name, rule_options=options)

    def losses(x, y):
        return lambda i: cross_entropy(
            model["head"](model["norm"](model["body"](x if i is None else x[i])).tanh()),
            y if i is None else y[i],
            reduction="none",
        )

    for t in range(1, 7):
        if t == 5:
            model["body"].bias.requires_grad_(True)
        each = losses(*batch(t))
        opt.step(lambda each=each: each(None).mean(), per_sample=each)
        if t == 4:
            assert torch.equal(model["body"].bias, before["body.bias"])
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert changed == {"body.weight", "body.bias"}


class Tied(nn.Module):
    """One layer used twice, registered under one name or under two."""

    def __init__(self, names):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)
        inner = nn.Linear(8, 8)
        for name in names:
            setattr(self, name, inner)
        self.names = (names * 2)[:2]

    def forward(self, x):
        x = self.first(x)
        for name in self.names:
            x = getattr(self, name)(x).tanh()
        return self.last(self.norm(x))


@pytest.mark.parametrize("rule", ALL_RULES)
def test_shared_parameters_are_perturbed_once(rule):
    name, options = ALL_RULES[rule]
    once, twice = Tied(["inner"]), Tied(["inner", "outer"])
    for model in (once, twice):
        train(model, rst(model, rule=name, rule_options=options))
    assert torch.equal(weights(once), weights(twice))


def test_gsam_radius_follows_the_learning_rate():
    def first_step(lr, rho, **options):
        model = mlp(dtype=torch.float64)
        start = weights(model)
        base = torch.optim.SGD(model.parameters(), lr=lr)
        train(model, rst(model, base, rho=rho, rule="gsam", rule_options=options), range(1, 2))
        return (weights(model) - start) / lr

    follows = {"rho_min": 0.01, "lr_min": 0.0, "lr_max": 0.2}
    assert torch.allclose(first_step(0.05, 0.09, **follows), first_step(0.05, 0.01 + 0.08 / 4))
    assert torch.allclose(first_step(0.2, 0.09, **follows), first_step(0.2, 0.09))


def test_a_timer_is_called_at_the_end_of_every_phase():
    model, heard = mlp(), []
    train(model, rst(model, T=2, timer=heard.append), range(1, 3))
    train(model, rst(model, p=0.0, T=1, timer=heard.append), range(1, 2))
    train(model, rst(model, T=2, rule="looksam", timer=heard.append), range(1, 3))
    aware, plain = ["pass1", "pass2", "step"], ["pass1", "step"]
    assert heard == [*aware, *aware, *plain, *aware, *plain]


def test_ssam_masks_keep_their_density_and_move():
    model = mlp()
    opt = rst(model, T=20, rule="ssam", rule_options={"mask": "dynamic", "sparsity": 0.7, "every": 1})
    seen = []
    for t in range(1, 21):
        train(model, opt, range(t, t + 1))
        mask = torch.cat([m.flatten() for m in opt.state_dict()["param_groups"][0]["rst"]["rule"]["masks"].values()])
        assert int(mask.sum()) == round((1.0 - 0.7) * mask.numel())
        seen.append(mask)
    early, late = (int((seen[t] != seen[t + 1]).sum()) for t in (0, 18))
    assert early > late  # f falls with the cosine


def test_the_fisher_mask_leaves_the_model_in_training_mode():
    model = convnet()
    model[1].eval()
    tracked = int(model[1].num_batches_tracked)
    train(model, rst(model, rule="ssam", rule_options={"samples": 4}), range(1, 2), shape=(1, 6, 6))
    assert model.training
    assert not model[1].training
    assert int(model[1].num_batches_tracked) == tracked


def test_esam_takes_the_samples_whose_loss_rose():
    model, (x, y), asked = mlp(), batch(1), []

    def each(indices):
        asked.append(indices)
        return cross_entropy(model(x if indices is None else x[indices]), y if indices is None else y[indices],
                             reduction="none")  # fmt: skip

    rst(model, rule="esam", rule_options={"beta": 1.0, "gamma": 0.25}, rho=0.5).step(lambda: each(None).mean(), each)
    assert [None if i is None else len(i) for i in asked] == [None, None, 4]


def test_every_pass_of_esam_begins_with_the_same_random_stream():
    model, (x, y), states = convnet(), batch(1, (1, 6, 6)), []
    model.register_forward_pre_hook(lambda module, args: states.append(torch.get_rng_state()))
    each = losses_of(model, x, y)
    rst(model, rule="esam").step(lambda: each(None).mean(), each)
    assert len(states) == 3
    assert torch.equal(states[0], states[1])
    assert torch.equal(states[0], states[2])


def test_a_resumed_run_goes_on_with_the_scale_of_its_scaler():
    def start(model):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4, growth_interval=3)
        return rst(model, p=0.5, scaler=scaler)

    model = mlp()
    opt = start(model)
    train(model, opt, range(1, 8))
    resumed = start(model)
    resumed.load_state_dict(opt.state_dict())
    assert resumed.scaler.get_scale() == opt.scaler.get_scale() == 2.0**6

"""What an RST has to live with: precision, compilation, frozen parts, groups, devices that nobody waits for."""

import copy
from contextlib import nullcontext

import pytest
import torch
from small_nets import ALL_RULES, STEPS, batch, convnet, losses_of, mlp, rst, sgd, train, weights
from torch import nn
from torch.nn.functional import cross_entropy

from rst_tune import RST, schedules
from rst_tune.method import memory, vectors
from rst_tune.method.memory import WeightPerturbation


@pytest.mark.parametrize("gamma_gnr", [1.0, 2.0])
@pytest.mark.parametrize("rule", ALL_RULES)
def test_scales_that_stay_on_the_device_give_the_same(rule, gamma_gnr, monkeypatch):
    """On CUDA norms are tensors that nobody reads; the same way is taken here on the CPU."""
    name, options = ALL_RULES[rule]
    settings = {"rule": name, "rule_options": options, "gamma_gnr": gamma_gnr, "p": 0.8}
    host, device = mlp(dtype=torch.float64), mlp(dtype=torch.float64)
    train(host, rst(host, **settings))
    monkeypatch.setattr(vectors, "is_host", lambda vector: False)
    assert isinstance(vectors.norm([torch.ones(3)]), torch.Tensor)
    train(device, rst(device, **settings))
    assert torch.allclose(weights(host), weights(device), rtol=1e-9)


@pytest.mark.parametrize("rule", ["sam", "gsam", "looksam"])
def test_an_inf_that_nobody_waits_for_skips_the_step_too(rule, monkeypatch):
    monkeypatch.setattr(vectors, "is_host", lambda vector: False)
    model = mlp()
    options = {"k": 2} if rule == "looksam" else {}
    opt = rst(model, rule=rule, rule_options=options, scaler=torch.amp.GradScaler("cpu", init_scale=4.0))
    train(model, opt, range(1, 3))
    before, calls, (x, y) = weights(model), [], batch(3)

    def closure():
        calls.append(1)
        return cross_entropy(model(x), y) * (float("inf") if len(calls) == 1 else 1.0)

    opt.step(closure)
    assert torch.equal(weights(model), before)
    train(model, opt, range(4, STEPS + 1))
    assert torch.isfinite(weights(model)).all()


@pytest.mark.parametrize("size", [3, memory.LARGE])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_weights_come_back_exactly(dtype, size):
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


def test_a_large_parameter_that_is_part_of_more_stays_where_it_is():
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


def test_an_outer_autocast_does_not_keep_casts_of_the_wrong_weights():
    """Autocast caches the cast of a weight; after an ascent the cache would be of the weights before it."""
    inner, outer = mlp(), mlp()
    for model, around in ((inner, nullcontext), (outer, lambda: torch.autocast("cpu", dtype=torch.bfloat16))):
        opt = rst(model, rho=0.5)
        for t in range(1, STEPS + 1):
            x, y = batch(t)

            def closure(model=model, x=x, y=y):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    return cross_entropy(model(x), y)

            with around():
                opt.step(closure)
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
    model = nn.ModuleDict({"body": nn.Linear(6, 8), "head": nn.Linear(8, 3), "unused": nn.Linear(2, 2)})
    model["body"].bias.requires_grad_(False)
    groups = [
        {"params": model["body"].parameters(), "lr": 0.1},
        {"params": model["head"].parameters(), "lr": 0.0},
        {"params": model["unused"].parameters(), "lr": 0.1},
    ]
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    name, options = ALL_RULES[rule]
    opt = rst(model, torch.optim.SGD(groups, lr=0.1), rule=name, rule_options=options)

    def losses(x, y):
        return lambda i: cross_entropy(
            model["head"](model["body"](x if i is None else x[i]).tanh()),
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


def test_a_timer_hears_the_end_of_every_phase():
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
        mask = torch.cat([m.flatten() for m in opt.rule.state_dict()["masks"].values()])
        assert int(mask.sum()) == round(0.3 * mask.numel())
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


def test_esam_takes_the_samples_that_got_worse():
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

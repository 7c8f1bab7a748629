"""Rules that pass ahead: where the only pass is taken, what it changes, and what it costs."""

import pytest
import torch
from small_nets import AHEAD, STEPS, batch, convnet, mlp, rst, sgd, train, weights
from torch.nn.functional import cross_entropy

BASES = {
    "sgd": lambda model: sgd(model, nesterov=True),
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=1e-2),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2),
}
RHO = 0.1


def visited(model):
    """Return a list to which each forward pass appends the weights it is taken at."""
    path = []
    model.register_forward_pre_hook(lambda module, args: path.append(weights(module)))
    return path


def direction_of(opt, rule, last):
    if rule == "s2sam":
        return last
    states = [opt.state[p] for p in opt.model.parameters()]
    return -torch.cat([s.get("momentum_buffer", s.get("exp_avg")).flatten() for s in states])


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("rule", AHEAD)
def test_the_only_pass_is_at_w_plus_eps(rule, base):
    model = mlp(dtype=torch.float64)
    opt, path = rst(model, BASES[base](model), p=0.6, rho=RHO, rule=rule), visited(model)
    last = None
    for t in range(1, STEPS + 1):
        w, ascents = weights(model), opt.ascents
        expected = w
        if last is not None:
            direction = direction_of(opt, rule, last)
            expected = w + RHO * direction / direction.norm()
        x, y = batch(t, dtype=torch.float64)
        opt.step(lambda x=x, y=y: cross_entropy(model(x), y))
        assert torch.allclose(path[-1], expected if opt.ascents > ascents else w, rtol=1e-12)
        last = gradient_at(model, path[-1], x, y)
    assert len(path) == STEPS == opt.pairs
    assert 0 < opt.ascents < STEPS


def gradient_at(model, at, x, y):
    names, params = zip(*model.named_parameters(), strict=True)
    parts = [p.view_as(q).requires_grad_() for p, q in zip(at.split([q.numel() for q in params]), params, strict=True)]
    out = torch.func.functional_call(torch.nn.Sequential(*model), dict(zip(names, parts, strict=True)), (x,))
    return torch.cat([g.flatten() for g in torch.autograd.grad(cross_entropy(out, y), parts)])


@pytest.mark.parametrize("rule", AHEAD)
def test_the_only_pass_updates_statistics_once_and_draws_masks_once(rule):
    model, plain = convnet(), convnet()
    states = []
    for net, p in ((model, 1.0), (plain, 0.0)):
        torch.manual_seed(4)
        train(net, rst(net, p=p, rho=RHO, rule=rule), shape=(1, 6, 6))
        states.append(torch.get_rng_state())
    assert int(model[1].num_batches_tracked) == STEPS
    assert not torch.equal(model[1].running_mean, plain[1].running_mean)
    assert torch.equal(*states)


@pytest.mark.parametrize("rule", AHEAD)
def test_a_closure_that_fails_leaves_the_weights(rule):
    model = mlp()
    opt = rst(model, rule=rule, rho=RHO)
    train(model, opt, range(1, 3))
    before = weights(model)

    def closure():
        assert not torch.equal(weights(model), before)
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        opt.step(closure)
    assert torch.equal(weights(model), before)
    assert opt.t == 2


@pytest.mark.parametrize("rule", AHEAD)
def test_an_overflow_is_skipped_and_the_direction_before_it_is_kept(rule):
    model = mlp()
    opt = rst(model, rule=rule, rho=RHO, scaler=torch.amp.GradScaler("cpu", init_scale=4.0))
    train(model, opt, range(1, 3))
    before, path, (x, y) = weights(model), visited(model), batch(3)
    opt.step(lambda: cross_entropy(model(x), y) * float("inf"))
    assert torch.equal(weights(model), before)
    opt.step(lambda: cross_entropy(model(x), y))
    assert torch.equal(path[0], path[1])  # the direction and the weights are those of the skipped step
    assert not torch.equal(path[1], before)
    assert torch.isfinite(weights(model)).all()

"""A step in two calls, and gradient accumulation outside of step(), which a second pass cannot repeat."""

import pytest
import torch
from small_nets import ALL_RULES, STEPS, batch, losses_of, mlp, rst, train, weights
from torch.nn.functional import cross_entropy

from rst_tune.errors import InputError


@pytest.mark.parametrize("rule", ALL_RULES)
def test_propagate_and_step_are_one_step(rule):
    name, options = ALL_RULES[rule]
    ours, theirs = mlp(), mlp()
    own, split = (rst(model, p=0.6, rule=name, rule_options=options) for model in (ours, theirs))
    for t in range(1, STEPS + 1):
        x, y = batch(t)
        (expected,) = train(ours, own, range(t, t + 1))
        loss = split.propagate(lambda x=x, y=y: cross_entropy(theirs(x), y), losses_of(theirs, x, y))
        assert (split.t, split.step(), split.t) == (t - 1, loss, t)
        assert loss == expected
    assert torch.equal(weights(ours), weights(theirs))
    assert (split.pairs, split.ascents) == (own.pairs, own.ascents)


def test_the_gradient_may_be_changed_between_the_calls():
    clipped, split = mlp(), mlp()
    own, other = rst(clipped, clip=0.1, gamma_gnr=2.0), rst(split, gamma_gnr=2.0)
    train(clipped, own)
    for t in range(1, STEPS + 1):
        x, y = batch(t)
        other.propagate(lambda x=x, y=y: cross_entropy(split(x), y))
        torch.nn.utils.clip_grad_norm_(split.parameters(), 0.1)
        other.step()
    assert torch.equal(weights(clipped), weights(split))


def test_a_second_step_without_propagate_is_refused():
    model, (x, y) = mlp(), batch(1)
    opt = rst(model)
    opt.propagate(lambda: cross_entropy(model(x), y))
    opt.step()
    with pytest.raises(InputError, match="step needs a closure"):
        opt.step()
    assert opt.t == 1


def backward_only(model, t):
    def closure():
        loss = cross_entropy(model(batch(t)[0]), batch(t)[1])
        loss.backward()
        return loss

    return closure


def test_parts_accumulated_before_step_are_refused():
    model = mlp()
    opt, before = rst(model), weights(model)
    opt.zero_grad()
    backward_only(model, 1)()
    with pytest.raises(InputError, match=r"whole batch.*step\(\[closure of each part\]\)"):
        opt.step(backward_only(model, 2))
    assert torch.equal(weights(model), before)
    assert opt.t == 0


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zeroed_and_leftover_gradients_are_no_parts(set_to_none):
    model = mlp()
    opt = rst(model)
    for t in range(1, 4):
        opt.step(backward_only(model, t))  # the gradient of the step before is still there
    for t in range(4, 7):
        opt.zero_grad(set_to_none=set_to_none)
        opt.step(backward_only(model, t))
    assert opt.t == 6

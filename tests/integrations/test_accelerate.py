"""accelerate: the usual loop with closures, saved states, and accumulation, which is refused."""

import pytest
import torch
from small_nets import STEPS, batch, mlp, rst, train, weights
from torch.nn.functional import cross_entropy

from rst_tune.errors import InputError

accelerate = pytest.importorskip(
    "accelerate", reason="accelerate is not installed: pip install 'rst_tune[transformers]'"
)


@pytest.fixture(autouse=True)
def _own_state():
    """accelerate keeps its state in singletons; leave none to other tests."""
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


def prepared(accelerator, **settings):
    model = mlp()
    return accelerator.prepare(model, rst(model, p=0.6, gamma_gnr=2.0, **settings))


def closure_of(model, t):
    x, y = batch(t)
    return lambda: cross_entropy(model(x), y)


def test_the_usual_loop_is_our_own():
    accelerator = accelerate.Accelerator(cpu=True)
    model, opt = prepared(accelerator)
    for t in range(1, STEPS + 1):
        opt.step(closure_of(model, t))
    ours = mlp()
    train(ours, rst(ours, p=0.6, gamma_gnr=2.0))
    assert torch.equal(weights(model), weights(ours))


def test_accelerates_own_backward_and_clipping_between_propagate_and_step():
    accelerator = accelerate.Accelerator(cpu=True)
    model, opt = prepared(accelerator)
    for t in range(1, STEPS + 1):
        opt.optimizer.propagate(closure_of(model, t))
        accelerator.clip_grad_norm_(model.parameters(), 0.1)
        opt.step()
    ours = mlp()
    train(ours, rst(ours, p=0.6, gamma_gnr=2.0, clip=0.1))
    assert torch.equal(weights(model), weights(ours))


def test_a_saved_state_continues_exactly(tmp_path):
    accelerator = accelerate.Accelerator(cpu=True)
    model, opt = prepared(accelerator)
    for t in range(1, 6):
        opt.step(closure_of(model, t))
    accelerator.save_state(str(tmp_path))
    for t in range(6, STEPS + 1):
        opt.step(closure_of(model, t))
    finished, pairs = weights(model), opt.optimizer.pairs
    accelerator.load_state(str(tmp_path))
    assert opt.optimizer.t == 5
    for t in range(6, STEPS + 1):
        opt.step(closure_of(model, t))
    assert torch.equal(weights(model), finished)
    assert opt.optimizer.pairs == pairs


def test_parts_of_a_batch_as_a_list_of_closures():
    accelerator = accelerate.Accelerator(cpu=True)
    model, opt = prepared(accelerator)
    ours = mlp()
    own = rst(ours, p=0.6, gamma_gnr=2.0)
    for t in range(1, STEPS + 1):
        opt.step([closure_of(model, t), closure_of(model, t + 1)])
        own.step([closure_of(ours, t), closure_of(ours, t + 1)])
    assert torch.equal(weights(model), weights(ours))


def test_accumulate_is_refused_with_the_remedy():
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, opt = prepared(accelerator)
    before = weights(model)
    message = r"gradient_accumulation_steps = 1 must hold .* but it is 2: .*step\(\[closure of each part\]\)"
    with pytest.raises(InputError, match=message):  # noqa: PT012 - the first step is skipped by accelerate
        for t in (1, 2):
            with accelerator.accumulate(model):
                opt.step(closure_of(model, t))
    assert torch.equal(weights(model), before)


def test_the_loop_without_a_closure_names_the_remedy():
    accelerator = accelerate.Accelerator(cpu=True)
    model, opt = prepared(accelerator)
    accelerator.backward(closure_of(model, 1)())
    with pytest.raises(InputError, match=r"opt\.step\(lambda"):
        opt.step()

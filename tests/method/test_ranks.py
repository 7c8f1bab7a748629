"""Two gloo ranks: equal X_t, equal weights, and the weights of one process or of a literal computation."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rank_runs import PARTED, RUNS, STEPS, build, losses_of, run
from small_nets import batch, mlp, weights
from torch import nn

from rst_tune.method.coin import toss

HALVES = (slice(0, 8), slice(8, 16))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    script = Path(__file__).with_name("rank_runs.py")
    processes = [subprocess.Popen([sys.executable, str(script), str(rank), str(folder)]) for rank in (0, 1)]
    try:
        assert [process.wait(timeout=240) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    return [torch.load(folder / f"rank{rank}.pt") for rank in (0, 1)]


@pytest.mark.parametrize("name", [*RUNS, *(f"{name}-in-two-parts" for name in PARTED)])
def test_ranks_have_the_same_coins_and_weights(ranks, name):
    one, other = ranks[0][name], ranks[1][name]
    assert one["coins"] == other["coins"]
    assert 0 < sum(one["coins"]) < STEPS
    if name != "gradient-norm":
        assert one["coins"] == [int(toss(0, t, 0.7)) for t in range(1, STEPS + 1)]
    assert one["pairs"] == other["pairs"]
    for a, b in zip(one["path"], other["path"], strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", [name for name in RUNS if "local" not in name])
def test_a_global_eps_is_the_single_process_on_the_joined_batch(ranks, name):
    model = mlp(dtype=torch.float64)
    single = run(model, build(model, name), slice(None))
    for ours, joined in zip(ranks[0][name]["path"], single["path"], strict=True):
        assert torch.allclose(ours, joined, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["sam-local", "sam-local-gamma-2"])
def test_a_local_eps_is_the_one_computed_by_hand(ranks, name):
    model, gamma = mlp(dtype=torch.float64), RUNS[name].get("gamma_gnr", 1.0)
    w = weights(model)

    def gradient(at, half, t):
        nn.utils.vector_to_parameters(at, model.parameters())
        x, y = (whole[half] for whole in batch(t, dtype=torch.float64))
        grads = torch.autograd.grad(losses_of(model, x, y)(None).mean(), list(model.parameters()))
        return torch.cat([g.flatten() for g in grads])

    for t in range(1, STEPS + 1):
        parts = []
        for half in HALVES:
            g1 = gradient(w, half, t)
            g2 = gradient(w + 0.1 * g1 / g1.norm(), half, t)
            parts.append(g1 + gamma * (g2 - g1) if toss(0, t, 0.7) else g1)
        w = w - 0.1 * (parts[0] + parts[1]) / 2
        assert torch.allclose(ranks[0][name]["path"][t - 1], w, rtol=1e-9, atol=1e-12)


def test_the_two_kinds_of_eps_differ(ranks):
    local, shared = ranks[0]["sam-local"]["path"][-1], ranks[0]["sam-global"]["path"][-1]
    assert not torch.allclose(local, shared, rtol=1e-6)


def test_a_local_eps_exchanges_gradients_once_per_step(ranks):
    ascents = sum(ranks[0]["sam-local"]["coins"])
    assert ranks[0]["sam-local"]["exchanges"] == STEPS
    assert ranks[0]["sam-local-gamma-2"]["exchanges"] == STEPS
    assert ranks[0]["sam-global"]["exchanges"] == STEPS + ascents
    assert ranks[0]["s2sam"]["exchanges"] == ranks[0]["msam"]["exchanges"] == STEPS


@pytest.mark.parametrize("name", PARTED)
def test_parts_of_a_batch_and_bucket_views_change_nothing(ranks, name):
    whole, parted = ranks[0][name]["path"][-1], ranks[0][f"{name}-in-two-parts"]["path"][-1]
    assert torch.allclose(whole, parted, rtol=1e-9, atol=1e-12)


def test_ranks_with_other_seeds_are_refused(ranks):
    assert "ranks 0 and 1 differ in {'seed': (0, 1)}" in ranks[0]["refused"]
    assert ranks[0]["refused"] == ranks[1]["refused"]

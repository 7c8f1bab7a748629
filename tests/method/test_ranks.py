"""Two gloo ranks: equal X_t, equal weights, and the weights of one process or of a literal computation."""

import pytest
import torch
from rank_runs import PARTED, RUNS, STEPS, TORCH_CLOSURES, build, losses_of, run, run_ranks
from small_nets import batch, mlp, weights
from torch import nn

from rst_tune.method.ascent import RULES
from rst_tune.method.coin import toss
from rst_tune.method.policies import POLICIES

HALVES = (slice(0, 8), slice(8, 16))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return run_ranks("rank_runs.py", tmp_path_factory.mktemp("ranks"))


VARIANTS = [*(f"{name}-in-two-parts" for name in PARTED), *(f"{name}-torch-closure" for name in TORCH_CLOSURES)]


def test_every_rule_is_compared_with_a_single_process():
    compared = {run.get("rule", "sam") for name, run in RUNS.items() if "local" not in name}
    assert compared == set(RULES.names())
    assert {run.get("policy", "coin") for run in RUNS.values()} == set(POLICIES.names())


@pytest.mark.parametrize("name", [*RUNS, *VARIANTS])
def test_ranks_have_the_same_coins_and_weights(ranks, name):
    one, other = ranks[0][name], ranks[1][name]
    assert one["coins"] == other["coins"]
    assert 0 < sum(one["coins"]) < STEPS
    if not name.startswith("gradient-norm"):
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


@pytest.mark.parametrize("variant", VARIANTS)
def test_parts_bucket_views_and_torchs_closures_give_the_same_weights(ranks, variant):
    name = variant.removesuffix("-in-two-parts").removesuffix("-torch-closure")
    assert torch.allclose(ranks[0][name]["path"][-1], ranks[0][variant]["path"][-1], rtol=1e-9, atol=1e-12)


def test_ranks_with_other_seeds_are_refused(ranks):
    assert "ranks 0 and 1 differ in {'seed': (0, 1)}" in ranks[0]["refused"]
    assert ranks[0]["refused"] == ranks[1]["refused"]

"""FSDP2 on two gloo ranks: the weights are those of one process on the joined batch."""

import pytest
import torch
from fsdp_runs import CASES, build, run
from rank_runs import run_ranks
from small_nets import mlp

from rst_tune.method.ascent import RULES


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return run_ranks("fsdp_runs.py", tmp_path_factory.mktemp("fsdp"))


def single(name, base):
    model = mlp(dtype=torch.float64)
    return run(model, build(model, name, base), slice(None))


def assert_same(sharded, whole, steps=slice(None)):
    assert (sharded["pairs"], sharded["ascents"]) == (whole["pairs"], whole["ascents"])
    for ours, joined in zip(sharded["path"], whole["path"][steps], strict=True):
        assert torch.allclose(ours, joined, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "base"), CASES)
def test_shards_are_the_single_process_on_the_joined_batch(ranks, name, base):
    whole = single(name, base)
    assert whole["ascents"] > 0
    for results in ranks:
        assert_same(results[name, base], whole)


@pytest.mark.parametrize("name", ["sam-gamma-2", "gsam"])
def test_torchs_closures_work_with_shards(ranks, name):
    assert_same(ranks[0][name, "torch closure"], single(name, "sgd"))


def test_a_distributed_state_of_shards_resumes_exactly(ranks):
    assert_same(ranks[0]["resumed"], single("gradient-norm", "adamw"), slice(4, None))


def test_rules_that_keep_vectors_are_refused(ranks):
    assert set(ranks[0]["refused"]) == {e.name for e in RULES if e.value.keeps_vectors}
    assert all("not supported with FSDP2" in message for message in ranks[0]["refused"].values())

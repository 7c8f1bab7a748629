"""Lightning and the Hugging Face Trainer with DDP on two gloo ranks: the weights are those of one process."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ddp_runs import CASES, SETTINGS, SIZE, STEPS, network, result, rows, sgd
from torch.nn.functional import cross_entropy

from rst_tune import RST

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["lightning", "transformers"])
def ranks(request, tmp_path_factory):
    pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    folder = tmp_path_factory.mktemp(request.param)
    script = str(Path(__file__).with_name("ddp_runs.py"))
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [sys.executable, "-m", *launcher, script, request.param, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"{request.param}{rank}.pt") for rank in (0, 1)]


def one_process(case, parts):
    net, (x, y) = network(), rows(parts)
    opt = RST(sgd(net), net, total_steps=STEPS, clip=0.3, **SETTINGS, **CASES[case])
    for indices in torch.arange(len(x)).split(SIZE * parts):
        opt.step(lambda i=indices: cross_entropy(net(x[i]), y[i]))
    return result(net, opt)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_two_ranks_are_one_process_on_the_joined_batch(ranks, case, parts):
    expected = one_process(case, parts)
    assert expected["pairs"] > STEPS
    for of_rank in ranks:
        assert (of_rank[case, parts]["t"], of_rank[case, parts]["pairs"]) == (STEPS, expected["pairs"])
        torch.testing.assert_close(of_rank[case, parts]["weights"], expected["weights"], rtol=1e-9, atol=1e-12)

import pytest
import torch

# Before torch 2.7 `fully_shard` does not run on a CPU; doctests import the script of the ranks as well.
OLD = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7)
collect_ignore = ["fsdp_runs.py", "test_fsdp.py"] if OLD else []


@pytest.fixture(autouse=True)
def one_thread():
    """Numbers are compared bit for bit, and the machine is shared."""
    torch.set_num_threads(1)
    torch.manual_seed(0)

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Numbers are compared bit for bit, and the machine is shared."""
    torch.set_num_threads(1)
    torch.manual_seed(0)

"""Small shared data and one thread, so that runs repeat exactly."""

import pytest
import torch

from rst_tune.training.data import Dataset, load_dataset
from rst_tune.training.task import Task


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load_dataset(Task().data)

"""Checkpoints of any bytes: the state that was written, or an error that names the file."""

import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch

from rst_tune.training.checkpoint import CheckpointError, read_checkpoint, write_checkpoint


@pytest.fixture
def path(tmp_path):
    write_checkpoint({"identity": "x", "model": {"weight": torch.arange(300.0)}, "epoch": 3}, tmp_path / "run.pt")
    return tmp_path / "run.pt"


def test_what_was_written_is_read(path):
    state = read_checkpoint(path)
    assert (state["identity"], state["epoch"]) == ("x", 3)
    assert torch.equal(state["model"]["weight"], torch.arange(300.0))


def test_a_changed_weight_is_noticed(path):
    content = bytearray(path.read_bytes())
    content[content.index(torch.tensor([17.0, 18.0]).numpy().tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"run\.pt is damaged: wrong checksum of .*data/0"):
        read_checkpoint(path)


def test_any_bytes_are_the_state_or_an_error(path):
    whole, generator = path.read_bytes(), np.random.default_rng(0)
    errors = 0
    for case in range(1000):
        content = bytearray(whole)
        for position in generator.integers(0, len(whole), generator.integers(1, 9)):
            content[position] = generator.integers(256)
        if case % 4 == 0:
            content = content[: generator.integers(0, len(whole))]
        if case % 10 == 0:
            content = bytearray(generator.bytes(200))
        path.write_bytes(content)
        try:
            state = read_checkpoint(path)
        except CheckpointError:
            errors += 1
        else:
            assert torch.equal(state["model"]["weight"], torch.arange(300.0))
    assert errors > 500


@pytest.mark.parametrize("content", [pickle.dumps({"identity": "x"}), pickle.dumps([]), b"(" * 100_000, b"\x80\x02"])
def test_a_plain_pickle_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"run\.pt is damaged"):
        read_checkpoint(path)


def test_a_compressed_archive_is_refused_before_it_grows(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run/data.pkl", b"\0" * 50_000_000)
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="is compressed"):
            read_checkpoint(path)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_a_directory_or_a_list_is_no_checkpoint(path, tmp_path):
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_checkpoint(tmp_path)
    torch.save([1, 2], path)
    with pytest.raises(CheckpointError, match="does not hold the state of a run"):
        read_checkpoint(path)
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        read_checkpoint(tmp_path / "none.pt")

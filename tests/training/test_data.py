"""Sources, splits, constants, and every kind of wrong data."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from rst_tune.errors import InputError
from rst_tune.training import sources
from rst_tune.training.data import load_dataset
from rst_tune.training.files import ImageFiles
from rst_tune.training.task import DataSpec

GENERATOR = np.random.default_rng(0)


def arrays(shape=(3, 6, 5), train=60, test=20, classes=4):
    return {
        "x_train": GENERATOR.integers(0, 256, (train, *shape), dtype=np.uint8),
        "y_train": np.arange(train) % classes,
        "x_test": GENERATOR.integers(0, 256, (test, *shape), dtype=np.uint8),
        "y_test": np.arange(test) % classes,
    }


@pytest.fixture
def npz(tmp_path):
    def write(**changes):
        content = {key: value for key, value in {**arrays(), **changes}.items() if value is not None}
        np.savez(tmp_path / "set.npz", **content)
        return DataSpec(name="npz", root=str(tmp_path / "set.npz"))

    return write


@pytest.fixture
def folder(tmp_path):
    for part, count in (("train", 6), ("val", 2)):
        for label in ("cat", "dog"):
            (tmp_path / part / label).mkdir(parents=True)
            for number in range(count):
                pixels = GENERATOR.integers(0, 256, (20 + number, 31, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / part / label / f"{number}.png")
    return DataSpec(name="folder", root=str(tmp_path), image_size=16, validation=4)


def test_digits_are_split_without_overlap_and_measured_on_the_training_part():
    data = load_dataset(DataSpec(name="digits", validation=397, train_size=900))
    parts = (data.train, data.validation, data.test)
    assert [len(part) for part in parts] == [900, 397, 400]
    assert all(part.images.dtype == torch.uint8 and part.images.is_contiguous() for part in parts)
    together = torch.cat([part.images for part in parts]).flatten(1)
    assert len(torch.unique(together, dim=0)) == len(together)
    values = data.train.images.double() / 255
    assert data.mean == pytest.approx([float(values.mean())])
    assert data.std == pytest.approx([float(values.std(correction=0))])


def test_each_seed_moves_only_its_own_part():
    def load(**changes):
        return load_dataset(DataSpec(**{"name": "digits", "label_noise": 0.2, **changes}))

    base, split, noise = load(), load(split_seed=1), load(noise_seed=1)
    assert torch.equal(base.test.images, split.test.images)
    assert not torch.equal(base.validation.images, split.validation.images)
    assert torch.equal(base.train.images, noise.train.images)
    assert not torch.equal(base.train.labels, noise.train.labels)
    assert torch.equal(base.validation.labels, noise.validation.labels)
    clean = load(label_noise=0.0)
    assert int((clean.train.labels != base.train.labels).sum()) == base.noisy_labels == round(0.2 * len(base.train))
    assert torch.equal(clean.validation.labels, base.validation.labels)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "NHW"])
def test_npz_takes_the_usual_layouts(npz, layout):
    x_train, x_test = arrays()["x_train"], arrays()["x_test"]
    turn = {"NCHW": lambda x: x, "NHWC": lambda x: x.transpose(0, 2, 3, 1), "NHW": lambda x: x[:, 0]}[layout]
    data = load_dataset(npz(x_train=turn(x_train), x_test=turn(x_test)))
    expected = x_test[:, :1] if layout == "NHW" else x_test
    assert np.array_equal(data.test.images.numpy(), expected)
    assert data.classes == 4
    assert len(data.mean) == len(data.std) == expected.shape[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "missing: y_test"),
        ({"y_train": np.arange(60) % 4 - 1}, "labels must be 0 to 2"),
        ({"y_test": np.full(20, 4)}, r"labels must be 0 to 3 .* test split .* has 4 to 4"),
        ({"y_train": np.arange(59) % 4}, "60 images and 59 labels"),
        ({"y_train": np.zeros(60, dtype=int), "y_test": np.zeros(20, dtype=int)}, "at least 2 classes"),
        ({"y_train": np.linspace(0, 1, 60)}, "one whole number an image"),
        ({"x_train": np.zeros((60, 3, 6, 5))}, "must be uint8"),
        ({"x_train": np.zeros((60, 9), dtype=np.uint8)}, "channels first or last"),
        ({"x_test": np.zeros((20, 3, 7, 5), dtype=np.uint8)}, "the same shape"),
        ({"y_train": np.array([{}] * 60)}, "not a readable .npz"),
    ],
)
def test_a_wrong_npz_is_refused(npz, changes, message):
    with pytest.raises(InputError, match=message):
        load_dataset(npz(**changes))


@pytest.mark.parametrize("content", [b"", b"no zip at all"])
def test_a_file_that_is_no_npz_is_refused(tmp_path, content):
    (tmp_path / "set.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"set\.npz is not a readable"):
        load_dataset(DataSpec(name="npz", root=str(tmp_path / "set.npz")))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"name": "npz"}, "needs `root`"),
        ({"name": "npz", "root": "no/such/file.npz"}, "`root` must exist"),
        ({"name": "folder", "root": "no/such/folder"}, "`root` must exist"),
        ({"name": "folder", "root": "."}, "needs train/ and val/"),
        ({"name": "CIFAR11"}, "did you mean 'cifar1"),
        ({"name": "EMNIST", "root": "."}, "EMNIST has no plain training and test part"),
        ({"name": "digts"}, "did you mean 'digits'"),
        ({"name": "digits", "validation": 1397}, "leave images in both splits"),
        ({"name": "digits", "validation": 0.0001}, "leave images in both splits"),
        ({"name": "digits", "train_size": 1300}, "at most the 1118 images"),
    ],
)
def test_a_wrong_spec_is_refused(spec, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        load_dataset(DataSpec(**spec))


def test_a_set_that_is_neither_there_nor_to_be_had_names_the_remedy(tmp_path, monkeypatch):
    from torchvision.datasets import CIFAR10

    def offline(self):
        raise OSError("no route to host")

    monkeypatch.setattr(CIFAR10, "download", offline)
    with pytest.raises(InputError, match=r"could not be downloaded \(no route to host\): set `root`"):
        load_dataset(DataSpec(name="cifar10", root=str(tmp_path)))


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def test_a_torchvision_set_is_read_from_its_root_without_a_network(tmp_path, monkeypatch):
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    made = arrays(shape=(28, 28), train=40, test=20, classes=10)
    for part, prefix in (("train", "train"), ("test", "t10k")):
        write_idx(raw / f"{prefix}-images-idx3-ubyte", made[f"x_{part}"])
        write_idx(raw / f"{prefix}-labels-idx1-ubyte", made[f"y_{part}"])
    data = load_dataset(DataSpec(name="FashionMNIST", root=str(tmp_path), validation=10))
    assert data.shape == (1, 28, 28)
    assert np.array_equal(data.test.images[:, 0].numpy(), made["x_test"])
    assert data.test.labels.tolist() == made["y_test"].tolist()


def test_a_folder_stays_files_of_one_size(folder):
    data = load_dataset(folder)
    assert isinstance(data.train.images, ImageFiles)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [8, 4, 4]
    assert data.shape == (3, 16, 16)
    assert data.test.labels.tolist() == [0, 0, 1, 1]
    assert 0.4 < data.mean[0] < 0.6


def test_a_random_crop_depends_on_its_seed_alone(folder):
    files = load_dataset(folder).train.images
    state = torch.get_rng_state()
    first = files.read(0, (0, 1))
    files.read(3, (5, 5))
    assert torch.equal(first, files.read(0, (0, 1)))
    assert not torch.equal(first, files.read(0, (0, 2)))
    assert torch.equal(state, torch.get_rng_state())


def test_folders_with_different_classes_are_refused(folder, tmp_path):
    (tmp_path / "val" / "cat").rename(tmp_path / "val" / "cow")
    with pytest.raises(InputError, match=r"\['cat', 'cow'\]"):
        load_dataset(folder)


def test_a_data_set_pickles_without_copying_its_images(digits):
    buffers = []
    payload = pickle.dumps(digits, protocol=5, buffer_callback=buffers.append)
    images = sum(part.images.nbytes + part.labels.nbytes for part in (digits.train, digits.validation, digits.test))
    assert sum(buffer.raw().nbytes for buffer in buffers) == images
    assert len(payload) < 2000
    shared = [memoryview(buffer.raw()).toreadonly() for buffer in buffers]
    again = pickle.loads(payload, buffers=shared)
    assert torch.equal(again.train.images, digits.train.images)
    assert again.describe() == digits.describe()


def test_every_listed_source_says_what_it_is():
    assert {"digits", "npz", "folder", "CIFAR10", "CIFAR100", "FashionMNIST", "SVHN"} <= set(sources.SOURCES.names())
    assert all(entry.description for entry in sources.SOURCES)

"""Sources, splits, constants, and every kind of wrong data."""

import contextlib
import io
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rst_tune.errors import InputError
from rst_tune.training import data, sources
from rst_tune.training.data import load_dataset
from rst_tune.training.files import FileReader, ImageFiles, UnreadableError
from rst_tune.training.task import DataSpec, Task

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
        ({"y_train": np.linspace(0, 1, 60)}, "one whole number per image"),
        ({"x_train": np.zeros((60, 3, 6, 5))}, "must be uint8"),
        ({"x_train": np.zeros((60, 9), dtype=np.uint8)}, "channels first or last"),
        ({"x_test": np.zeros((20, 3, 7, 5), dtype=np.uint8)}, "the same shape"),
        ({"y_train": np.array([{}] * 60)}, "holds Python objects"),
    ],
)
def test_a_wrong_npz_is_refused(npz, changes, message):
    with pytest.raises(InputError, match=message):
        load_dataset(npz(**changes))


@pytest.mark.parametrize("content", [b"", b"no zip at all"])
def test_a_file_that_is_no_npz_is_refused(tmp_path, content):
    (tmp_path / "set.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"set\.npz is not"):
        load_dataset(DataSpec(name="npz", root=str(tmp_path / "set.npz")))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"name": "npz"}, "needs `root`"),
        ({"name": "npz", "root": "no/such/file.npz"}, "`root` must exist"),
        ({"name": "npz", "root": "x" * 5000}, "`root` must exist and be readable"),
        ({"name": "npz", "root": "a\0b"}, "`root` must exist and be readable"),
        ({"name": "folder", "root": "no/such/folder"}, "`root` must exist"),
        ({"name": "folder", "root": "."}, "needs train/ and val/"),
        ({"name": "CIFAR11"}, "did you mean 'cifar1"),
        ({"name": "EMNIST", "root": "."}, "EMNIST has no plain training and test split"),
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
    images += digits.clean_labels.nbytes
    assert sum(buffer.raw().nbytes for buffer in buffers) == images
    assert len(payload) < 2000
    shared = [memoryview(buffer.raw()).toreadonly() for buffer in buffers]
    again = pickle.loads(payload, buffers=shared)
    assert torch.equal(again.train.images, digits.train.images)
    assert again.describe() == digits.describe()


def test_every_listed_source_says_what_it_is():
    assert {"digits", "npz", "folder", "CIFAR10", "CIFAR100", "FashionMNIST", "SVHN"} <= set(sources.SOURCES.names())
    assert all(entry.description for entry in sources.SOURCES)


def test_a_relative_root_works_from_any_working_directory(npz, folder, tmp_path, monkeypatch):
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    relative = folder.model_copy(update={"root": tmp_path.name})
    monkeypatch.chdir(tmp_path.parent)
    data = load_dataset(relative)
    resolved = relative.resolved(Path("..") / tmp_path.parent.name)
    monkeypatch.chdir(elsewhere)
    assert torch.equal(data.train.images.read(0), load_dataset(resolved).train.images.read(0))
    spec = npz()
    assert spec.resolved(elsewhere) == spec
    assert load_dataset(DataSpec(name="npz", root="../set.npz").resolved(elsewhere)).classes == 4


def test_the_users_home_is_expanded(npz, tmp_path, monkeypatch):
    spec = npz()
    monkeypatch.setenv("HOME", str(tmp_path))
    home = DataSpec(name="npz", root="~/set.npz")
    assert home.resolved(Path("/other")) == spec
    assert load_dataset(home).classes == 4
    assert DataSpec().resolved(Path("/other")) == DataSpec()


def npz_bytes(**changes):
    file = io.BytesIO()
    np.savez(file, **{**arrays(), **changes})
    return file.getvalue()


def with_member(name, content):
    """Return a .npz file whose member `name` has this content."""
    source, target = io.BytesIO(npz_bytes()), io.BytesIO()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for each in old.namelist():
            new.writestr(each, content if each == name else old.read(each))
    return target.getvalue()


def npy_header(shape, descr="|u1", version=1):
    text = str({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b"\n"
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npz_bytes()[:-200], "must be a .npz file"),
        (npz_bytes()[:2000] + b"\0" * 500 + npz_bytes()[2500:], "not a readable .npz"),
        (with_member("x_train.npy", npy_header((10**13, 28, 28)) + b"\0" * 100), "declares .* bytes and holds"),
        (with_member("x_train.npy", npy_header((2**62, 2**62))), "declares .* bytes and holds"),
        (with_member("y_train.npy", b"\x93NUMPY\2\0\xff\xff\xff\x7f{"), "not a readable .npz"),
        (with_member("y_train.npy", b"\x93NUMPY\7\0" + b"\0" * 99), "version 1 or 2"),
        (with_member("y_train.npy", b""), "not a readable .npz"),
        (with_member("y_train.npy", npy_header((3,), "|O") + pickle.dumps([1, 2, 3])), "holds Python objects"),
        (npz_bytes(x_train=np.zeros((60, 3, 0, 5), dtype=np.uint8)), "at least one pixel"),
        (npz_bytes(y_train=np.array([0, 10**12] * 30)), "at most 100000 classes"),
        (npz_bytes(y_train=np.array(3)), "one whole number per image"),
    ],
)
def test_a_damaged_npz_is_refused(tmp_path, content, message):
    (tmp_path / "set.npz").write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_dataset(DataSpec(name="npz", root=str(tmp_path / "set.npz")))


def test_damaged_bytes_anywhere_in_an_npz_are_an_input_error_or_other_data(tmp_path):
    whole, generator = npz_bytes(), np.random.default_rng(1)
    for _ in range(300):
        damaged = bytearray(whole)
        for position in generator.integers(0, len(whole), generator.integers(1, 6)):
            damaged[position] = generator.integers(256)
        (tmp_path / "set.npz").write_bytes(damaged[: generator.integers(1, len(whole))] if _ % 3 == 0 else damaged)
        with contextlib.suppress(InputError):
            load_dataset(DataSpec(name="npz", root=str(tmp_path / "set.npz")))


def test_a_root_that_is_not_an_npz_file_is_refused(tmp_path):
    np.save(tmp_path / "set.npy", np.zeros(3))
    for root, message in ((tmp_path / "set.npy", r"set\.npy is not"), (tmp_path, "is a directory")):
        with pytest.raises(InputError, match=message):
            load_dataset(DataSpec(name="npz", root=str(root)))


def write_image(path, shade):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (20, 24), (shade, 0, 0)).save(path)


def make_oxfordiiitpet(root):
    base = root / "oxford-iiit-pet"
    (base / "annotations").mkdir(parents=True)
    for split, count in (("trainval", 8), ("test", 4)):
        rows = [f"{'Abyssinian' if n % 2 else 'beagle'}_{split}{n} {n % 2 + 1} {n % 2 + 1} 1" for n in range(count)]
        (base / "annotations" / f"{split}.txt").write_text("\n".join(rows))
        for row in rows:
            write_image(base / "images" / f"{row.split()[0]}.jpg", 90)


def make_imagenette(root):
    for split, count in (("train", 4), ("val", 2)):
        for wnid in ("n01440764", "n02102040"):
            for number in range(count):
                write_image(root / "imagenette2" / split / wnid / f"{number}.jpeg", 90)


def make_gtsrb(root):
    base = root / "gtsrb"
    for label in range(2):
        for number in range(4):
            write_image(base / "GTSRB" / "Training" / f"0000{label}" / f"{number}.ppm", 90)
    rows = [f"{number}.ppm;{number % 2}" for number in range(4)]
    for row in rows:
        write_image(base / "GTSRB" / "Final_Test" / "Images" / row.split(";")[0], 90)
    (base / "GT-final_test.csv").write_text("Filename;ClassId\n" + "\n".join(rows))


@pytest.mark.parametrize("make", [make_oxfordiiitpet, make_imagenette, make_gtsrb])
def test_listed_file_sets_of_torchvision_load(tmp_path, make):
    make(tmp_path)
    name = make.__name__.removeprefix("make_")
    assert name in sources.CLASSIFICATION_SETS
    data = load_dataset(DataSpec(name=name, root=str(tmp_path), validation=2, image_size=16))
    assert (len(data.train), len(data.validation), len(data.test), data.classes) == (6, 2, 4, 2)
    assert sorted(data.test.labels.tolist()) == [0, 0, 1, 1]


@pytest.mark.parametrize("name", sources.CLASSIFICATION_SETS)
def test_every_listed_set_accepts_the_names_of_its_splits(name, tmp_path, monkeypatch):
    """Without files and network the constructor gets as far as the download, so it accepted the split."""
    from torchvision.datasets import utils

    def offline(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(utils, "_urlretrieve", offline)
    monkeypatch.setattr("urllib.request.urlopen", offline)
    with pytest.raises(InputError, match="could not be downloaded"):
        load_dataset(DataSpec(name=name, root=str(tmp_path)))


def test_the_digest_is_that_of_the_content(digits, npz, tmp_path):
    assert digits.digest() == pickle.loads(pickle.dumps(digits)).digest() == load_dataset(Task().data).digest()
    content = arrays()
    first = load_dataset(npz(**content)).digest()
    assert first == load_dataset(npz(**content)).digest()
    for key in ("x_train", "x_test", "y_train", "y_test"):
        # The last element: a digest of the first few images would not see it.
        changed = {**content, key: content[key].copy()}
        changed[key].flat[-1] = (changed[key].flat[-1] + 1) % 4
        assert load_dataset(npz(**changed)).digest() != first


def test_the_digest_of_files_is_that_of_names_sizes_and_content(folder, tmp_path):
    first = load_dataset(folder).digest()
    for path in sorted(tmp_path.rglob("*.png")):
        path.touch()
    copied = shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name} copy")
    assert load_dataset(folder.model_copy(update={"root": str(copied)})).digest() == first
    picture = tmp_path / "train" / "cat" / "3.png"
    whole = picture.read_bytes()
    picture.write_bytes(whole + b"\0")
    assert load_dataset(folder).digest() != first
    picture.write_bytes(whole[:-1] + b"\1")
    assert load_dataset(folder).digest() != first
    picture.write_bytes(whole)
    assert load_dataset(folder).digest() == first
    picture.rename(picture.with_name("33.png"))
    assert load_dataset(folder).digest() != first


@pytest.mark.parametrize("make", [make_oxfordiiitpet, make_imagenette, make_gtsrb])
def test_file_sets_of_torchvision_have_a_digest(tmp_path, make):
    make(tmp_path)
    name = make.__name__.removeprefix("make_")
    assert load_dataset(DataSpec(name=name, root=str(tmp_path), validation=2, image_size=16)).digest()


@pytest.mark.parametrize("damage", [lambda whole: whole[: len(whole) // 2], lambda _: b"no image", lambda _: b""])
def test_an_image_that_cannot_be_read_is_named(folder, tmp_path, damage):
    path = tmp_path / "train" / "cat" / "0.png"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=r"every image must be readable, .*cat/0\.png"):
        load_dataset(folder.model_copy(update={"validation": 1}))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_image_is_named_in_one_line_and_one_that_only_this_node_cannot_read_is_no_input_error(
    folder, tmp_path, workers
):
    images = load_dataset(folder.model_copy(update={"validation": 1})).train.images
    reader = FileReader([images], workers=workers, pin_memory=False)
    batches = [[(0, i, None) for i in range(len(images))]]
    path = Path(images._path(int(images.indices[0])))
    path.write_bytes(b"no image")
    with pytest.raises(InputError, match=f"^every image must be readable, {path} is not: .*$"):
        list(reader.read(batches))
    path.unlink()
    with pytest.raises(UnreadableError) as raised:
        list(reader.read(batches))
    assert raised.value.filename == str(path)
    with pytest.raises(InputError, match="every image must be readable"):
        data._measure(images)


def test_a_replicate_has_a_split_of_its_own_seed_with_the_same_sizes_and_share_of_wrong_labels(digits):
    one, again, other = digits.resplit(1), digits.resplit(1), digits.resplit(2)
    assert torch.equal(one.validation.images, again.validation.images)
    assert not torch.equal(one.validation.images, other.validation.images)
    for replicate in (one, other):
        assert replicate.describe() == digits.describe()
        assert torch.equal(replicate.test.images, digits.test.images)
        wrong = (replicate.train.labels.numpy() != replicate.clean_labels).sum()
        assert wrong == digits.noisy_labels
    pool = torch.cat([digits.train.images, digits.validation.images]).flatten(1).double().sum(1).sort().values
    mixed = torch.cat([one.train.images, one.validation.images]).flatten(1).double().sum(1).sort().values
    assert torch.equal(pool, mixed), "the same images, divided in another way"

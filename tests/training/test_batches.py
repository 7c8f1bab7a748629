"""Batches from memory and from files: the same order, augmentation and shares, from any step on."""

import multiprocessing
import os
import tracemalloc

import numpy as np
import pytest
import torch
from PIL import Image

from rst_tune.training import batches as batches_module
from rst_tune.training.augment import crop, cutout, draw_epoch, flip
from rst_tune.training.batches import Batch, Layout, make_batches
from rst_tune.training.data import Dataset, Split, load_dataset
from rst_tune.training.files import RESIZE_MARGIN, ImageFiles
from rst_tune.training.task import DataSpec, Task

CPU = torch.device("cpu")
SIZE = 14
AUGMENT = ("flip", "crop", "cutout", "mixup")


def task(spec, augment=AUGMENT, **recipe):
    settings = {"base": "digits", "batch_size": 6, "cutout_size": 4, **recipe}
    return Task.model_validate({"data": {**spec.model_dump(), "augment": augment}, "recipe": settings})


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """The same pictures as a folder and as a .npz file."""
    root = tmp_path_factory.mktemp("pictures")
    generator = np.random.default_rng(0)
    content = {}
    # The evaluation crop takes the centre of a slightly larger picture, so only that centre goes into the array.
    side = round(SIZE * RESIZE_MARGIN)
    low = round((side - SIZE) / 2)
    for part, count in (("train", 20), ("test", 4)):
        pictures = generator.integers(0, 256, (2, count, side, side, 3), dtype=np.uint8)
        for label, some in enumerate(pictures):
            (root / part / str(label)).mkdir(parents=True)
            for number, picture in enumerate(some):
                Image.fromarray(picture).save(root / part / str(label) / f"{number:02}.png")
        content[f"x_{part}"] = pictures.reshape(-1, side, side, 3)[:, low : low + SIZE, low : low + SIZE]
        content[f"y_{part}"] = np.repeat([0, 1], count)
    np.savez(root / "set.npz", **content)
    folder = DataSpec(name="folder", root=str(root), image_size=SIZE, validation=10)
    return {"folder": folder, "npz": DataSpec(name="npz", root=str(root / "set.npz"), validation=10)}


def epoch_of(spec, *, start=0, epoch=3, augment=AUGMENT, layout=None, **recipe):
    data = load_dataset(spec)
    made = make_batches(task(spec, augment, **recipe), data, layout or Layout(device=CPU), seed=1)
    return list(made.epoch(epoch, start))


def assert_equal(some, others):
    assert len(some) == len(others) > 0
    for one, other in zip(some, others, strict=True):
        assert torch.equal(one.labels, other.labels)
        assert torch.allclose(one.images, other.images, atol=1e-6)
        assert (one.partners is None) == (other.partners is None)
        if one.partners is not None:
            assert torch.equal(one.partners, other.partners)
            assert torch.equal(one.weight, other.weight)


@pytest.mark.parametrize("workers", [0, 2])
def test_files_and_memory_give_the_same_batches(sets, workers):
    folder = sets["folder"].model_copy(update={"workers": workers})
    assert_equal(epoch_of(folder), epoch_of(sets["npz"]))


@pytest.mark.parametrize("kind", ["folder", "npz"])
def test_an_epoch_can_be_entered_at_any_step(sets, kind):
    spec = sets[kind].model_copy(update={"workers": 0})
    whole = epoch_of(spec)
    for start in range(5):
        assert_equal(epoch_of(spec, start=start), whole[start:])
    assert not torch.equal(whole[0].images, epoch_of(spec, epoch=4)[0].images)


def test_batches_prepared_together_are_those_prepared_alone(sets, monkeypatch):
    together = epoch_of(sets["npz"])
    monkeypatch.setattr(batches_module, "CHUNK_VALUES", 1)
    assert_equal(together, epoch_of(sets["npz"]))


def test_a_set_that_does_not_fit_on_the_device_gives_the_same_batches(sets, monkeypatch):
    resident = epoch_of(sets["npz"])
    monkeypatch.setattr(batches_module, "RESIDENT_BYTES", 0)
    assert_equal(resident, epoch_of(sets["npz"]))


@pytest.mark.parametrize("kind", ["folder", "npz"])
@pytest.mark.parametrize("world", [2, 3, 6])
def test_slices_of_all_ranks_make_up_the_batch(sets, kind, world):
    spec = sets[kind].model_copy(update={"workers": 0})
    whole = epoch_of(spec)
    slices = [epoch_of(spec, layout=Layout(device=CPU, rank=rank, world=world)) for rank in range(world)]
    for batch, *pieces in zip(whole, *slices, strict=True):
        joined = Batch(*(torch.cat([getattr(piece, name) for piece in pieces]) for name in ("images", "labels")))
        assert torch.equal(batch.labels, joined.labels)
        assert torch.allclose(batch.images, joined.images, atol=1e-6)
        assert torch.equal(batch.partners, torch.cat([piece.partners for piece in pieces]))
        assert all(torch.equal(batch.weight, piece.weight) for piece in pieces)


def test_a_batch_is_the_drawn_images_augmented_and_normalized(sets):
    augment = ("flip", "crop", "cutout")
    data = load_dataset(sets["npz"])
    drawn = draw_epoch(30, 6, data.shape, augment, mixup_alpha=0.2, seed=1, epoch=3)
    mean, std = torch.tensor(data.mean)[:, None, None], torch.tensor(data.std)[:, None, None]
    for number, batch in enumerate(epoch_of(sets["npz"], augment=augment)):
        rows = slice(6 * number, 6 * number + 6)
        indices = drawn.order[rows]
        images = crop(flip(data.train.images[indices], drawn.flips[rows]), drawn.offsets[rows])
        expected = cutout((images / 255 - mean) / std, drawn.centres[rows], 4)
        assert torch.equal(batch.labels, data.train.labels[indices])
        assert torch.allclose(batch.images, expected, atol=1e-5)


def test_channels_last_changes_the_layout_only(sets):
    last = epoch_of(sets["npz"], layout=Layout(device=CPU, channels_last=True))
    assert all(batch.images.is_contiguous(memory_format=torch.channels_last) for batch in last)
    assert_equal(last, epoch_of(sets["npz"]))


@pytest.mark.parametrize("kind", ["folder", "npz"])
def test_evaluation_covers_a_part_once_over_all_processes(sets, kind):
    spec = sets[kind].model_copy(update={"workers": 0})
    data = load_dataset(spec)
    labels = []
    for rank in range(3):
        made = make_batches(task(spec), data, Layout(device=CPU, rank=rank, world=3), seed=0)
        labels += [int(label) for batch in made.evaluation(data.validation) for label in batch.labels]
    assert sorted(labels) == sorted(data.validation.labels.tolist())


def test_random_crops_of_files_do_not_depend_on_the_workers(sets):
    crops = [
        epoch_of(sets["folder"].model_copy(update={"workers": workers}), augment=("resized-crop", "mixup"))
        for workers in (0, 2)
    ]
    assert_equal(*crops)
    assert not torch.equal(crops[0][0].images, epoch_of(sets["folder"], augment=("mixup",))[0].images)


def test_the_fixed_sample_is_of_all_classes_and_the_same_for_every_seed(sets):
    data = load_dataset(sets["npz"])
    first, second = (make_batches(task(sets["npz"]), data, Layout(device=CPU), seed=seed).sample(12) for seed in (0, 1))
    assert_equal([first], [second])
    assert set(first.labels.tolist()) == {0, 1}


class ProcessSource:
    """Images whose colour is the number of the process that made them."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return Image.new("RGB", (2, 2), tuple(os.getpid().to_bytes(3, "little"))), 0


def process_batches(count, workers):
    def split(size):
        return Split(ImageFiles(ProcessSource(size), size=2), torch.zeros(size, dtype=torch.int64))

    data = Dataset(
        train=split(count),
        validation=split(12),
        test=split(12),
        classes=2,
        shape=(3, 2, 2),
        mean=(0.0,) * 3,
        std=(1 / 255,) * 3,
        noisy_labels=0,
        clean_labels=np.zeros(count, dtype=np.int64),
    )
    spec = DataSpec(name="folder", root="unused", workers=workers)
    return data, make_batches(task(spec, ()), data, Layout(device=CPU), seed=0)


def processes_of(batches):
    colours = {tuple(image[:, 0, 0].round().int().tolist()) for batch in batches for image in batch.images}
    return {int.from_bytes(bytes(colour), "little") for colour in colours}


def test_the_same_workers_read_every_epoch_and_evaluation_and_end_with_the_run():
    data, made = process_batches(48, workers=2)
    first = processes_of(made.epoch(0))
    assert len(first) == 2
    assert os.getpid() not in first
    assert processes_of(made.epoch(1)) == processes_of(made.evaluation(data.validation)) == first
    assert processes_of(made.epoch(2, 5)) <= first
    del made
    assert not first & {child.pid for child in multiprocessing.active_children()}


@pytest.mark.parametrize("workers", [0, 2])
def test_an_evaluation_in_the_middle_of_an_epoch_does_not_change_its_batches(sets, workers):
    spec = sets["folder"].model_copy(update={"workers": workers})
    data = load_dataset(spec)
    made = make_batches(task(spec, ("resized-crop", "mixup")), data, Layout(device=CPU), seed=1)
    whole, seen = list(made.epoch(3)), []
    for number, batch in enumerate(made.epoch(3)):
        seen.append(batch)
        if number in (0, 3):
            assert sum(len(each.labels) for each in made.evaluation(data.validation)) == len(data.validation)
    assert_equal(seen, whole)


def test_the_start_of_an_epoch_does_not_list_every_image():
    _, made = process_batches(300_000, workers=0)
    next(made.epoch(0))
    tracemalloc.start()
    try:
        next(made.epoch(1))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # One tuple per image would take 50 MB.
    assert peak < 2e6

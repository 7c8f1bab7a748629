"""Every augmentation of a batch against a plain one, image by image; the draws against (seed, epoch)."""

import pytest
import torch
from torchvision.transforms import v2

from rst_tune.training.augment import PADDING, crop, cutout, draw_epoch, flip, mixup

AUGMENT = ("flip", "crop", "cutout", "mixup")


@pytest.fixture
def images():
    return torch.randint(0, 256, (12, 3, 9, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def draws(augment=AUGMENT, seed=0, epoch=0, count=100):
    return draw_epoch(count, 8, (3, 9, 7), augment, mixup_alpha=0.2, seed=seed, epoch=epoch)


def test_flip_mirrors_the_chosen_images(images):
    which = torch.tensor([True, False, True] * 4)
    expected = [v2.functional.horizontal_flip(one) if yes else one for one, yes in zip(images, which, strict=True)]
    assert torch.equal(flip(images, which), torch.stack(expected))


def test_crop_is_pad_then_crop(images):
    offsets = draws(count=16).offsets[:12]
    padded = [v2.functional.pad(one, PADDING) for one in images]
    expected = [
        v2.functional.crop(one, int(row), int(column), 9, 7) for one, (row, column) in zip(padded, offsets, strict=True)
    ]
    assert torch.equal(crop(images, offsets), torch.stack(expected))


@pytest.mark.parametrize("size", [1, 4, 5, 20])
def test_cutout_blanks_one_square_that_may_reach_over_the_edge(images, size):
    floats = images.float() + 1
    centres = draws(count=16).centres[:12]
    got = cutout(floats, centres, size)
    for before, after, (row, column) in zip(floats, got, centres.tolist(), strict=True):
        top, left = max(0, row - size // 2), max(0, column - size // 2)
        expected = before.clone()
        expected[:, top : row - size // 2 + size, left : column - size // 2 + size] = 0
        assert torch.equal(after, expected)


def test_mixup_blends_each_image_with_its_partner_by_the_weight_of_its_batch(images):
    batches = images.float().reshape(3, 4, 3, 9, 7)
    weights = torch.tensor([0.9, 0.25, 1.0])
    got = mixup(batches, batches.roll(1, dims=1), weights)
    for batch, weight, mixed in zip(batches, weights, got, strict=True):
        for index in range(4):
            assert torch.allclose(mixed[index], weight * batch[index] + (1 - weight) * batch[index - 1])


def test_draws_are_a_function_of_seed_and_epoch_and_leave_the_global_state_alone():
    state = torch.get_rng_state()
    first, second = draws(seed=3, epoch=5), draws(seed=3, epoch=5)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(vars(first).values(), vars(second).values(), strict=True))
    for other in (draws(seed=4, epoch=5), draws(seed=3, epoch=6)):
        assert not any(torch.equal(a, b) for a, b in zip(vars(first).values(), vars(other).values(), strict=True))


@pytest.mark.parametrize("kept", AUGMENT)
def test_adding_an_augmentation_leaves_the_others_alone(kept):
    alone, together = vars(draws((kept,))), vars(draws())
    assert sum(each is not None for each in alone.values()) == 2
    assert all(torch.equal(values, together[name]) for name, values in alone.items() if values is not None)


def test_draws_cover_their_ranges():
    drawn = draws(count=4000)
    assert sorted(drawn.order.tolist()) == list(range(4000))
    assert set(drawn.offsets[:, 0].tolist()) == set(drawn.offsets[:, 1].tolist()) == set(range(9))
    assert set(drawn.centres[:, 0].tolist()) == set(range(9))
    assert set(drawn.centres[:, 1].tolist()) == set(range(7))
    assert 1700 < int(drawn.flips.sum()) < 2300
    assert drawn.weights.shape == (500,)
    assert 0 <= float(drawn.weights.min()) <= float(drawn.weights.max()) <= 1

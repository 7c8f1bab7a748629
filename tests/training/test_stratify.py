"""Stratified choices and label noise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rst_tune.errors import InputError
from rst_tune.training.stratify import noisy_labels, quotas, stratified_choice

labels_strategy = st.lists(st.integers(0, 4), min_size=2, max_size=60).map(lambda each: np.array(each, dtype=np.int64))


@given(counts=st.lists(st.integers(1, 50), min_size=1, max_size=8), share=st.floats(0.01, 1))
def test_quotas_add_up_and_are_within_one_of_the_proportion(counts, share):
    array = np.array(counts)
    count = max(1, int(share * array.sum()))
    got = quotas(array, count)
    assert got.sum() == count
    assert np.all(np.abs(got - array * count / array.sum()) < 1)
    assert np.all(got <= array)


@given(labels=labels_strategy, seed=st.integers(0, 9))
def test_a_choice_is_stratified_sorted_distinct_and_repeatable(labels, seed):
    count = (len(labels) + 1) // 2
    indices = stratified_choice(labels, count, seed)
    assert len(set(indices)) == count
    assert np.all(np.diff(indices) > 0)
    classes, of_each = np.unique(labels, return_counts=True)
    chosen = [int((labels[indices] == each).sum()) for each in classes]
    assert chosen == quotas(of_each, count).tolist()
    assert np.array_equal(indices, stratified_choice(labels, count, seed))


def test_another_seed_chooses_others():
    labels = np.repeat(np.arange(5), 40)
    assert not np.array_equal(stratified_choice(labels, 100, 0), stratified_choice(labels, 100, 1))


@pytest.mark.parametrize("count", [0, -1, 11])
def test_a_choice_of_an_impossible_size_is_refused(count):
    with pytest.raises(InputError, match="between 1 and 10"):
        stratified_choice(np.zeros(10, dtype=np.int64), count, 0)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4])
def test_noise_changes_exactly_that_share_to_other_classes(share):
    labels = np.tile(np.arange(10), 500)
    noisy = noisy_labels(labels, share, 10, 7)
    changed = noisy != labels
    assert changed.sum() == round(share * len(labels))
    assert noisy.min() >= 0
    assert noisy.max() <= 9
    assert np.array_equal(noisy, noisy_labels(labels, share, 10, 7))


def test_noise_is_symmetric():
    labels = np.full(90_000, 3)
    noisy = noisy_labels(labels, 0.9, 10, 0)
    counts = np.bincount(noisy[noisy != 3], minlength=10)
    others = np.delete(counts, 3)
    assert counts[3] == 0
    # 81,000 draws over 9 classes: 9,000 each, five standard deviations are 450.
    assert np.all(np.abs(others - 9000) < 450)

from dataclasses import replace

import numpy as np
import pytest
import torch

from confrank.data import DataSet, Split, hold_out, load, split_of
from confrank.training.draws import Draws, epoch_draws
from confrank.training.store import fetch, store_on


def test_digits_is_the_documented_set():
    data = load("digits")
    assert (len(data.train), len(data.test)) == (900, 897)
    assert data.train.images.shape[1:] == (8, 8, 1)
    assert data.train.images.dtype == np.uint8
    assert data.train.labels.dtype == np.int64
    assert np.array_equal(np.unique(data.test.labels), np.arange(10))
    again = load("digits")
    assert np.array_equal(data.train.images, again.train.images)
    everything = np.concatenate([data.train.images, data.test.images]).reshape(1797, -1)
    assert len(np.unique(everything, axis=0)) == 1797


def test_holdout_is_stratified_and_disjoint():
    data = load("digits")
    rest, held = hold_out(data, 0.1, seed=3)
    assert len(held) == 90
    assert len(rest.train) == 810
    assert set(held.index) | set(rest.train.index) == set(range(900))
    assert np.array_equal(held.images, data.train.images[held.index])
    share = np.bincount(held.labels) / np.bincount(data.train.labels)
    assert share.min() > 0.08
    assert share.max() < 0.13
    assert np.array_equal(hold_out(data, 0.1, seed=3)[1].index, held.index)
    assert not np.array_equal(hold_out(data, 0.1, seed=4)[1].index, held.index)
    assert hold_out(data, 0.0)[1] is None


def test_wrong_input():
    with pytest.raises(ValueError, match="among digits.*, but got 'digit'"):
        load("digit")
    with pytest.raises(ValueError, match=r"share in \[0, 1\), but got 1.0"):
        hold_out(load("digits"), 1.0)
    with pytest.raises(ValueError, match="samples on both sides"):
        hold_out(load("digits"), 1e-9)
    with pytest.raises(ValueError, match="class numbers, integers, but got float64"):
        split_of(np.zeros((2, 4, 4, 3), dtype=np.uint8), np.array([0.9, np.nan]))


def test_what_is_no_data_set_is_refused_before_anything_trains():
    data = load("digits")
    images, labels, index = data.train.images, data.train.labels, data.train.index
    with pytest.raises(ValueError, match="expected uint8 images .* but got float32"):
        Split((images / 255).astype(np.float32), labels, index)
    with pytest.raises(ValueError, match="label for each of 900 images, but got int64 of shape .100,"):
        Split(images, labels[:100], index[:100])
    with pytest.raises(ValueError, match="index for each of 900 images, but got int32"):
        Split(images, labels, index.astype(np.int32))
    for wrong in (-100, 10):
        with pytest.raises(ValueError, match=rf"test labels within 0..9, the 10 classes of digits.*{wrong}"):
            replace(data, test=split_of(images[:2], [0, wrong]))
    with pytest.raises(ValueError, match="mean and std for each channel, but got 3 and 1"):
        replace(data, mean=(0.5,) * 3)


def test_views_that_torch_does_not_take_are_copied():
    images = np.arange(2 * 3 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3, 3)
    split = split_of(images[..., ::-1], np.array([0, 1], dtype=np.int8))
    assert torch.equal(torch.from_numpy(split.images).flip(-1), torch.from_numpy(images))
    assert split.labels.dtype == np.int64


def test_draws_depend_on_seed_and_epoch_alone():
    first, again = epoch_draws(1, 2, 100, padding=4, flip=True), epoch_draws(1, 2, 100, padding=4, flip=True)
    assert torch.equal(first.order, again.order)
    assert torch.equal(first.offset, again.offset)
    assert sorted(first.order.tolist()) == list(range(100))
    for seed, epoch in ((1, 3), (2, 2), (2, 1)):
        assert not torch.equal(first.order, epoch_draws(seed, epoch, 100).order)
    assert not epoch_draws(1, 2, 100).flip.any()
    assert not epoch_draws(1, 2, 100).offset.any()


def test_crops_and_flips_equal_a_loop_and_are_uniform():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (81, 6, 5, 3), dtype=np.uint8)
    split = split_of(images, rng.integers(0, 4, 81))
    data = DataSet("random", split, split, tuple("abcd"), (0.1, 0.2, 0.3), (0.5, 0.6, 0.7), padding=4, flip=True)
    offset = torch.cartesian_prod(torch.arange(9), torch.arange(9))
    order, flip = torch.randperm(81), torch.arange(81) % 2 == 0
    batch = fetch(store_on(torch.device("cpu"), data), Draws(order, offset, flip), 7, 70)
    padded = np.pad(images, ((0, 0), (4, 4), (4, 4), (0, 0)))
    for k in range(70):
        sample, (top, left) = order[7 + k], offset[7 + k].tolist()
        crop = padded[sample, top : top + 6, left : left + 5]
        expected = crop[:, ::-1] if flip[7 + k] else crop
        shown = (batch.image[k].permute(1, 2, 0).numpy() * data.std + data.mean) * 255
        assert np.abs(shown - expected).max() < 1e-3
    assert torch.equal(batch.index, order[7:77])
    assert np.array_equal(batch.label, split.labels[order[7:77]])
    draws = epoch_draws(0, 0, 81_000, padding=4, flip=True)
    counts = torch.bincount(draws.offset[:, 0] * 9 + draws.offset[:, 1], minlength=81)
    # Chi-square with 80 degrees of freedom: 99.99% of fair draws lie below 133.
    assert ((counts - 1000.0) ** 2 / 1000).sum() < 133
    assert abs(draws.flip.float().mean() - 0.5) < 0.01


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([15, 27, 18], [1, 3, 2]),  # a tenth: 1.5, 2.7 and 1.8 of 6
        ([5, 17, 8], [0, 2, 1]),
        ([8, 17, 5], [1, 2, 0]),
        ([5, 5, 10], [1, 0, 1]),  # a tie goes to the first
        ([20, 30], [2, 3]),
        ([12, 13, 15], [1, 1, 2]),
    ],
)
def test_a_holdout_share_rounds_the_largest_remainders_up(counts, expected):
    images, labels = np.zeros((sum(counts), 1, 1, 1), dtype=np.uint8), np.repeat(np.arange(len(counts)), counts)
    _, held = hold_out(replace(load("digits"), train=split_of(images, labels)), 0.1, 0)
    assert np.bincount(held.labels, minlength=len(counts)).tolist() == expected


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("counts", [[1, 1, 1, 1, 1, 10], [10, 1], [2, 2, 3], [0, 1, 9]])
def test_a_holdout_leaves_a_sample_of_every_class(counts, share):
    labels = np.repeat(np.arange(len(counts)), counts)
    images = np.zeros((len(labels), 8, 8, 1), dtype=np.uint8)
    data = replace(load("digits"), train=split_of(images, labels))
    rest, held = hold_out(data, share, 0)
    left = np.bincount(rest.train.labels, minlength=len(counts))
    assert (left >= np.minimum(counts, 1)).all()
    assert (left + np.bincount(held.labels, minlength=len(counts))).tolist() == counts

import math

import numpy as np
import pytest

from confrank.metrics import Interval, ece, ece_interval, reliability_bins
from confrank.metrics.calibration import TAIL_FACTOR, _family, ece_limits

TAIL = TAIL_FACTOR * 0.025


def naive_estimates(confidence, accuracy, size, seed, draws=3000):
    """Estimates from samples drawn one by one: a bin (equally likely), then right or wrong."""
    rng = np.random.default_rng(seed)
    for _ in range(draws):
        surplus = dict.fromkeys(range(len(confidence)), 0.0)
        for which, chance in zip(rng.integers(0, len(confidence), size), rng.random(size), strict=True):
            surplus[int(which)] += float(chance < accuracy[which]) - confidence[which]
        yield sum(map(abs, surplus.values())) / size


def exact_tail(confidence, accuracy, size, accepted):
    """Probability of the numbers of right predictions, out of `size` in one bin, whose estimate is accepted."""
    return sum(
        math.comb(size, right) * accuracy**right * (1 - accuracy) ** (size - right)
        for right in range(size + 1)
        if accepted(abs(right / size - confidence))
    )


@pytest.mark.parametrize(
    ("confidence", "right", "size"), [(0.9, 24, 40), (0.95, 16, 20), (0.35, 30, 40), (0.7, 21, 30)]
)
def test_one_bin_agrees_with_the_exact_distribution(confidence, right, size):
    """At each limit the estimate has the tail probability, summed over binomial terms; one bin has one gap."""
    limits = ece_limits(reliability_bins([confidence] * size, np.arange(size) < right))
    observed, sign = abs(right / size - confidence), 1 if right / size > confidence else -1
    below = exact_tail(confidence, confidence + sign * limits[1], size, lambda one: one <= observed + 1e-9)
    assert TAIL * 0.4 <= below <= TAIL * 1.8
    if limits[0]:
        above = exact_tail(confidence, confidence + sign * limits[0], size, lambda one: one >= observed - 1e-9)
        assert TAIL * 0.4 <= above <= TAIL * 1.8
    else:
        assert exact_tail(confidence, confidence, size, lambda one: one >= observed - 1e-9) >= TAIL * 0.6


def test_two_bins_agree_with_a_loop_over_samples():
    confidence, size = np.array([0.5, 0.9]), 80
    correct = np.concatenate([np.arange(40) < 12, np.arange(40) < 26])
    bins = reliability_bins(np.repeat(confidence, 40), correct)
    low, high = ece_limits(bins)
    observed, gap = ece(np.repeat(confidence, 40), correct), (np.array([12, 26]) + 2) / 44 - confidence
    scale = 2 / np.abs(gap).sum()
    at_low = list(naive_estimates(confidence, confidence + low * scale * gap, size, 1))
    at_high = list(naive_estimates(confidence, confidence + high * scale * gap, size, 2))
    assert 0 < low < observed < high
    assert TAIL * 0.5 <= np.mean(np.array(at_low) >= observed - 1e-9) <= TAIL * 1.7
    assert TAIL * 0.5 <= np.mean(np.array(at_high) <= observed + 1e-9) <= TAIL * 1.7


@pytest.mark.parametrize(
    ("confidence", "correct", "low", "high"),
    [
        ([0.9], [True], 0, 0.88),
        ([0.9], [False], 0, 0.9),
        ([1.0] * 30, [True] * 30, 0, 1 - TAIL ** (1 / 30)),  # the exact limit of a binomial without errors
        ([1.0] * 30, [False] * 30, TAIL ** (1 / 30), 1),
        ([0.99] * 30, [True] * 30, 0, 0.99 - TAIL ** (1 / 30)),
        ([0.0] * 3, [False] * 3, 0, 1 - TAIL ** (1 / 3)),
        ([0.5] * 10, [True, False] * 5, 0, 0.32),
        ([1.0, 1.0, 0.0, 0.0], [True, True, False, False], 0, 1 - TAIL ** (1 / 4)),
    ],
)
def test_extremes(confidence, correct, low, high):
    interval = ece_interval(confidence, correct)
    assert [interval.low, interval.high] == pytest.approx([low, high], abs=0.05 if len(correct) < 5 else 0.02)
    assert interval.low <= ece(confidence, correct) <= interval.high


def test_gaps_are_proportional_to_those_with_two_more_of_each_outcome():
    family = _family(np.array([0.2, 0.8]), np.array([0.6, 0.9]), np.array([0.5, 0.75]), 20)
    gap = np.array([(2 + 2) / 8 - 0.6, (12 + 2) / 20 - 0.9])
    assert family.accuracy(0.05) == pytest.approx(np.array([0.6, 0.9]) + gap * 0.05 / (0.2 * 0.1 + 0.8 * 0.2))
    assert family.accuracy(0.0).tolist() == [0.6, 0.9]
    assert family.accuracy(1.0).tolist() == [0, 0] and family.eces[-1] == pytest.approx(0.2 * 0.6 + 0.8 * 0.9)


def test_no_predictions_have_no_interval():
    assert ece_interval([], []) is None


def test_limits_surround_the_estimate_and_repeat():
    rng = np.random.default_rng(4)
    for size in (2, 7, 30, 300, 3000):
        confidence = rng.beta(4, 1, size)
        correct = rng.random(size) < confidence ** rng.uniform(0.5, 3)
        interval = ece_interval(confidence, correct, seed=2)
        assert 0 <= interval.low <= ece(confidence, correct) <= interval.high <= 1
        assert interval == ece_interval(confidence, correct, seed=2) != ece_interval(confidence, correct, seed=3)
        reordered = ece_interval(confidence[::-1], correct[::-1], seed=2)
        assert [reordered.low, reordered.high] == pytest.approx([interval.low, interval.high])
        assert isinstance(interval, Interval) and interval.method == "test inversion"
        narrow = ece_interval(confidence, correct, level=0.5, seed=2)
        assert interval.low <= narrow.low and narrow.high < interval.high


def test_the_interval_shrinks_with_the_root_of_n():
    widths = []
    for size in (1000, 100_000, 10_000_000):
        confidence = np.repeat([0.85, 0.95], size // 2)
        correct = np.concatenate(
            [np.arange(size // 2) < 0.75 * (size // 2), np.arange(size // 2) < 0.9 * (size // 2)]
        )
        interval = ece_interval(confidence, correct)
        assert interval.low < 0.075 < interval.high
        widths.append(interval.high - interval.low)
    assert widths[0] / widths[1] == pytest.approx(10, rel=0.15)
    assert widths[1] / widths[2] == pytest.approx(10, rel=0.15)


@pytest.mark.parametrize(("power", "true"), [(1, 0.0), (2, 1 / 6)])
def test_intervals_contain_the_populations_ece(power, true):
    """Confidence uniform, and right with probability confidence^power: the gap, c - c^2, has the mean 1/6.

    Few repetitions with a fixed seed; experiments/interval_worlds.py has many.
    """
    rng, covered = np.random.default_rng(11), 0
    for repetition in range(60):
        confidence = rng.random(150)
        interval = ece_interval(confidence, rng.random(150) < confidence**power, seed=repetition)
        covered += interval.low <= true <= interval.high
    assert 53 <= covered <= 60


def test_each_bin_gets_two_more_successes_and_failures():
    """By hand: 5 of 5 right counts as 7 of 9, 2 of 5 as 4 of 9; the ECE is the mean size of the gaps."""
    confidence = np.array([0.9, 0.3])
    family = _family(np.array([0.5, 0.5]), confidence, np.array([1.0, 0.4]), 10)
    assert family.gap == pytest.approx([7 / 9 - 0.9, 4 / 9 - 0.3])
    ece = (abs(7 / 9 - 0.9) + abs(4 / 9 - 0.3)) / 2
    assert family.accuracy(ece) == pytest.approx([7 / 9, 4 / 9])
    assert family.accuracy(0.0) == pytest.approx(confidence)

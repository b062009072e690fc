"""The paired interval of a difference in AURC, from the influence of each prediction."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confrank.metrics import aurc
from confrank.metrics.resampling import aurc_influence, difference_of


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.integers(1, 200), levels=st.sampled_from([1, 4, 30, 10**6]))
def test_the_area_is_the_aurc_and_the_influence_does_not_depend_on_the_order_of_rows(seed, size, levels):
    rng = np.random.default_rng(seed)
    confidence, correct = rng.integers(-levels, levels, size) / levels, rng.random(size) < 0.7
    area, influence = aurc_influence(confidence, correct)
    assert area == pytest.approx(aurc(confidence, correct), abs=1e-12)
    assert influence.mean() == pytest.approx(0, abs=1e-12)
    order = rng.permutation(size)
    assert aurc_influence(confidence[order], correct[order])[1] == pytest.approx(influence[order], abs=1e-12)


@pytest.mark.parametrize("levels", [20, 10**6])
def test_the_influence_is_what_a_copy_of_a_prediction_changes(levels):
    rng = np.random.default_rng(0)
    confidence = rng.integers(0, levels, 3000) / levels
    correct = rng.random(3000) < confidence
    area, influence = aurc_influence(confidence, correct)
    for row in range(10):
        again = aurc(np.append(confidence, confidence[row]), np.append(correct, correct[row]))
        assert (again - area) * 3000 == pytest.approx(influence[row], abs=0.02)


def test_the_interval_covers_no_difference_as_often_as_it_says():
    rng, covered = np.random.default_rng(1), 0
    for _ in range(300):
        first, second = rng.random(400), rng.random(400)
        correct = rng.random(400) < 0.8
        (a, one), (b, two) = aurc_influence(first, correct), aurc_influence(first + second, correct)
        gap = difference_of(b - a, two - one)
        covered += gap.low <= 0 <= gap.high
        assert (gap.p < 0.05) == (not gap.low <= 0 <= gap.high)
    assert 0.92 <= covered / 300 <= 0.98


def test_a_score_does_not_differ_from_itself():
    area, influence = aurc_influence([0.1, 0.7, 0.3], [True, False, True])
    gap = difference_of(area - area, influence - influence)
    assert (gap.value, gap.low, gap.high, gap.p) == (0, 0, 0, 1)
    with pytest.raises(ValueError, match="expected predictions to rank, but got none"):
        aurc_influence([], [])

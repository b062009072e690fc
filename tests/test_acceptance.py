"""Thresholds against a naive loop over all of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confrank.metrics import at_or_above, coverage_at_risk, risk_at_coverage, risk_coverage_curve
from confrank.metrics.inputs import TOLERANCE

# Few levels, so that many predictions tie; some differ in the last digit only.
LEVELS = (0.1, 0.3, 0.3 + 5e-13, 0.3 - 5e-13, 0.7, 0.7 + 2e-12, -4.0)
predictions = st.lists(st.tuples(st.sampled_from(LEVELS), st.booleans()), min_size=1, max_size=40)


def naive_points(confidence, correct):
    """(coverage, risk) of accepting each confidence and all within the tolerance below it."""
    points = []
    for threshold in confidence:
        accepted = [flag for value, flag in zip(confidence, correct, strict=True) if value >= threshold - 1e-12]
        points.append((len(accepted) / len(confidence), accepted.count(False) / len(accepted)))
    return points


@settings(max_examples=200, deadline=None)
@given(predictions, st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 1.0]))
def test_coverage_at_risk_equals_a_loop_over_all_thresholds(pairs, risk):
    confidence, correct = zip(*pairs, strict=True)
    expected = max((coverage for coverage, error in naive_points(confidence, correct) if error <= risk), default=0.0)
    assert coverage_at_risk(confidence, correct, risk) == expected


@settings(max_examples=200, deadline=None)
@given(predictions, st.sampled_from([0.01, 0.2, 0.5, 0.75, 1.0]))
def test_risk_at_coverage_equals_a_loop_over_all_thresholds(pairs, coverage):
    confidence, correct = zip(*pairs, strict=True)
    # The highest threshold: sorted from the surest down, the k-th prediction is the first that reaches the share.
    kth = sorted(confidence, reverse=True)[int(np.ceil(coverage * len(confidence) - 1e-9)) - 1]
    expected = dict(zip(confidence, naive_points(confidence, correct), strict=True))[kth][1]
    assert risk_at_coverage(confidence, correct, coverage) == expected


@settings(max_examples=100, deadline=None)
@given(predictions, st.sampled_from(LEVELS))
def test_the_curve_accepts_what_a_threshold_accepts(pairs, threshold):
    confidence, correct = zip(*pairs, strict=True)
    curve = risk_coverage_curve(confidence, correct)
    accepted = at_or_above(confidence, threshold)
    position = int(curve.last_accepted(threshold))
    assert (position == -1) == (not accepted.any())
    if accepted.any():
        assert curve.accepted[position] == accepted.sum()
        assert curve.wrong[position] == (accepted & ~np.array(correct)).sum()


def test_rows_within_the_tolerance_count_as_at_the_threshold():
    confidence = [0.5 + 2e-12, 0.5, 0.5 - 5e-13, 0.5 - 2e-12]
    assert at_or_above(confidence, 0.5).tolist() == [True, True, True, False]
    assert TOLERANCE == 1e-12
    # In float32 the threshold would be rounded to the nearest score.
    assert not at_or_above(np.array([0.7], dtype=np.float32), float(np.float32(0.7)) + 1e-10).any()


def test_bad_levels_and_no_predictions():
    assert coverage_at_risk([], [], 0.1) is None
    assert risk_at_coverage([], [], 0.5) is None
    assert coverage_at_risk([0.9, 0.1], [False, False], 0.5) == 0.0
    with pytest.raises(ValueError, match=r"expected coverage in \(0, 1\], but got 0"):
        risk_at_coverage([0.5], [True], 0)
    with pytest.raises(ValueError, match=r"expected risk in \[0, 1\], but got 5"):
        coverage_at_risk([0.5], [True], 5)

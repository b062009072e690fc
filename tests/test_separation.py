"""Detection metrics against scikit-learn and brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from confrank.metrics import fpr_at_tpr
from confrank.metrics.separation import DETECTION_METRICS, detection, roc_curve

SCORES = st.lists(st.integers(-4, 4).map(lambda value: value / 3), min_size=1, max_size=40)


def labelled(inside, outside):
    return np.repeat([1, 0], [len(inside), len(outside)]), np.concatenate([inside, outside])


def swept(inside, outside):
    """Detection error and FPR at 95% TPR by trying every threshold."""
    thresholds = [*sorted({*inside, *outside}, reverse=True), -np.inf, np.inf]
    rates = [(np.mean(inside >= t), np.mean(outside >= t)) for t in thresholds]
    return min((1 - tpr + fpr) / 2 for tpr, fpr in rates), min(fpr for tpr, fpr in rates if tpr >= 0.95)


@settings(max_examples=150, deadline=None)
@given(SCORES, SCORES)
def test_metrics_equal_scikit_learn_and_brute_force_under_ties(inside, outside):
    inside, outside = np.array(inside), np.array(outside)
    label, score = labelled(inside, outside)
    found = detection(inside, outside).metrics
    assert tuple(found) == DETECTION_METRICS
    assert found["auroc"] == pytest.approx(sk.roc_auc_score(label, score), abs=1e-9)
    assert found["aupr_in"] == pytest.approx(sk.average_precision_score(label, score), abs=1e-9)
    assert found["aupr_out"] == pytest.approx(sk.average_precision_score(1 - label, -score), abs=1e-9)
    error, fpr = swept(inside, outside)
    assert found["detection_error"] == pytest.approx(error, abs=1e-12)
    assert found["fpr95"] == pytest.approx(fpr, abs=1e-12)


def published_fpr(label, score, weight=None, tpr=0.95):
    """What the paper's code computes: the first corner of scikit-learn's curve whose TPR is nearest."""
    fprs, tprs, _ = sk.roc_curve(label, score, sample_weight=weight)
    return fprs[np.argmin(np.abs(tprs - tpr))]


@settings(max_examples=100, deadline=None)
@given(SCORES, SCORES)
def test_the_nearest_corner_of_the_roc_curve_is_that_of_the_published_code(inside, outside):
    label, score = labelled(inside, outside)
    expected = published_fpr(label, score)
    assert detection(inside, outside, fpr_point="nearest").metrics["fpr95"] == pytest.approx(expected, abs=1e-12)
    assert fpr_at_tpr(score, label, point="nearest") == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("decimals", [None, 3, 2, 1])
@pytest.mark.parametrize("size", [30, 400, 200_000])  # the last in several blocks of steps
def test_the_nearest_corner_of_random_rankings(size, decimals):
    rng = np.random.default_rng(size)
    for share in (0.03, 0.2, 0.6):
        score = rng.normal(size=size)
        right = score + rng.normal(size=size) > np.quantile(score, share)
        score = score if decimals is None else score.round(decimals)
        assert fpr_at_tpr(score, right, point="nearest") == published_fpr(right, score)
        weight = rng.integers(1, 4, size).astype(float)
        found = fpr_at_tpr(score, right, point="nearest", sample_weight=weight)
        assert found == pytest.approx(published_fpr(right, score, weight), abs=1e-12)


def test_points_on_a_straight_line_of_the_roc_curve_are_no_corners():
    """At 19 of 20 right ones the curve goes straight on: the corner before, at 18, is the nearest."""
    score, right = np.arange(21.0)[::-1], np.arange(21) != 18
    assert published_fpr(right, score) == 0.0
    assert fpr_at_tpr(score, right, point="nearest") == 0.0
    assert fpr_at_tpr(score, right) == 1.0
    assert fpr_at_tpr([0.5, 0.5], [True, False], point="nearest") == 1.0


@settings(max_examples=100, deadline=None)
@given(SCORES, SCORES)
def test_trapezoid_equals_the_area_under_scikit_learns_curve(inside, outside):
    label, score = labelled(inside, outside)
    found = detection(inside, outside, aupr="trapezoid").metrics
    for key, positive, ranked in (("aupr_in", label, score), ("aupr_out", 1 - label, -score)):
        precision, recall, _ = sk.precision_recall_curve(positive, ranked)
        assert found[key] == pytest.approx(sk.auc(recall, precision), abs=1e-9)


def test_large_sets_with_ties_and_scores_of_any_size():
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(-200, 30, 90_000).round(1), rng.normal(-260, 40, 70_000).round(1)
    label, score = labelled(inside, outside)
    found = detection(inside, outside).metrics
    assert abs(found["auroc"] - sk.roc_auc_score(label, score)) < 1e-9
    assert abs(found["aupr_in"] - sk.average_precision_score(label, score)) < 1e-9
    assert abs(found["aupr_out"] - sk.average_precision_score(1 - label, -score)) < 1e-9
    fpr, tpr, _ = sk.roc_curve(label, score)
    assert abs(found["detection_error"] - ((1 - tpr + fpr) / 2).min()) < 1e-12


def test_a_rising_map_of_the_scores_changes_nothing():
    rng = np.random.default_rng(1)
    inside, outside = rng.normal(1, 1, 500), rng.normal(0, 1, 400)
    mapped = detection(-np.exp(-inside), -np.exp(-outside)).metrics
    assert mapped == pytest.approx(detection(inside, outside).metrics, abs=1e-12)


def test_roc_curve_equals_scikit_learn():
    rng = np.random.default_rng(2)
    inside, outside = rng.integers(0, 30, 300) / 7, rng.integers(-9, 20, 200) / 7
    fpr, tpr, _ = sk.roc_curve(*labelled(inside, outside), drop_intermediate=False)
    curve = roc_curve(inside, outside)
    assert np.allclose(curve.fpr, fpr, atol=1e-12)
    assert np.allclose(curve.tpr, tpr, atol=1e-12)
    thinned = roc_curve(inside, outside, limit=10)
    assert len(thinned.fpr) <= 12
    assert (thinned.fpr[-1], thinned.tpr[-1]) == (1, 1)


def test_undefined_and_wrong_input_say_why():
    empty = detection([1.0, 2.0], [])
    assert set(empty.metrics.values()) == {None}
    assert "but got 2 and 0" in empty.undefined["auroc"]
    with pytest.raises(ValueError, match="finite values in outside, but got nan in row 1"):
        detection([1.0], [0.0, float("nan")])
    with pytest.raises(ValueError, match="an AUPR among average, trapezoid, but got 'mean'"):
        detection([1.0], [0.0], aupr="mean")
    with pytest.raises(ValueError, match="needs images from inside and outside"):
        roc_curve([1.0], [])
    with pytest.raises(ValueError, match="FPR point among at_least, nearest, but got 'first'"):
        detection([1.0], [0.0], fpr_point="first")
    with pytest.raises(ValueError, match="point among at_least, nearest, but got 'first'"):
        fpr_at_tpr([1.0], [True], point="first")

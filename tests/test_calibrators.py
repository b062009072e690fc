"""Calibrators against scikit-learn and scipy, at the edges, and bit for bit after a round trip through JSON."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.isotonic import IsotonicRegression

from confrank.decisions import Calibrator, calibrate, cross_calibrated, random_folds
from confrank.decisions.calibrators import CALIBRATION_METHODS
from confrank.errors import InputError
from confrank.metrics import adaptive_ece, classwise_ece, ece


def rows(seed=0, size=600, classes=4, scale=2.0):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, classes, size)
    logits = scale * (rng.standard_normal((size, classes)) + 1.2 * (label[:, None] == np.arange(classes)))
    return logits, label


def scores(seed=0, size=500):
    rng = np.random.default_rng(seed)
    confidence = rng.beta(3, 1, size).round(3)
    return confidence, rng.random(size) < 0.2 + 0.6 * confidence**2


@pytest.mark.parametrize("seed", range(5))
def test_isotonic_is_that_of_scikit_learn(seed):
    confidence, correct = scores(seed)
    confidence = confidence if seed % 2 else 30 * confidence - 7  # any score
    reference = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(confidence, correct)
    grid = np.concatenate([confidence, np.linspace(-9, 40, 999)])
    applied = calibrate("isotonic", confidence=confidence, correct=correct).apply(grid)
    assert applied == pytest.approx(reference.predict(grid), abs=1e-12)


EDGES = {
    "all right": (np.linspace(0.1, 0.9, 50), np.ones(50)),
    "all wrong": (np.linspace(0.1, 0.9, 50), np.zeros(50)),
    "constant": (np.full(50, 0.7), np.arange(50) % 2),
    "one row": (np.array([0.7]), np.array([1])),
    "two rows": (np.array([0.2, 0.7]), np.array([1, 0])),
    "zeros and ones": (np.arange(50) % 2, np.arange(50) % 3 > 0),
    "separated": (np.linspace(0, 1, 50), np.arange(50) > 20),
    "reversed": (np.linspace(0, 1, 50), np.arange(50) < 20),
    "tiny differences": (0.5 + 1e-13 * np.arange(50), np.arange(50) % 3 > 0),
    "next to 1": (np.where(np.arange(50) % 2, 1.0, np.nextafter(1, 0)), np.arange(50) % 3 > 0),
}


@pytest.mark.parametrize("name", EDGES)
def test_isotonic_at_the_edges(name):
    confidence, correct = EDGES[name]
    calibrator = calibrate("isotonic", confidence=confidence, correct=correct)
    result = calibrator.apply(confidence)
    assert np.isfinite(result).all() and (result >= 0).all() and (result <= 1).all()
    assert np.isfinite(calibrator.apply([0.0, 0.5, 1.0])).all()
    if name in ("constant", "zeros and ones"):
        assert result.mean() == pytest.approx(np.mean(correct), abs=1e-9)
    assert (np.diff(result[np.argsort(confidence, kind="stable")]) >= 0).all()
    restored = Calibrator("isotonic", json.loads(json.dumps(calibrator.parameters)))
    assert restored == calibrator
    assert restored.apply(confidence).tobytes() == result.tobytes()


def test_a_calibrator_needs_its_inputs():
    logits, label = rows(size=50)
    with pytest.raises(InputError, match="a method among temperature, isotonic, .*'spline'"):
        calibrate("spline", logits=logits, label=label)
    with pytest.raises(ValueError, match="expected label with logits or probabilities for the method temperature"):
        calibrate("temperature", confidence=[0.5], correct=[1])
    with pytest.raises(ValueError, match="expected confidence and correct for the method isotonic"):
        calibrate("isotonic", logits=logits, label=label)
    with pytest.raises(ValueError, match="to fit the method isotonic to, but got none"):
        calibrate("isotonic", confidence=[], correct=[])
    fitted = calibrate(logits=logits, label=label)
    with pytest.raises(ValueError, match="expected logits or probabilities for the method temperature"):
        fitted.apply([0.5])
    with pytest.raises(ValueError, match="expected a confidence for the method isotonic"):
        calibrate("isotonic", confidence=[0.5], correct=[1]).apply(logits=logits)


def test_a_table_of_probabilities_keeps_the_floor_of_its_zeros():
    logits, label = rows()
    probabilities = softmax(3 * logits, axis=1).round(3)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    calibrator = calibrate(probabilities=probabilities, label=label)
    assert "are zero and count as" in calibrator.notes[0]
    whole = calibrator.apply(probabilities=probabilities)
    single = np.concatenate([calibrator.apply(probabilities=row[None]) for row in probabilities])
    assert whole.tobytes() == single.tobytes()


def test_the_floor_of_another_type_is_a_number_of_this_one():
    probabilities = np.array([[1 - 1e-300, 1e-300], [0.3, 0.7], [0.6, 0.4], [0.8, 0.2]])
    calibrator = calibrate(probabilities=probabilities, label=[0, 1, 1, 0])
    assert calibrator.parameters["floor"] == 5e-301
    applied = calibrator.apply(probabilities=np.array([[1, 0]], dtype=np.float32))
    assert np.isfinite(applied).all()


@pytest.mark.parametrize("method", CALIBRATION_METHODS)
def test_no_row_is_calibrated_by_a_fit_that_saw_it(method):
    """A changed label changes the result of every fold but the row's own."""
    logits, label = rows(size=100)
    confidence, correct = softmax(logits, axis=1).max(axis=1), logits.argmax(axis=1) == label
    folds = random_folds(100, 5, seed=3)
    table = method == "temperature"

    def result(flags, labels):
        arrays = {"logits": logits, "label": labels} if table else {"confidence": confidence, "correct": flags}
        return cross_calibrated(method, folds, **arrays)

    row = int(np.argsort(confidence)[50])
    flags, labels = correct.copy(), label.copy()
    flags[row], labels[row] = not flags[row], (labels[row] + 1) % 4
    before, after = result(correct, label), result(flags, labels)
    own = next(inside for _, inside in folds if row in inside)
    others = np.setdiff1d(np.arange(100), own)
    assert np.array_equal(before[own], after[own])
    assert not np.array_equal(before[others], after[others])
    assert sorted(np.concatenate([inside for _, inside in folds])) == list(range(100))


def test_folds():
    for outside, inside in random_folds(7, 7):
        assert len(inside) == 1 and sorted([*outside, *inside]) == list(range(7))
    with pytest.raises(InputError, match="between 2 folds and as many as rows \\(3\\), but got 5; change `folds`"):
        random_folds(3, 5)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.integers(1, 80), classes=st.integers(2, 5))
def test_classwise_and_adaptive_ece_by_hand(seed, size, classes):
    rng = np.random.default_rng(seed)
    probabilities = softmax(rng.normal(0, 2, (size, classes)), axis=1)
    label = rng.integers(0, classes, size)
    each = []
    for k in range(classes):
        bin_of = np.clip(np.ceil(probabilities[:, k] * 15) - 1, 0, 14)
        parts = [(bin_of == b) for b in range(15) if (bin_of == b).any()]
        each.append(sum(abs((label[p] == k).sum() - probabilities[p, k].sum()) for p in parts) / size)
    assert classwise_ece(probabilities, label) == pytest.approx(np.mean(each))
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == label
    order = np.argsort(confidence)
    starts = [k * size // 4 for k in range(5)]
    gaps = [abs((correct - confidence)[order[a:b]].sum()) for a, b in pairwise(starts)]
    assert adaptive_ece(confidence, correct, bins=4) == pytest.approx(sum(gaps) / size)
    shuffled = rng.permutation(size)
    tied = confidence.round(1)
    assert adaptive_ece(tied, correct) == pytest.approx(adaptive_ece(tied[shuffled], correct[shuffled]))
    assert adaptive_ece(confidence, correct, bins=1) == pytest.approx(ece(confidence, correct, bins=1))


def test_ece_of_nothing_and_of_scores():
    assert adaptive_ece([], []) is None
    assert classwise_ece(np.zeros((0, 3)), []) is None
    with pytest.raises(ValueError, match="within \\[0, 1\\] to bin it"):
        adaptive_ece([1.5], [True])
    with pytest.raises(ValueError, match="bins to be a positive integer"):
        adaptive_ece([0.5], [True], bins=0)

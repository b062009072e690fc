"""Calibrators against scikit-learn and scipy, at the edges, and bit for bit after a round trip through JSON."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression

from confrank.decisions import Calibrator, calibrate, cross_calibrated, random_folds
from confrank.decisions.calibrators import CALIBRATION_METHODS, CONFIDENCE_METHODS, TABLE_METHODS
from confrank.decisions.vector import fit_vector
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


def mean_nll(logits, label):
    return -log_softmax(logits, axis=1)[np.arange(len(label)), label].mean()


@pytest.mark.parametrize(("classes", "seed"), [(2, 0), (3, 1), (7, 2)])
def test_vector_scaling_is_the_minimum_that_scipy_finds(classes, seed):
    logits, label = rows(seed, classes=classes)

    def loss(theta):
        scaled = logits * theta[:classes] + theta[classes:]
        surplus = softmax(scaled, axis=1) - np.eye(classes)[label]
        gradient = np.concatenate([(surplus * logits).mean(axis=0), surplus.mean(axis=0)])
        return mean_nll(scaled, label), gradient

    start = np.concatenate([np.ones(classes), np.zeros(classes)])
    best = minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-10})
    calibrator = calibrate("vector", logits=logits, label=label)
    scaled = calibrator.apply(logits=logits)
    assert mean_nll(scaled, label) == pytest.approx(best.fun, abs=1e-12)
    bias = best.x[classes:] - best.x[classes:].mean()
    assert calibrator.parameters["factor"] == pytest.approx(best.x[:classes], abs=1e-6)
    assert calibrator.parameters["bias"] == pytest.approx(bias, abs=1e-6)
    assert np.abs(loss(np.concatenate([*calibrator.parameters.values()]))[1]).max() < 1e-12


def test_vector_scaling_of_logits_that_leave_a_choice():
    """z and -z, or 0 and z: only the difference of two logits counts."""
    (logits, label), near = rows(classes=2), {"abs": 1e-9}
    gap = logits[:, 1] - logits[:, 0]
    kinds = [np.stack(pair, axis=1) for pair in ((-gap, gap), (np.zeros(len(gap)), gap), (np.ones(len(gap)), gap))]
    both = [mean_nll(calibrate("vector", logits=table, label=label).apply(logits=table), label) for table in kinds]
    best = minimize(lambda x: mean_nll(np.stack([0 * gap, x[0] * gap + x[1]], axis=1), label), [1, 0], tol=1e-12)
    assert both == pytest.approx([best.fun] * 3, **near)


@pytest.mark.parametrize("scale", [1e-5, 1e5])
def test_vector_scaling_in_any_unit(scale):
    logits, label = rows()
    factor, bias = fit_vector(logits, label)
    other, other_bias = fit_vector(scale * logits, label)
    assert (scale * other, other_bias) == (pytest.approx(factor, rel=1e-6), pytest.approx(bias, abs=1e-6))


def test_vector_scaling_without_a_limit_is_an_error():
    logits, label = rows()
    with pytest.raises(InputError, match="separated perfectly in the 600 rows .* `method` temperature"):
        fit_vector(10.0 * np.eye(4)[label] + 0.1 * logits, label)
    with pytest.raises(InputError, match="1 of 4 have none, such as class 2"):
        fit_vector(logits[label != 2], label[label != 2])
    with pytest.raises(InputError, match="can be squared, but got values up to 1e\\+308"):
        fit_vector(np.where(np.arange(600)[:, None] == 5, -1e308, logits), label)
    with pytest.raises(ValueError, match="but got none"):
        fit_vector(logits[:0], label[:0])
    with pytest.raises(ValueError, match="expected logits of 4 classes, .* but got 3"):
        calibrate("vector", logits=logits, label=label).apply(logits=logits[:, :3])


@pytest.mark.parametrize("seed", range(5))
def test_isotonic_is_that_of_scikit_learn(seed):
    confidence, correct = scores(seed)
    confidence = confidence if seed % 2 else 30 * confidence - 7  # any score
    reference = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(confidence, correct)
    grid = np.concatenate([confidence, np.linspace(-9, 40, 999)])
    applied = calibrate("isotonic", confidence=confidence, correct=correct).apply(grid)
    assert applied == pytest.approx(reference.predict(grid), abs=1e-12)


class Scorer(ClassifierMixin, BaseEstimator):
    """A classifier whose decision function is its only input, for scikit-learn's own Platt scaling."""

    def fit(self, inputs, label):
        self.classes_ = np.array([False, True])
        return self

    def decision_function(self, inputs):
        return inputs[:, 0]

    def predict(self, inputs):
        return inputs[:, 0] > 0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("is_share", [True, False])
def test_platt_is_that_of_scikit_learn(seed, is_share):
    confidence, correct = scores(seed)
    confidence = np.clip(confidence, 0.001, 0.999)
    inputs = np.log(confidence / (1 - confidence))[:, None]
    scorer = FrozenEstimator(Scorer().fit(inputs, correct))
    reference = CalibratedClassifierCV(scorer, method="sigmoid").fit(inputs, correct).predict_proba(inputs)[:, 1]
    given = confidence if is_share else inputs[:, 0]
    calibrator = calibrate("platt", confidence=given, correct=correct)
    assert calibrator.parameters["input"] == ("log-odds" if is_share else "score")
    assert calibrator.apply(given) == pytest.approx(reference, abs=2e-5)  # its solver stops early
    sure = np.where(correct, (correct.sum() + 1) / (correct.sum() + 2), 1 / ((~correct).sum() + 2))
    score = inputs[:, 0] * calibrator.parameters["slope"] + calibrator.parameters["intercept"]
    surplus = expit(score) - sure
    assert abs(surplus.mean()) < 1e-10 and abs((surplus * inputs[:, 0]).mean()) < 1e-10


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.integers(3, 60), turned=st.booleans())
def test_beta_is_the_constrained_minimum(seed, size, turned):
    rng = np.random.default_rng(seed)
    confidence = rng.random(size)
    correct = rng.random(size) < (1 - confidence if turned else confidence)
    right = int(correct.sum())
    target = np.where(correct, (right + 1) / (right + 2), 1 / (size - right + 2))

    def loss(theta):
        score = theta[0] * np.log(confidence) - theta[1] * np.log1p(-confidence) + theta[2]
        return (np.logaddexp(0, score) - target * score).mean()

    best = minimize(loss, [1, 1, 0], bounds=[(0, None), (0, None), (None, None)], options={"ftol": 1e-15})
    parameters = calibrate("beta", confidence=confidence, correct=correct).parameters
    assert min(parameters["a"], parameters["b"]) >= 0
    assert loss([parameters["a"], parameters["b"], parameters["intercept"]]) <= best.fun + 1e-9


def test_histogram_is_counted():
    confidence, correct = np.arange(300) / 300, np.arange(300) % 7 > 2
    calibrator = calibrate("histogram", confidence=confidence, correct=correct)
    assert calibrator.parameters["edges"] == [k * 20 / 300 for k in range(1, 15)]
    assert calibrator.apply(confidence).tolist() == [correct[k // 20 * 20 :][:20].mean() for k in range(300)]
    assert calibrator.apply([-5.0, 5.0]).tolist() == [correct[:20].mean(), correct[-20:].mean()]


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


@pytest.mark.parametrize("method", CONFIDENCE_METHODS)
@pytest.mark.parametrize("name", EDGES)
def test_calibrators_at_the_edges(method, name):
    confidence, correct = EDGES[name]
    calibrator = calibrate(method, confidence=confidence, correct=correct)
    result = calibrator.apply(confidence)
    assert np.isfinite(result).all() and (result >= 0).all() and (result <= 1).all()
    assert np.isfinite(calibrator.apply([0.0, 0.5, 1.0])).all()
    if name in ("constant", "zeros and ones"):  # the sum of targets is that of the probabilities
        right, wrong = np.count_nonzero(correct), np.count_nonzero(correct == 0)
        smooth = (right * (right + 1) / (right + 2) + wrong / (wrong + 2)) / len(correct)
        expected = np.mean(correct) if method in ("isotonic", "histogram") else smooth
        assert result.mean() == pytest.approx(expected, abs=1e-9)
    if method in ("isotonic", "beta"):
        assert (np.diff(result[np.argsort(confidence, kind="stable")]) >= 0).all()
    restored = Calibrator(method, json.loads(json.dumps(calibrator.parameters)))
    assert restored == calibrator
    assert restored.apply(confidence).tobytes() == result.tobytes()


def test_what_zeros_and_ones_count_as_is_said():
    confidence, correct = np.array([0.0, 0.5, 0.75, 1.0, 1.0]), np.array([0, 1, 0, 1, 1])
    for method in ("platt", "beta"):
        calibrator = calibrate(method, confidence=confidence, correct=correct)
        assert calibrator.notes == (
            "1 of 5 confidences are 0 and count as 0.25",
            "2 of 5 confidences are 1 and count as 0.875",
        )
        assert calibrator.apply([0.0, 0.1]).tolist() == calibrator.apply([0.25, 0.25]).tolist()
        with pytest.raises(InputError, match="within \\[0, 1\\] for .*, but got 1.5"):
            calibrator.apply([1.5])
    assert "the slope is negative" in calibrate("platt", confidence=[0.2, 0.8], correct=[1, 0]).notes[0]
    with pytest.raises(InputError, match="within \\[0, 1\\] for beta, but got -3; .*isotonic or histogram"):
        calibrate("beta", confidence=[-3.0, 0.2], correct=[1, 0])
    for method in ("isotonic", "platt", "histogram"):
        assert np.isfinite(calibrate(method, confidence=[-3.0, 12.0], correct=[0, 1]).apply([-100.0, 100.0])).all()


def test_a_calibrator_needs_its_inputs():
    logits, label = rows(size=50)
    with pytest.raises(InputError, match="a method among temperature, vector, isotonic, .*'spline'"):
        calibrate("spline", logits=logits, label=label)
    with pytest.raises(ValueError, match="expected label with logits or probabilities for the method vector"):
        calibrate("vector", confidence=[0.5], correct=[1])
    with pytest.raises(ValueError, match="expected confidence and correct for the method beta"):
        calibrate("beta", logits=logits, label=label)
    with pytest.raises(ValueError, match="to fit the method platt to, but got none"):
        calibrate("platt", confidence=[], correct=[])
    fitted = calibrate(logits=logits, label=label)
    with pytest.raises(ValueError, match="expected logits or probabilities for the method temperature"):
        fitted.apply([0.5])
    with pytest.raises(ValueError, match="expected a confidence for the method histogram"):
        calibrate("histogram", confidence=[0.5], correct=[1]).apply(logits=logits)


@pytest.mark.parametrize("method", TABLE_METHODS)
def test_a_table_of_probabilities_keeps_the_floor_of_its_zeros(method):
    logits, label = rows()
    probabilities = softmax(3 * logits, axis=1).round(3)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    calibrator = calibrate(method, probabilities=probabilities, label=label)
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
    table = method in TABLE_METHODS

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

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from confrank.metrics import (
    areas,
    augrc,
    aupr_error,
    aurc,
    auroc,
    e_aurc,
    fpr_at_tpr,
    naurc,
    risk_coverage_curve,
)
from confrank.metrics.curve import curve_of
from confrank.metrics.ranking import rank

METRICS = (aurc, e_aurc, naurc, augrc, aupr_error, auroc, fpr_at_tpr)


def mean_over_orderings(confidence, correct):
    """AURC averaged over every ordering that sorts by confidence, tied rows in any order."""
    areas = []
    for order in itertools.permutations(range(len(confidence))):
        values = [confidence[row] for row in order]
        if values == sorted(values, reverse=True):
            wrong = np.cumsum([not correct[row] for row in order])
            areas.append(np.mean(wrong / np.arange(1, len(order) + 1)))
    return np.mean(areas)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7])
def test_aurc_equals_the_mean_over_all_orderings_for_every_tie_pattern(size):
    # A tie pattern is a composition of n: which neighbours in the sorted order are tied.
    for pattern in itertools.product((0, 1), repeat=size - 1):
        levels = np.cumsum((0, *pattern))
        flags = itertools.product((0, 1), repeat=size) if size <= 5 else _some_flags(size)
        for correct in flags:
            expected = mean_over_orderings((-levels).tolist(), correct)
            assert aurc(-levels, correct) == pytest.approx(expected, abs=1e-12)


def _some_flags(size):
    rng = np.random.default_rng(size)
    return [rng.random(size) < 0.5 for _ in range(2 if size == 7 else 3)]


def tied_case(seed, size, levels):
    rng = np.random.default_rng(seed)
    confidence = rng.integers(0, levels, size) / levels
    return confidence, rng.random(size) < 0.3 + 0.6 * confidence


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.integers(2, 300), levels=st.sampled_from([1, 2, 10, 1000]))
def test_equal_scikit_learn_with_ties(seed, size, levels):
    confidence, correct = tied_case(seed, size, levels)
    correct[0], correct[1] = True, False
    assert aupr_error(confidence, correct) == pytest.approx(
        sk.average_precision_score(~correct, -confidence), abs=1e-9
    )
    assert auroc(confidence, correct) == pytest.approx(sk.roc_auc_score(correct, confidence), abs=1e-9)
    false_rate, true_rate, _ = sk.roc_curve(correct, confidence, drop_intermediate=False)
    assert fpr_at_tpr(confidence, correct) == pytest.approx(false_rate[true_rate >= 0.95][0], abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.integers(2, 300))
def test_augrc_follows_from_auroc_and_accuracy(seed, size):
    confidence, correct = tied_case(seed, size, 20)
    correct[0], correct[1] = True, False
    rate = correct.mean()
    expected = (1 - auroc(confidence, correct)) * rate * (1 - rate) + (1 - rate) ** 2 / 2
    assert augrc(confidence, correct) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_row_order_is_irrelevant_with_half_of_the_rows_tied(metric):
    rng = np.random.default_rng(0)
    confidence, correct = rng.random(2000), rng.random(2000) < 0.7
    confidence[:1000] = 0.5
    value = metric(confidence, correct)
    for _ in range(5):
        order = rng.permutation(2000)
        assert metric(confidence[order], correct[order]) == value


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_only_the_order_of_scores_counts(metric, seed):
    confidence, correct = tied_case(seed, 50, 12)
    correct[0], correct[1] = True, False
    value = metric(confidence, correct)
    for moved in (confidence * 1e6, confidence - 0.5, confidence - 1e3, np.exp(5 * confidence), -np.exp(-confidence)):
        assert metric(moved, correct) == pytest.approx(value, abs=1e-12)
        assert metric(moved.astype(np.float32), correct) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_blocks_do_not_change_the_result(metric, monkeypatch):
    confidence, correct = tied_case(1, 5000, 300)
    confidence[:900] = confidence[0]
    value = metric(confidence - 0.3, correct)
    for size in (1, 7, 1000, 4999):
        monkeypatch.setattr("confrank.metrics.inputs.CHUNK", size)
        assert metric(confidence - 0.3, correct) == pytest.approx(value, abs=1e-12)


def test_negative_zero_ties_with_zero():
    assert aurc([0.0, -0.0], [True, False]) == aurc([-0.0, 0.0], [True, False]) == aurc([0, 0], [1, 0]) == 0.5
    # A threshold of zero has no sign, since it is printed for people to use.
    for zero in (0.0, -0.0):
        curve = risk_coverage_curve([1.0, zero, -1.0], [True, False, True])
        assert [str(threshold) for threshold in curve.threshold.tolist()] == ["1.0", "0.0", "-1.0"]


def test_harmonic_gap_is_exact():
    low = np.array([0, 0, 1, 63, 64, 65, 1000, 10**8])
    high = np.array([1, 10**6, 2, 64, 65, 10**5, 1001, 10**8 + 5])
    exact = [math.fsum(1 / k for k in range(a + 1, b + 1)) for a, b in zip(low, high, strict=True)]
    assert areas.harmonic_gap(low, high) == pytest.approx(exact, rel=1e-13)


def prediction_rejection_ratio(uncertainty, quality):
    """Malinin and Gales (2021), as LM-Polygraph computes it.

    The mean quality of the k least uncertain answers, averaged over k = 1..n, between that of random rejection, which
    is flat, and that of rejecting the worst first.
    """

    def area(order):
        return np.mean([np.mean(quality[order[:k]]) for k in range(1, len(order) + 1)])

    random = quality.mean()
    return (area(np.argsort(uncertainty)) - random) / (area(np.argsort(-quality)) - random)


@pytest.mark.parametrize("size", [2, 3, 10, 200])
def test_naurc_is_1_minus_the_prediction_rejection_ratio(size):
    rng = np.random.default_rng(size)
    for _ in range(5):
        uncertainty, correct = rng.permutation(size) / 7, rng.permutation(size) >= rng.integers(1, size)
        expected = 1 - prediction_rejection_ratio(uncertainty, correct.astype(float))
        assert naurc(-uncertainty, correct) == pytest.approx(expected, abs=1e-10)


def test_naurc_is_0_at_best_1_if_all_are_tied_and_undefined_for_one_kind():
    correct = np.arange(50) >= 8
    assert naurc(correct, correct) == pytest.approx(0, abs=1e-12)
    assert naurc(np.zeros(50), correct) == pytest.approx(1)
    assert naurc(-correct.astype(float), correct) > 1
    assert naurc([0.5, 0.9], [True, True]) is None and naurc([0.5], [False]) is None


def test_e_aurc_of_a_perfect_ranking_is_zero_up_to_the_published_approximation():
    for size in (100, 10_000):
        correct = np.arange(size) >= size // 4
        # The published optimum is an integral; the sum differs from it by O(1 / n).
        assert abs(e_aurc(np.arange(size), correct)) < 2 / size
    for alike in (True, False):  # and no logarithm of 0 warns
        assert e_aurc([0.1, 0.2, 0.3], [alike] * 3) == pytest.approx(0, abs=1e-12)
    assert areas.best_aurc(np.array([0.0, 0.5, 1.0])) == pytest.approx([0, 0.5 + 0.5 * math.log(0.5), 1])


def test_limits():
    assert aurc([0.1, 0.2], [True, True]) == augrc([0.1, 0.2], [True, True]) == 0
    assert aurc([0.1, 0.2], [False, False]) == 1
    assert augrc([0.1, 0.2], [False, False]) == 0.5
    assert all(metric([], []) is None for metric in METRICS)
    for metric in (aupr_error, auroc, fpr_at_tpr):
        assert metric([0.1, 0.2], [True, True]) is None
        assert metric([0.1, 0.2], [False, False]) is None


def test_curve_equals_counting():
    confidence, correct = tied_case(5, 200, 30)
    curve = risk_coverage_curve(confidence, correct)
    assert curve.threshold.tolist() == sorted(set(confidence.tolist()), reverse=True)
    for threshold, coverage, risk in zip(curve.threshold, curve.coverage, curve.risk, strict=True):
        accepted = confidence >= threshold
        assert coverage == pytest.approx(accepted.mean())
        assert risk == pytest.approx(1 - correct[accepted].mean())


def test_other_conventions():
    assert aurc([0.7, 0.6, 0.8], [True, False, True], estimator="trapezoid") == pytest.approx(1 / 12)
    with pytest.raises(ValueError, match="expected, trapezoid, thresholds, but got 'trapz'"):
        aurc([0.7, 0.6, 0.8], [True, False, True], estimator="trapz")


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_tensors_of_any_precision(kind):
    confidence = torch.tensor([0.75, 0.5, 0.875], dtype=kind, requires_grad=True)
    assert aurc(confidence, torch.tensor([1, 0, 1])) == pytest.approx(1 / 9)


def test_wrong_input():
    with pytest.raises(ValueError, match=r"inf in row 0, -inf in row 2, nan in row 3 and 1 more rows"):
        auroc([math.inf, 0.5, -math.inf, math.nan, math.nan], [True] * 5)
    with pytest.raises(ValueError, match="only 0 and 1.*2 in row 1"):
        aurc([0.5, 0.1], [1, 2])
    with pytest.raises(ValueError, match=r"1-D array of numbers, but got shape \(1, 2\)"):
        aurc([[0.5, 0.1]], [1, 1])
    with pytest.raises(ValueError, match=r"tpr in \(0, 1\], but got 95"):
        fpr_at_tpr([0.5, 0.1], [1, 0], tpr=95)


def naive_threshold_aurc(confidence, correct):
    """Straight lines between the points of the distinct thresholds, constant before the first."""
    total, coverage_before, risk_before = 0.0, 0.0, None
    for threshold in sorted(set(confidence), reverse=True):
        accepted = [right for score, right in zip(confidence, correct, strict=True) if score >= threshold]
        coverage, risk = len(accepted) / len(correct), accepted.count(False) / len(accepted)
        total += (coverage - coverage_before) * (risk + (risk if risk_before is None else risk_before)) / 2
        coverage_before, risk_before = coverage, risk
    return total


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=12))
def test_the_threshold_estimator_equals_a_loop(rows):
    confidence, correct = ([row[side] for row in rows] for side in (0, 1))
    expected = naive_threshold_aurc(confidence, correct)
    assert aurc(confidence, correct, estimator="thresholds") == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("options", [{}, *({"estimator": name} for name in ("trapezoid", "thresholds")),
                                     {"sample_weight": [1.0, 2.0]}])  # fmt: skip
def test_every_form_wants_one_flag_per_confidence(options):
    with pytest.raises(ValueError, match="same number of rows in each input, but got 3 in confidence, 2 in correct"):
        aurc([0.1, 0.2, 0.3], [True, False], **options)


@settings(max_examples=60, deadline=None)
@given(
    levels=st.lists(st.integers(-9, 9), min_size=1, max_size=60), limit=st.integers(1, 70), block=st.integers(1, 9)
)
def test_a_thinned_curve_takes_the_first_point_of_each_cell_and_the_last(levels, limit, block):
    """Whatever the size of the blocks in which the steps come, and whatever the signs."""
    correct = [level % 3 > 0 for level in levels]
    full = risk_coverage_curve(levels, correct)
    spacing = max(1, math.ceil(len(levels) / limit))
    cells = [(accepted - 1) // spacing for accepted in full.accepted.tolist()]
    taken = [row for row, cell in enumerate(cells) if row == 0 or cell != cells[row - 1] or row == len(cells) - 1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("confrank.metrics.inputs.CHUNK", block)
        thinned = curve_of(rank(levels, correct), limit)
    for name in ("threshold", "accepted", "wrong"):
        assert getattr(thinned, name).tolist() == getattr(full, name)[taken].tolist()

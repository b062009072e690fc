import inspect
import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from confrank import compare, evaluate
from confrank.confidence import margin, negative_entropy
from confrank.metrics import (
    KEYS,
    accuracy,
    aurc,
    bootstrap,
    brier,
    ece,
    nll,
    reliability_bins,
    sample_values,
)
from confrank.metrics.inputs import as_probabilities
from confrank.predictions import Predictions


def naive_ece(confidence, correct, bins):
    edges = np.arange(bins + 1) / bins
    total = 0.0
    for k in range(bins):
        inside = (confidence > edges[k]) & (confidence <= edges[k + 1])
        if k == 0:
            inside |= confidence == 0
        if inside.any():
            total += inside.sum() * abs(correct[inside].mean() - confidence[inside].mean())
    return total / len(confidence)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.integers(1, 300), bins=st.sampled_from([1, 2, 10, 15]))
def test_ece_equals_a_loop_over_bins(seed, size, bins):
    rng = np.random.default_rng(seed)
    # Half of the values lie exactly on an edge.
    confidence = np.where(rng.random(size) < 0.5, rng.random(size), rng.choice(np.arange(bins + 1) / bins, size))
    correct = rng.random(size) < confidence
    assert ece(confidence, correct, bins) == pytest.approx(naive_ece(confidence, correct, bins), abs=1e-12)
    assert reliability_bins(confidence, correct, bins).count.sum() == size


def test_bins_may_be_a_number_of_few_bits():
    found = reliability_bins([0.1, 0.5, 0.999], [False, True, True], bins=np.uint8(255))
    assert np.array_equal(found.edges, np.arange(256) / 255)
    assert (len(found.count), found.count[254]) == (255, 1)


def table(seed=0, size=200, num_classes=4):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.standard_normal((size, num_classes))
    return logits, np.exp(logits) / np.exp(logits).sum(1, keepdims=True), rng.integers(0, num_classes, size)


def test_proper_scores_equal_references():
    _, probabilities, label = table()
    assert nll(probabilities, label) == pytest.approx(log_loss(label, probabilities), abs=1e-12)
    squared = [sum((row[k] - (k == y)) ** 2 for k in range(4)) for row, y in zip(probabilities, label, strict=True)]
    assert brier(probabilities, label) == pytest.approx(np.mean(squared), abs=1e-12)
    assert accuracy([1, 0, 1, 1]) == 0.75


def test_all_inputs_agree():
    logits, probabilities, label = table()
    from_logits = evaluate(logits=torch.tensor(logits), label=torch.tensor(label))
    from_probabilities = evaluate(probabilities=probabilities, label=label)
    from_scores = evaluate(confidence=probabilities.max(1), correct=probabilities.argmax(1) == label)
    assert set(from_logits.metrics) == set(KEYS)
    for key in KEYS:
        assert from_logits.metrics[key] == pytest.approx(from_probabilities.metrics[key], abs=1e-12)
        if key not in ("nll", "brier"):
            assert from_scores.metrics[key] == from_probabilities.metrics[key]
    assert set(from_scores.undefined) == {"nll", "brier"}
    assert from_logits.undefined == {}
    assert (from_logits.num_samples, from_logits.num_classes, from_scores.num_classes) == (200, 4, None)


def test_any_of_equally_large_classes_may_be_the_prediction():
    inputs = {"probabilities": [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], "label": [1, 0]}
    assert evaluate(**inputs).metrics["acc"] == 0.5
    assert evaluate(**inputs, prediction=[1, 0], correct=[1, 1]).metrics["acc"] == 1
    assert evaluate(**inputs, correct=[1, 1]).metrics["acc"] == 1
    assert evaluate(**{**inputs, "label": [0, 0]}, correct=[0, 1]).metrics["acc"] == 0.5
    with pytest.raises(ValueError, match="expected correct to agree with the label"):
        evaluate(**inputs, correct=[1, 0])
    with pytest.raises(ValueError, match="the same number of rows in each input, but got 1 in correct"):
        evaluate(**inputs, correct=[1])


@pytest.mark.parametrize("label", [["cat", "dog", "cat"], [True, False, True], [0.0, 1.0, 0.0], [None, "a", 3]])
def test_labels_next_to_correct_may_be_anything(label):
    inputs = {"confidence": [0.9, 0.8, 0.7], "correct": [1, 0, 1]}
    assert evaluate(**inputs, label=np.array(label)) == evaluate(**inputs)


def test_classes_are_whole_numbers_of_any_type():
    expected = evaluate(confidence=[0.9, 0.8, 0.7], correct=[1, 0, 1])
    for kind in (np.int8, np.uint32, bool, np.float32):
        label, prediction = np.array([0, 1, 1]).astype(kind), np.array([0, 0, 1]).astype(kind)
        assert evaluate(confidence=[0.9, 0.8, 0.7], label=label, prediction=prediction) == expected


def test_own_confidence_ranks_and_probabilities_calibrate():
    logits, probabilities, label = table()
    confidence = negative_entropy(torch.tensor(logits)).numpy()
    result = evaluate(logits=logits, label=label, confidence=confidence).metrics
    assert result["aurc"] == aurc(confidence, probabilities.argmax(1) == label)
    assert result["ece"] == evaluate(logits=logits, label=label).metrics["ece"]


def test_a_bare_confidence_within_0_and_1_is_the_probability_of_being_right():
    result = evaluate(confidence=[0.9, 0.8, 0.7, 1.0], correct=[True, False, True, True])
    assert result.metrics["brier_correct"] == pytest.approx((0.1**2 + 0.8**2 + 0.3**2 + 0) / 4)
    assert result.metrics["nll_correct"] == pytest.approx(-(math.log(0.9) + math.log(0.2) + math.log(0.7)) / 4)
    assert result.metrics["nll"] is None and result.metrics["brier"] is None and result.notes == []
    weighted = evaluate(confidence=[0.9, 0.8, 0.3], correct=[True, False, True], sample_weight=[1, 3, 0]).metrics
    assert weighted["brier_correct"] == pytest.approx((0.1**2 + 3 * 0.8**2) / 4)
    for other in (
        {"probabilities": [[0.9, 0.1]], "label": [0]},
        {"confidence": [0.5, 3.0], "correct": [True, False]},
    ):
        assert not {"brier_correct", "nll_correct"} & {*evaluate(**other).metrics}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_errors_with_confidence_1_are_clipped_and_counted(dtype):
    result = evaluate(confidence=np.array([1, 1, 0.5], dtype=dtype), correct=[False, True, True])
    largest = -math.log(np.finfo(dtype).tiny)
    assert result.metrics["nll_correct"] == pytest.approx((largest + math.log(2)) / 3)
    assert len(result.notes) == 1 and result.notes[0].startswith("1 of 3 predictions are wrong with confidence 1")
    assert f"{largest / (largest + math.log(2)):.1%} of the NLL" in result.notes[0]


def test_undefined_is_none_with_a_reason():
    result = evaluate(probabilities=[[0.9, 0.1], [0.8, 0.2]], label=[0, 0])
    assert [key for key in KEYS if result.metrics[key] is None] == ["naurc", "aupr_error", "fpr95", "auroc"]
    assert result.undefined["auroc"] == "needs right and wrong predictions, but none is wrong"
    assert "none is right" in evaluate(confidence=[0.5], correct=[False]).undefined["auroc"]
    empty = evaluate(confidence=[], correct=[])
    assert set(empty.undefined) == set(KEYS)
    assert empty.metrics == dict.fromkeys(KEYS)
    score = evaluate(confidence=[-3.0, 12.0], correct=[False, True])
    assert score.metrics["ece"] is None
    assert score.metrics["aurc"] == 0.25


def test_zero_probabilities_are_clipped_and_counted():
    probabilities = np.array([[1.0, 0.0], [0.5, 0.5]], dtype=np.float32)
    result = evaluate(probabilities=probabilities, label=[1, 0])
    assert result.metrics["nll"] == pytest.approx((-np.log(np.finfo(np.float32).tiny) - np.log(0.5)) / 2)
    assert "1 of 2 label probabilities" in result.notes[0]
    assert f"they make up {87.336 / (87.336 + 0.693):.1%} of the NLL" in result.notes[0]
    with pytest.warns(UserWarning, match="1 of 2 label probabilities"):
        nll(probabilities, [1, 0])


def test_logits_are_never_clipped():
    result = evaluate(logits=np.array([[800.0, 0.0]]), label=[1])
    assert result.metrics["nll"] == 800


def test_logits_further_apart_than_numbers_go_have_no_nll():
    logits = np.array([[0.0, np.finfo(float).min], [np.finfo(float).max, -1e308], [0.0, 1.0]])
    result = evaluate(logits=logits, label=[1, 1, 1])
    assert result.metrics["nll"] is None
    assert "too far apart" in result.undefined["nll"]
    assert result.metrics["brier"] == pytest.approx((2 + 2 + 2 * 0.2689414213699951**2) / 3)
    assert json.loads(json.dumps(result.as_dict(), allow_nan=False))["metrics"]["nll"] is None
    (resampled,) = bootstrap([sample_values(logits=logits, label=[1, 1, 1])], 20)
    assert "nll" not in resampled and len(resampled["brier"]) == 20


def test_chunks_do_not_matter(monkeypatch):
    logits, probabilities, label = table(size=50)
    whole = evaluate(logits=logits, label=label).metrics, evaluate(probabilities=probabilities, label=label).metrics
    monkeypatch.setattr("confrank.metrics.inputs.CHUNK", 13)
    parts = evaluate(logits=logits, label=label).metrics, evaluate(probabilities=probabilities, label=label).metrics
    for one, other in zip(whole, parts, strict=True):
        assert one == pytest.approx(other, abs=1e-12)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"probabilities": [[0.5, 0.4]], "label": [0]}, "sum of 0.9 in row 0; give the probabilities of all classes"),
        ({"probabilities": [[0.5, 0.5], [0.5, 0.489]], "label": [0, 0]}, "sum of 0.989 in row 1"),
        ({"probabilities": [[70.0, 30.0]], "label": [0]}, r"within \[0, 1\], but got \[70.0, 30.0\] in row 0"),
        ({"probabilities": [[0.5, 0.5], [1.5, -0.5]], "label": [0, 1]}, r"within \[0, 1\].* in row 1"),
        ({"probabilities": [[0.5, 0.5]], "label": [2]}, r"labels within 0..1, but got 2 in row 0"),
        ({"probabilities": [[0.5, 0.5]], "label": [-1]}, "but got -1 in row 0"),
        ({"probabilities": [[0.5, 0.5]], "label": [0.5]}, "whole numbers in label, but got 0.5 in row 0"),
        ({"probabilities": [[np.nan, 0.5]], "label": [0]}, "finite values in probabilities.*in row 0"),
        ({"logits": [[np.inf, 0.5]], "label": [0]}, "finite values in logits.*in row 0"),
        ({"logits": [[1.0, 2.0], [1.0]], "label": [0, 1]}, "rows of one length, but they have different lengths"),
        ({"logits": [[1.0, 2.0]]}, "label with logits"),
        ({"logits": [[1.0, 2.0]], "probabilities": [[0.5, 0.5]], "label": [0]}, "but got both"),
        ({"confidence": [0.5]}, "but got confidence"),
        ({}, "but got nothing"),
        ({"logits": [[1.0, 2.0]], "label": [0], "correct": [True]}, "correct to agree"),
        ({"logits": [[1.0, 2.0]], "label": [0, 1]}, "2 in label, 1 in predictions"),
        ({"logits": [[1.0, 2.0]], "label": [0], "confidence": [0.5, 0.4]}, "2 in confidence, 1 in correct"),
        *(
            (
                {"logits": [[1.0, 2.0]], "label": [0], "confidence": named},
                r"confidence of each prediction, but got .*margin.*; compute it, e.g. confidence=margin\(logits\)",
            )
            for named in ("margin", margin)
        ),
        (
            {"logits": [[1.0, 2.0]], "label": [0], "prediction": [0]},
            "but got 0 in row 0, where class 1 has the largest value",
        ),
        (
            {"logits": [[1.0, 2.0]], "label": [0], "prediction": [7]},
            "but got 7 in row 0, where class 1 has the largest value",
        ),
        ({"label": [0, 1], "prediction": [1], "confidence": [0.9, 0.8]}, "2 in label, 1 in prediction"),
        ({"label": [0, 1], "prediction": [1, 1], "confidence": [0.9]}, "1 in confidence, 2 in correct"),
        ({"label": [0], "correct": [1, 0], "confidence": [0.9, 0.8]}, "2 in correct, 1 in label"),
        ({"label": [0.0, 0.5], "prediction": [0, 1], "confidence": [0.5, 0.5]}, "whole numbers.* 0.5 in row 1"),
        *(
            (
                {"label": [0.0, odd], "prediction": [0, 1], "confidence": [0.5, 0.5]},
                "whole numbers in label.* in row 1",
            )
            for odd in (np.nan, np.inf, -1e300)
        ),
        ({"label": ["0"], "prediction": [0], "confidence": [0.9]}, "names or numbers in both label and prediction"),
        ({"label": [0], "prediction": [1], "correct": [1], "confidence": [0.9]}, "agree with the label and the pred"),
    ],
)
def test_wrong_input(inputs, message):
    with pytest.raises(ValueError, match=message):
        evaluate(**inputs)


def test_masked_values_are_refused():
    """numpy would take whatever is below the mask."""
    masked = np.ma.array([0.9, 0.8, 0.1], mask=[False, True, False])
    for inputs in (
        {"confidence": masked, "correct": [1, 0, 1]},
        {"confidence": [0.9, 0.8, 0.1], "correct": np.ma.array([1, 0, 1], mask=[False, True, False])},
        {"probabilities": np.ma.stack([masked, 1 - masked], axis=1), "label": [0, 1, 1]},
    ):
        with pytest.raises(ValueError, match="without masked values, but got [12] of them; select the rows"):
            evaluate(**inputs)
    with pytest.raises(ValueError, match="without masked values, but got 1 of them"):
        Predictions(confidence=masked, correct=np.ones(3))
    nothing_masked = {"confidence": np.ma.array([0.9, 0.8, 0.1]), "correct": [1, 0, 1]}
    assert evaluate(**nothing_masked).metrics == evaluate(confidence=[0.9, 0.8, 0.1], correct=[1, 0, 1]).metrics


def test_rounded_probabilities_are_divided_by_their_sum():
    _, probabilities, label = table()
    rounded = np.round(probabilities, 2)
    kept, total = rounded.copy(), rounded.sum(axis=1, keepdims=True).round(2)
    result = evaluate(probabilities=rounded, label=label)
    assert result.metrics == evaluate(probabilities=rounded / total, label=label).metrics
    num_off = np.count_nonzero(total != 1)
    assert 0 < num_off < 200
    assert f"{num_off} of 200 rows of probabilities were rounded" in result.notes[0]
    assert np.array_equal(rounded, kept)
    assert brier([[0.333, 0.333, 0.333]], [0]) == pytest.approx(2 / 3)
    assert nll([[0.33, 0.33, 0.33]], [2]) == pytest.approx(np.log(3))


@pytest.mark.parametrize(("scale", "num_classes"), [(1.0, 2), (10.0, 10), (700.0, 1000), (1e300, 3)])
def test_samples_of_logits_equal_those_of_torch(scale, num_classes):
    logits = scale * np.random.default_rng(0).normal(size=(500, num_classes))
    label = np.arange(500) % num_classes
    samples = sample_values(logits=logits, label=label)
    log_probability = torch.log_softmax(torch.tensor(logits), dim=1)
    one_hot = torch.nn.functional.one_hot(torch.tensor(label), num_classes)
    expected = {
        "confidence": torch.softmax(torch.tensor(logits), dim=1).max(dim=1).values,
        "nll": torch.nn.functional.nll_loss(log_probability, torch.tensor(label), reduction="none"),
        "brier": ((log_probability.exp() - one_hot) ** 2).sum(dim=1),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(samples, name), values.numpy(), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_probabilities_in_half_precision(kind):
    logits, probabilities, label = table(num_classes=50)
    half = evaluate(probabilities=torch.softmax(torch.tensor(logits), 1).to(kind), label=torch.tensor(label))
    whole = evaluate(probabilities=probabilities, label=label)
    for key in ("ece", "nll", "brier"):
        assert half.metrics[key] == pytest.approx(whole.metrics[key], rel=0.02)


def test_a_probability_just_above_one_is_one():
    assert nll([[1.0000001, 0.0]], [0]) == 0
    assert evaluate(probabilities=[[1.0000001, 0.0], [0.5, 0.5]], label=[0, 1]).metrics["brier"] == 0.25


def test_exact_probabilities_stay_as_they_are():
    for kind in (np.float32, np.float64):
        probabilities = table(num_classes=1000)[1].astype(kind)
        assert as_probabilities(probabilities) is probabilities


def test_logits_that_look_like_probabilities_give_a_warning():
    logits, probabilities, label = table()
    with pytest.warns(UserWarning, match="these logits look like probabilities"):
        result = evaluate(logits=probabilities, label=label)
    assert "give them as probabilities" in result.notes[0]
    shifted = probabilities.copy()
    shifted[3] += 1
    assert evaluate(logits=shifted, label=label).notes == evaluate(logits=logits, label=label).notes == []


def test_calibration_needs_probabilities():
    with pytest.raises(ValueError, match=r"within \[0, 1\] to bin it, but got values in \[0.5, 2.0\]"):
        ece([0.5, 2.0], [True, False])
    with pytest.raises(ValueError, match="positive integer, but got 0"):
        ece([0.5], [True], bins=0)


def test_rounding_to_five_digits_does_not_make_ties_depend_on_the_order_of_the_classes():
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.ones(4), 2000).round(5)
    table[:, 0] += rng.choice([-1e-5, 1e-5], 2000)
    table = table[(table >= 0).all(axis=1)].round(5)
    confidences = [as_probabilities(table[:, list(order)]).max(axis=1) for order in itertools.permutations(range(4))]
    assert all(np.array_equal(confidences[0], other) for other in confidences)


@pytest.mark.parametrize("bins", [6, 9, 15, 49])
def test_a_share_of_k_bins_is_the_upper_edge_of_bin_k(bins):
    shares = np.arange(1, bins + 1) / bins
    assert reliability_bins(shares, [True] * bins, np.int64(bins)).count.tolist() == [1] * bins


@pytest.mark.parametrize(("num_classes", "digits"), [(20, 2), (200, 3)])
def test_many_rounded_probabilities_may_sum_further_from_one(num_classes, digits):
    probabilities = np.random.default_rng(0).dirichlet(np.full(num_classes, 2.0), 300)
    rounded = probabilities.round(digits)
    gap = np.abs(rounded.sum(axis=1) - 1).max()
    assert 0.011 < gap < 0.1
    for kind in (np.float64, np.float32):
        assert as_probabilities(rounded.astype(kind)).sum(axis=1) == pytest.approx(1, abs=1e-6)
    spoilt = rounded.copy()
    spoilt[0, 0] += 1e-5  # not rounded: nothing explains the sums
    with pytest.raises(ValueError, match=r"sum to 1 \(within 0.01\)"):
        as_probabilities(spoilt)
    spoilt[0] = rounded[0]
    spoilt[0, 0] = 0.5
    with pytest.raises(ValueError, match=r"sum to 1 \(within 0.1\) in each row, but got a sum of 1.4\d* in row 0"):
        as_probabilities(spoilt)


def test_proper_scores_want_one_label_per_row():
    for metric in (nll, brier):
        with pytest.raises(ValueError, match="same number of rows in each input"):
            metric([[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]], [0, 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_only_probabilities_below_the_smallest_normal_number_are_clipped(dtype):
    tiny = float(np.finfo(dtype).tiny)
    assert nll(np.array([[tiny, 1.0]], dtype), [0]) == pytest.approx(-np.log(tiny), rel=1e-12)  # without a warning
    with pytest.warns(UserWarning, match="1 "):
        clipped = nll(np.array([[tiny / 2, 1.0], [0.25, 0.75]], dtype), [0, 0])
    assert clipped == pytest.approx((-np.log(tiny) - np.log(0.25)) / 2, rel=1e-12)


@pytest.mark.parametrize(
    ("confidence", "inside"),
    [([0.0, 1.0], True), ([0.5, 0.5], True), ([-0.1, 0.5], False), ([0.5, 1.1], False), ([], False)],
)
def test_confidences_within_0_and_1_are_probabilities(confidence, inside):
    samples = sample_values(confidence=confidence, correct=[True] * len(confidence))
    assert (samples.probability is not None) == inside


@pytest.mark.parametrize(
    ("classes", "numbered"),
    [
        ([0, 1], True),
        (np.array([0, 1], np.uint8), True),
        (["a", "b"], False),
        ([0.0, 1.0], False),
        ([[0], [1]], False),
    ],
)
@pytest.mark.parametrize("name", ["label", "prediction"])
def test_only_numbered_classes_are_summed_up(name, classes, numbered):
    samples = sample_values(confidence=[0.5, 0.75], correct=[True, False], **{name: classes})
    assert (getattr(samples, name) is not None) == numbered
    with pytest.raises(ValueError, match="same number of rows in each input"):
        sample_values(confidence=[0.5, 0.75, 1.0], correct=[True] * 3, **{name: classes})


def test_one_row_with_many_digits_makes_the_sums_of_all_exact(monkeypatch):
    """Whatever the block that it is in."""
    monkeypatch.setattr("confrank.metrics.inputs.CHUNK", 12)  # two rows
    rounded = [[0.1, 0.23, 0.61, 0.0, 0.03, 0.01]] * 5
    assert as_probabilities(rounded).sum(axis=1) == pytest.approx(1)
    for row in range(6):
        mixed = [*rounded[:row], [0.123456789, 1 - 0.123456789, 0, 0, 0, 0], *rounded[row:]]
        with pytest.raises(ValueError, match=f"but got a sum of 0.98 in row {int(row == 0)};"):
            as_probabilities(mixed)


def test_rows_rounded_to_five_digits_are_left_as_they_are():
    """Their sum is 1 - 1e-5, which a float32 softmax over many classes may have too."""
    thirds = [[0.33333, 0.33333, 0.33333]] * 4
    assert np.array_equal(as_probabilities(thirds), thirds)
    assert evaluate(probabilities=thirds, label=[0, 1, 2, 0]).notes == []


def test_logits_look_like_probabilities_only_if_all_rows_do():
    """Also if the rows that do not are many thousands of rows below."""
    logits = np.full((40_000, 2), 0.5)
    logits[-1] = 3.0, 2.0
    assert sample_values(logits=logits, label=np.zeros(40_000, dtype=int)).notes == []
    assert sample_values(logits=logits[:-1], label=np.zeros(39_999, dtype=int)).notes


def test_a_row_may_have_any_number_of_classes():
    table = np.random.default_rng(0).dirichlet(np.ones(70_000), 2)
    expected = ((table - np.eye(2, 70_000)) ** 2).sum(axis=1).mean()
    assert brier(table, [0, 1]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_score_must_be_finite(value):
    with pytest.raises(ValueError, match=f"expected finite values in confidence, but got {value} in row 1"):
        aurc([0.5, value, 0.25], [True, False, True])


def test_an_evaluation_prints_as_a_table():
    printed = repr(evaluate(confidence=[0.9, 0.8, 0.7, 0.6], correct=[True, True, False, True])).splitlines()
    assert printed[:3] == ["4 predictions", "acc            0.75", "aurc           0.1458"]
    assert printed[-3] == "brier          undefined: needs the probabilities of all classes and the labels"
    assert printed[-1] == "brier_correct  0.175"
    rounded = [[0.333, 0.333, 0.333], [0.5, 0.25, 0.25]]
    result = evaluate(probabilities=rounded, label=[0, 1])
    assert repr(result).splitlines()[0] == "2 predictions, 3 classes" and repr(result).endswith(result.notes[0])


def test_one_hot_labels_have_a_remedy():
    with pytest.raises(ValueError, match=r"shape \(2, 2\) of float64; if it is one-hot, give label.argmax\(1\)"):
        evaluate(probabilities=[[0.75, 0.25], [0.5, 0.5]], label=np.eye(2))


def test_label_and_probabilities_by_position():
    table, label = [[0.75, 0.25], [0.5, 0.5], [0.1, 0.9]], [0, 1, 1]
    assert evaluate(label, table) == evaluate(label=label, probabilities=table)
    for first in (table, np.eye(3), pd.DataFrame(table)):
        with pytest.raises(
            ValueError, match=r"\[n\], but got shape \(3, .*first, as in evaluate\(label, probabilities"
        ):
            evaluate(first, label)
    with pytest.raises(ValueError, match=r"the label comes first, as in evaluate\(label, probabilities\)"):
        evaluate(np.array(table))


@pytest.mark.parametrize("kind", ["probabilities", "logits"])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_two_classes_in_one_column(kind, shape):
    """A sigmoid is the softmax of the logits [0, z]; the table of both classes is hand-made here."""
    logit, label = np.random.default_rng(0).normal(size=40), np.arange(40) % 2
    second = 1 / (1 + np.exp(-logit))
    expected = evaluate(label, np.stack([1 - second, second], axis=1)).metrics
    given = {"probabilities": second, "logits": logit}[kind].reshape(shape)
    found = evaluate(label, **{kind: given})
    assert found.num_classes == 2 and found.metrics == pytest.approx(expected, rel=1e-12)
    names = np.array(["ham", "spam"])
    named = evaluate(names[label], **{kind: given}, classes=names)
    assert named.metrics == pytest.approx(expected, rel=1e-12)
    pair = compare({"label": label, kind: given.reshape(-1)}, resamples=0)
    assert pair.metrics[0] == pytest.approx(expected, rel=1e-12)


def test_one_column_of_probabilities_is_within_0_and_1():
    with pytest.raises(
        ValueError, match=r"of class 1 within \[0, 1\], but got 1.5 in row 1; scores before a sigmoid are"
    ):
        evaluate([0, 1], [0.5, 1.5])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("labels", "label"),
        ("y_true", "label"),
        ("y_prob", "probabilities"),
        ("y_score", "probabilities"),
        ("y_pred", "prediction"),
        ("scores", "confidence"),
        ("weights", "sample_weight"),
        ("probabilites", "probabilities"),
    ],
)
def test_other_names_are_answered_with_the_right_one(name, meant):
    with pytest.raises(ValueError, match=f"but got '{name}'; use {meant} instead of {name}$"):
        evaluate(**{name: [0, 1]})
    if meant != "sample_weight":
        with pytest.raises(ValueError, match=f"but got '{name}'; use {meant} instead of {name}$"):
            compare({name: [0, 1]})


def test_the_signatures_fit_on_a_screen():
    for function in (evaluate, compare):
        assert len(str(inspect.signature(function))) < 4 * 118
    assert [*inspect.signature(evaluate).parameters][:2] == ["label", "probabilities"]

"""Each score against a naive loop, and what no score may depend on."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from confrank import CorrectnessHistory, CorrectnessRankingLoss, confidence
from confrank.decisions.policy_parts import ScorePart
from confrank.errors import InputError
from confrank.metrics import aurc, sample_values
from confrank.ood import LogitDetector, Protocol
from confrank.scores import fit, names, score
from confrank.scores.registry import refusal

FITTED = {"p-norm": {"p": 3}, "max-probability-temperature": {"temperature": 0.35}}


def parameters_of(name, num_classes):
    matrix = np.abs(np.sin(np.arange(num_classes**2))).reshape(num_classes, num_classes)
    return {"matrix": matrix.tolist()} if name == "relu" else FITTED.get(name, {})


def softmax(row):
    exponentials = [math.exp(z - max(row)) for z in row]
    return [e / math.fsum(exponentials) for e in exponentials]


def naive(name, row, p, parameters):
    """The formulas of one row, in plain Python."""
    first, second, *_ = sorted(p, reverse=True)
    z = sorted(row, reverse=True)
    if name == "p-norm":
        mean = math.fsum(row) / len(row)
        norm = math.fsum(abs(v - mean) ** parameters["p"] for v in row) ** (1 / parameters["p"])
        return (max(row) - mean) / norm
    if name == "gen":
        return -math.fsum(v**0.1 * (1 - v) ** 0.1 for v in sorted(p, reverse=True)[:100])
    if name == "relu":
        pairs = [(i, j) for i in range(len(p)) for j in range(len(p))]
        return -math.fsum(p[i] * parameters["matrix"][i][j] * p[j] for i, j in pairs)
    return {
        "max-probability": lambda: first,
        "margin": lambda: first - second,
        "logit-margin": lambda: z[0] - z[1],
        "negative-entropy": lambda: 1 + math.fsum(v * math.log(v) for v in p if v) / math.log(len(p)),
        "sum-of-squares": lambda: math.fsum(v * v for v in p),
        "max-logit": lambda: z[0],
        "energy": lambda: math.log(math.fsum(math.exp(v) for v in row)),
        "max-probability-temperature": lambda: max(softmax([v / parameters["temperature"] for v in row])),
    }[name]()


@pytest.mark.parametrize("name", names)
@pytest.mark.parametrize("num_classes", [3, 10, 130])
def test_a_score_of_logits_is_that_of_a_naive_loop(name, num_classes):
    logits = np.random.default_rng(num_classes).normal(0, 3, (20, num_classes))
    parameters = parameters_of(name, num_classes)
    expected = [naive(name, row, softmax(row), parameters) for row in logits.tolist()]
    assert score(name, logits=logits, **parameters) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", [name for name in names if name not in ("max-logit", "energy")])
def test_a_score_of_probabilities_takes_their_logarithms_as_logits(name):
    probabilities = np.random.default_rng(1).dirichlet(np.full(5, 0.3), 30)
    parameters = parameters_of(name, 5)
    expected = [naive(name, [math.log(v) for v in p], p, parameters) for p in probabilities.tolist()]
    assert score(name, probabilities=probabilities, **parameters) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("p", [0, 1, 2, 5, 9, 2.5])
def test_the_p_norm_of_any_order(p):
    logits = np.random.default_rng(2).normal(0, 1, (50, 4))
    centred = logits - logits.mean(axis=1, keepdims=True)
    norm = np.linalg.norm(centred, ord=p, axis=1) if p else 1
    assert score("p-norm", logits=logits, p=p) == pytest.approx(centred.max(axis=1) / norm, rel=1e-12)


def test_gen_takes_other_parameters():
    probabilities = np.array([[0.5, 0.3, 0.1, 0.1]])
    expected = -sum((v * (1 - v)) ** 0.5 for v in (0.5, 0.3))
    assert score("gen", probabilities=probabilities, gamma=0.5, top=2) == pytest.approx([expected])


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_maximum_probability_is_bit_for_bit_that_of_evaluate(kind, dtype):
    table = np.random.default_rng(3).dirichlet(np.ones(10), 7000).astype(dtype)
    table = np.log(table) if kind == "logits" else table
    samples = sample_values(**{kind: table}, label=np.zeros(7000, dtype=int))
    assert np.array_equal(score("max-probability", **{kind: table}), samples.confidence)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.integers(1, 400), num_classes=st.integers(3, 150))
def test_neither_the_order_nor_the_number_of_rows_changes_a_bit(seed, size, num_classes):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 5, (size, num_classes))
    some = rng.permutation(size)[: rng.integers(1, size + 1)]
    for name in names:
        parameters = parameters_of(name, num_classes)
        whole = score(name, logits=logits, **parameters)
        assert np.array_equal(score(name, logits=np.asfortranarray(logits[some]), **parameters), whole[some]), name


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
@given(seed=st.integers(0, 100), num_classes=st.integers(3, 130))
@settings(max_examples=10, deadline=None)
def test_the_order_of_the_classes_changes_no_bit(kind, seed, num_classes):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(40, num_classes))
    table = logits if kind == "logits" else np.apply_along_axis(softmax, 1, logits)
    permuted = rng.permuted(table, axis=1)
    given_names = [name for name in names if name != "relu" and refusal(name, kind, num_classes) is None]
    for name in given_names:
        values = parameters_of(name, num_classes)
        assert (score(name, **{kind: table}, **values) == score(name, **{kind: permuted}, **values)).all(), name
    confidences = [evaluation_confidence(kind, each) for each in (table, permuted)]
    assert (confidences[0] == confidences[1]).all()


def evaluation_confidence(kind, table):
    return sample_values(**{kind: table}, label=np.zeros(len(table), dtype=int)).confidence


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), shift=st.floats(-50, 50))
def test_a_shift_of_the_logits_changes_only_the_two_scores_of_their_scale(seed, shift):
    logits = np.random.default_rng(seed).normal(0, 3, (20, 6))
    for name in names:
        parameters = parameters_of(name, 6)
        before, after = (score(name, logits=table, **parameters) for table in (logits, logits + shift))
        moved = shift if name in ("max-logit", "energy") else 0
        assert after == pytest.approx(before + moved, rel=1e-9, abs=1e-9), name


@pytest.mark.parametrize("name", names)
def test_extreme_tables_give_finite_scores(name):
    lowest = -np.finfo(np.float64).max
    parameters = parameters_of(name, 3)
    logits = np.array([[0.0, 0.0, 0.0], [1e4, 0.0, -1e4], [3.0, 1.0, lowest], [3.0, lowest, lowest]])
    assert np.isfinite(score(name, logits=logits, **parameters)).all()
    if name not in ("max-logit", "energy"):
        probabilities = np.array([[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
        sure, unsure = score(name, probabilities=probabilities, **parameters)
        assert np.isfinite([sure, unsure]).all() and (sure > unsure or name == "relu")


def test_no_rows_have_no_scores():
    assert score("margin", logits=np.empty((0, 3))).shape == (0,)
    assert score("relu", logits=np.empty((0, 3)), **parameters_of("relu", 3)).shape == (0,)


def test_a_score_that_is_not_defined_is_refused_with_the_reason():
    probabilities = np.full((2, 2), 0.5)
    for name in ("energy", "max-logit"):
        with pytest.raises(InputError, match=f"but {name} needs logits"):
            score(name, probabilities=probabilities)
    with pytest.raises(InputError, match="needs at least 3 classes: it is constant for 2"):
        score("p-norm", logits=np.ones((2, 2)), p=2)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("entropy", {}, "expected a score among max-probability, margin"),
        ("margin", {"p": 2}, "expected no parameter for margin, but got 'p'"),
        ("gen", {"beta": 2}, "expected gamma, top for gen, but got 'beta'"),
        ("gen", {"top": 0}, "expected top of gen to be a whole number above 0, but got 0"),
        ("p-norm", {}, "expected the parameter 'p' of p-norm, but got none"),
        ("p-norm", {"p": -1}, "expected p of p-norm to be a positive number, but got -1"),
        ("max-probability-temperature", {"temperature": 0}, "to be a positive number, but got 0"),
        ("relu", {"matrix": [[0.0, 1.0], [1.0, 0.0]]}, "expected a matrix for 3 classes, but got one for 2"),
        ("relu", {"matrix": [[0.0, 1.0]]}, "to be a square matrix of numbers"),
        ("relu", {"matrix": [["a"]]}, "to be a square matrix of numbers"),
    ],
)  # fmt: skip
def test_mistakes(name, parameters, message):
    with pytest.raises(ValueError, match=message):
        score(name, logits=np.zeros((2, 3)), **parameters)


def test_a_table_is_logits_or_probabilities():
    with pytest.raises(ValueError, match="expected logits or probabilities, but got both"):
        score("margin", logits=np.zeros((2, 3)), probabilities=np.full((2, 3), 1 / 3))
    with pytest.raises(ValueError, match="expected logits or probabilities, but got neither"):
        score("margin")


def _fitting_data(num_classes=4, size=400):
    rng = np.random.default_rng(5)
    logits = rng.normal(0, 3, (size, num_classes))
    correct = rng.random(size) < 0.3 + 0.6 * score("margin", logits=logits)
    return logits, correct


def test_the_fitted_temperature_and_power_are_those_of_a_search():
    logits, correct = _fitting_data()
    name = "max-probability-temperature"
    areas = {t / 100: aurc(score(name, logits=logits, temperature=t / 100), correct) for t in range(1, 201)}
    assert areas[fit(name, logits=logits, correct=correct)["temperature"]] == min(areas.values())
    powers = {p: aurc(score("p-norm", logits=logits, p=p), correct) for p in range(10)}
    assert fit("p-norm", logits=logits, correct=correct) == {"p": None}  # falls back to the maximum probability
    assert min(powers.values()) > aurc(score("max-probability", logits=logits), correct)
    assert np.array_equal(score("p-norm", logits=logits, p=None), score("max-probability", logits=logits))
    ranked_by_norm = score("p-norm", logits=logits, p=4) > 0.8
    powers = {p: aurc(score("p-norm", logits=logits, p=p), ranked_by_norm) for p in range(10)}
    assert fit("p-norm", logits=logits, correct=ranked_by_norm) == {"p": min(powers, key=powers.get)}


def test_the_fitted_matrix_is_that_of_a_naive_loop():
    logits, correct = _fitting_data()
    rows = [np.array(softmax(row)) for row in logits.tolist()]
    wrong = np.mean([np.outer(p, p) for p, right in zip(rows, correct, strict=True) if not right], axis=0)
    right = np.mean([np.outer(p, p) for p, right in zip(rows, correct, strict=True) if right], axis=0)
    expected = np.maximum(0.5 * wrong - 0.5 * right, 0) * (1 - np.eye(4))
    assert np.array(fit("relu", logits=logits, correct=correct)["matrix"]) == pytest.approx(expected, abs=1e-12)


def test_relu_needs_right_and_wrong_predictions():
    for flags, missing in ((np.ones(9, dtype=bool), "wrong"), (np.zeros(9, dtype=bool), "right")):
        with pytest.raises(InputError, match=f"none of 9 is {missing}"):
            fit("relu", logits=np.random.default_rng(0).normal(0, 1, (9, 3)), correct=flags)
    assert fit("margin", logits=np.zeros((2, 3)), correct=[True, False]) == {}


def test_names_of_scores_and_confidences_are_written_in_two_ways():
    table, logits = np.random.default_rng(0).dirichlet(np.ones(4), 50), np.random.default_rng(1).normal(size=(50, 4))
    right = np.arange(50) % 3 > 0
    for name in names:
        if "-" in name:
            fitted = fit(name, logits=logits, correct=right)
            assert str(fit(name.replace("-", "_"), logits=logits, correct=right)) == str(fitted)
            values = [score(each, logits=logits, **fitted) for each in (name, name.replace("-", "_"))]
            np.testing.assert_array_equal(*values)
    np.testing.assert_allclose(score("sum_of_squares", probabilities=table), (table**2).sum(axis=1), rtol=1e-14)
    assert confidence.get("max-probability") is confidence.max_probability
    assert confidence.get("negative-entropy") is confidence.negative_entropy
    criterion = CorrectnessRankingLoss(CorrectnessHistory(2), "negative-entropy")
    assert criterion.confidence is confidence.negative_entropy
    assert Protocol(detectors=["max_probability", "negative_entropy"]).detectors == (
        "max-probability",
        "negative-entropy",
    )
    assert LogitDetector(torch.nn.Linear(2, 2), "max_logit").name == "max-logit"
    assert ScorePart("negative_entropy").name == "negative-entropy"

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from confrank.decisions import accepted_by_group, group_thresholds, measured_at
from confrank.decisions.learn_then_test import rows_needed


@cache
def tail(errors, size, risk):
    return binom.cdf(errors, size, risk)


@cache
def least(errors, risk, level):
    """The smallest number of rows that so many errors certify."""
    return next(m for m in range(errors + 1, 10**5) if tail(errors, m, risk) <= level)


def slow_threshold(confidence, correct, classes, risks, level, sequences):
    """Learn then Test with plain loops; the first of `classes` is None, for all rows."""
    order = sorted(range(len(confidence)), key=lambda row: -confidence[row])

    def counts(k, number):
        limit = confidence[order[k - 1]]
        rows = [row for row in order if confidence[row] >= limit and number in (None, classes[row])]
        return len(rows), sum(not correct[row] for row in rows)

    def passes(k, level):
        tests = [(*counts(k, number), risk) for number, risk in risks.items()]
        return all(m > e and tail(e, m, risk) <= level for m, e, risk in tests)

    def certifiable(k, level):  # ties of the k-th row do not help to start
        part = order[:k]
        sizes = [sum(number in (None, classes[row]) for row in part) for number in risks]
        return all(size >= least(0, risk, level) for size, risk in zip(sizes, risks.values(), strict=True))

    chosen, each = [], level
    for number in range(1, sequences + 1):
        first = next((k for k in range(1, len(order) + 1) if certifiable(k, level / number)), None)
        if first is None or first * 2 ** (number - 1) > len(order):
            break
        chosen, each = [first * 2**step for step in range(number)], level / number
    best = None
    for start in chosen:
        steps = [least(errors, risks[None], each) for errors in range(int(risks[None] * len(order)) + 1)]
        for k in [start, *(step for step in steps if start < step <= len(order)), len(order)]:
            if not passes(k, each):
                break
            best = k if best is None else max(best, k)
    return None if best is None else confidence[order[best - 1]]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31), size=st.integers(20, 120), ties=st.booleans(),
    correction=st.sampled_from(["fixed-sequence", "bonferroni"]), several=st.booleans(),
)  # fmt: skip
def test_thresholds_are_those_of_plain_loops(seed, size, ties, correction, several):
    rng = np.random.default_rng(seed)
    confidence = rng.integers(0, 12, size) / 12 if ties else rng.random(size)
    correct = rng.random(size) < 0.8 + 0.2 * confidence
    classes, group = rng.integers(0, 2, size), np.array(["a", "b"])[rng.integers(0, 2, size)]
    risks = {None: 0.2, 1: 0.3} if several else {None: 0.2}
    result = group_thresholds(
        confidence, correct, group, 0.2, 0.3, correction=correction, prediction=classes,
        class_risk={1: 0.3} if several else None,
    )  # fmt: skip
    assert [one.group for one in result.groups] == sorted({*group.tolist()})
    for one in result.groups:
        rows = group == one.group
        level, sequences = 0.3 / len(result.groups), 1 if correction == "fixed-sequence" else 40
        slow = slow_threshold(confidence[rows], correct[rows], classes[rows], risks, level, sequences)
        assert result.thresholds[one.group] == slow
        if one.point is not None:
            measured = measured_at(confidence[rows], correct[rows], one.point.threshold)
            assert (one.point.accepted, one.point.wrong) == (measured.accepted, measured.wrong)
            assert one.point.bound <= 0.2
    accepted = result.accepts(confidence, group)
    assert accepted.sum() == sum(one.point.accepted for one in result.groups if one.point is not None)


def test_a_sequence_starts_at_what_zero_errors_certify():
    for risk, delta in ((0.05, 0.001), (0.2, 0.1), (0.01, 0.3)):
        first = math.ceil(math.log(delta) / math.log(1 - risk))
        assert rows_needed(risk, delta) == first
        for size in (first - 1, first):
            one = group_thresholds(np.linspace(0, 1, size), np.ones(size), None, risk, delta).groups[0]
            assert (one.point is not None) == (size == first)
        assert one.needed is None
        short = group_thresholds(np.linspace(0, 1, first - 1), np.ones(first - 1), None, risk, delta).groups[0]
        assert short.needed == first


def test_one_early_error_ends_a_fixed_sequence_only():
    confidence = np.linspace(1, 0, 2000)
    correct = np.arange(2000) != 3
    fixed = group_thresholds(confidence, correct, None, 0.05, 0.01, correction="fixed-sequence")
    assert fixed.thresholds == {"all": None}
    assert group_thresholds(confidence, correct, None, 0.05, 0.01).thresholds == {"all": 0.0}


def test_a_group_without_a_promise_says_how_many_rows_it_needs():
    confidence, correct = np.linspace(0, 1, 100), np.arange(100) % 20 != 10  # 5 errors, evenly spread
    missing = group_thresholds(confidence, correct, None, 0.1, 0.05).groups[0]
    assert missing.point is None
    # At most 6 of 100 are wrong: P(Bin(m, 0.1) <= 0.06 m) <= 0.05 or, for two sequences of tests, half of it.
    enough = [next(m for m in range(60, 999) if tail(6 * m // 100, m, 0.1) <= level) for level in (0.05, 0.025)]
    assert enough[0] <= missing.needed <= enough[1]
    more = np.linspace(0, 1, 4 * missing.needed), np.arange(4 * missing.needed) % 20 != 10
    assert group_thresholds(*more, None, 0.1, 0.05).groups[0].point is not None
    hopeless = group_thresholds(np.linspace(0, 1, 50), np.zeros(50), None, 0.1, 0.05).groups[0]
    assert (hopeless.point, hopeless.needed) == (None, None)


def test_a_class_with_a_risk_limits_the_threshold():
    rng = np.random.default_rng(1)
    confidence, prediction = rng.random(4000), rng.integers(0, 3, 4000)
    correct = rng.random(4000) >= np.where(prediction == 2, 0.3, 0.03) * (1 - confidence)
    alone = group_thresholds(confidence, correct, None, 0.1, 0.05)
    assert alone.thresholds["all"] < 0.01
    both = group_thresholds(confidence, correct, None, 0.1, 0.05, prediction=prediction, class_risk={2: 0.1})
    accepted, wrong = both.groups[0].classes[0]
    chosen = (confidence >= both.thresholds["all"]) & (prediction == 2)
    assert (accepted, wrong) == (chosen.sum(), (chosen & ~correct).sum())
    assert both.thresholds["all"] > 0.3
    assert " and that among accepted 'dog' answers at most 0.1, if" in both.promise(class_names=["cat", "cow", "dog"])
    with pytest.raises(ValueError, match="expected the predicted classes with a risk per class"):
        group_thresholds(confidence, correct, class_risk={2: 0.1})


def test_a_group_may_have_another_risk():
    rng = np.random.default_rng(2)
    confidence, group = rng.random(3000), np.array(["a", "b"])[rng.integers(0, 2, 3000)]
    correct = rng.random(3000) >= 0.3 * (1 - confidence)
    usual, strict = (group_thresholds(confidence, correct, group, risk, 0.05).thresholds for risk in (0.1, 0.08))
    mixed = group_thresholds(confidence, correct, group, 0.1, 0.05, group_risk={"b": 0.08})
    assert mixed.thresholds == {"a": usual["a"], "b": strict["b"]}
    assert usual["b"] < strict["b"]
    assert "in each group the error rate among accepted answers is at most 0.1 (b: 0.08), if" in mixed.promise()


def test_the_promise_in_words():
    sure = np.linspace(0, 1, 400)
    result = group_thresholds(sure, sure > 0.3, ["a"] * 80 + ["b"] * 320, 0.1, 0.01)
    assert result.promise("site") == (
        "with probability 0.99, in each site with a threshold the error rate among accepted answers is at most 0.1,"
        " if new rows are drawn independently from the same distribution as these 400, and if accepting less"
        " confident answers does not lower the error rate (Learn then Test, Bonferroni over 2 groups and sequences of"
        " tests)"
    )
    assert "over 2 predicted classes and sequences" in result.promise("predicted class")
    fixed = group_thresholds(sure, sure > 0, None, 0.1, 0.01, correction="fixed-sequence")
    assert fixed.promise() == (
        "with probability 0.99, the error rate among accepted answers is at most 0.1, if new rows are drawn"
        " independently from the same distribution as these 400, and if accepting less confident answers does not"
        " lower the error rate (Learn then Test, fixed sequence)"
    )
    assert group_thresholds(sure, sure > 2).promise().startswith("nothing is guaranteed")
    assert result.as_dict()["groups"]["a"] == {
        "n": 80, "threshold": None, "accepted": 0, "needed": None, "classes": [],
    }  # fmt: skip


def test_unknown_groups_are_rejected():
    accepted = accepted_by_group([0.9, 0.8, 0.9], np.array([1.0, 1.0, 2.0]), {"1": 0.8, "3": 0.1})
    assert accepted.tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sample_weight": [1.0, 1.0]}, "predictions without weights"),
        ({"risk": 0.0}, r"expected risk in \(0, 1\), but got 0"),
        ({"delta": 1.0}, r"expected delta in \(0, 1\), but got 1"),
        ({"class_risk": {0: 2.0}, "prediction": [0, 1]}, r"expected the risk of class 0 in \(0, 1\), but got 2"),
        ({"correction": "holm"}, "a correction among fixed-sequence, bonferroni, but got 'holm'"),
        ({"group": ["a"]}, "2 in confidence, 1 in group"),
        ({"confidence": [], "correct": [], "group": []}, "but got none"),
    ],
)
def test_mistakes(changed, message):
    given = {"confidence": [0.5, 0.6], "correct": [True, False], "group": ["a", "b"]}
    with pytest.raises(ValueError, match=message):
        group_thresholds(**(given | changed))

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


def slow_threshold(confidence, correct, risk, level):
    """Learn then Test with plain loops."""
    order = sorted(range(len(confidence)), key=lambda row: -confidence[row])

    def passes(k, level):
        rows = [row for row in order if confidence[row] >= confidence[order[k - 1]]]
        errors = sum(not correct[row] for row in rows)
        return len(rows) > errors and tail(errors, len(rows), risk) <= level

    chosen, each = [], level
    for number in range(1, 41):
        first = least(0, risk, level / number)  # ties of that row do not help to start
        if first * 2 ** (number - 1) > len(order):
            break
        chosen, each = [first * 2**step for step in range(number)], level / number
    best = None
    for start in chosen:
        steps = [least(errors, risk, each) for errors in range(int(risk * len(order)) + 1)]
        for k in [start, *(step for step in steps if start < step <= len(order)), len(order)]:
            if not passes(k, each):
                break
            best = k if best is None else max(best, k)
    return None if best is None else confidence[order[best - 1]]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.integers(20, 120), ties=st.booleans())
def test_thresholds_are_those_of_plain_loops(seed, size, ties):
    rng = np.random.default_rng(seed)
    confidence = rng.integers(0, 12, size) / 12 if ties else rng.random(size)
    correct = rng.random(size) < 0.8 + 0.2 * confidence
    group = np.array(["a", "b"])[rng.integers(0, 2, size)]
    result = group_thresholds(confidence, correct, group, 0.2, 0.3)
    assert [one.group for one in result.groups] == sorted({*group.tolist()})
    for one in result.groups:
        rows = group == one.group
        slow = slow_threshold(confidence[rows], correct[rows], 0.2, 0.3 / len(result.groups))
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


def test_one_early_error_does_not_end_the_search():
    confidence = np.linspace(1, 0, 2000)
    correct = np.arange(2000) != 3
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
    assert group_thresholds(sure, sure > 0, None, 0.1, 0.01).promise() == (
        "with probability 0.99, the error rate among accepted answers is at most 0.1, if new rows are drawn"
        " independently from the same distribution as these 400, and if accepting less confident answers does not"
        " lower the error rate (Learn then Test, Bonferroni over sequences of tests)"
    )
    assert group_thresholds(sure, sure > 2).promise().startswith("nothing is guaranteed")
    assert result.as_dict()["groups"]["a"] == {"n": 80, "threshold": None, "accepted": 0, "needed": None}


def test_unknown_groups_are_rejected():
    accepted = accepted_by_group([0.9, 0.8, 0.9], np.array([1.0, 1.0, 2.0]), {"1": 0.8, "3": 0.1})
    assert accepted.tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sample_weight": [1.0, 1.0]}, "predictions without weights"),
        ({"risk": 0.0}, r"expected risk in \(0, 1\), but got 0"),
        ({"delta": 1.0}, r"expected delta in \(0, 1\), but got 1"),
        ({"group": ["a"]}, "2 in confidence, 1 in group"),
        ({"confidence": [], "correct": [], "group": []}, "but got none"),
    ],
)
def test_mistakes(changed, message):
    given = {"confidence": [0.5, 0.6], "correct": [True, False], "group": ["a", "b"]}
    with pytest.raises(ValueError, match=message):
        group_thresholds(**(given | changed))

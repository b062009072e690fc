import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import false_discovery_control

from confrank.decisions import select_with_fdr
from confrank.decisions.selection import benjamini_hochberg


def slow_selection(confidence, correct, new, fdr):
    n, m = len(confidence), len(new)
    pairs = list(zip(confidence, correct, strict=True))
    p = [(1 + sum(score >= one and not right for score, right in pairs)) / (n + 1) for one in new]
    ranks = [k for k in range(1, m + 1) if sorted(p)[k - 1] <= fdr * k / m + 1e-12]
    limit = sorted(p)[max(ranks) - 1] if ranks else -1
    return [value <= limit for value in p], p


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**31), size=st.integers(1, 120), num_new=st.integers(0, 40),
    levels=st.sampled_from([4, 10**6]), fdr=st.sampled_from([0.05, 0.1, 0.2, 0.5]),
)  # fmt: skip
def test_selection_is_that_of_a_plain_loop(seed, size, num_new, levels, fdr):
    rng = np.random.default_rng(seed)
    confidence, new = rng.integers(0, levels, size) / levels, rng.integers(0, levels, num_new) / levels
    correct = rng.random(size) < 0.6 + 0.4 * confidence
    selection = select_with_fdr(confidence, correct, new, fdr)
    slow, p = slow_selection(confidence.tolist(), correct.tolist(), new.tolist(), fdr)
    assert selection.selected.tolist() == slow
    assert selection.p_value.tolist() == p
    order = rng.permutation(num_new)
    assert np.array_equal(select_with_fdr(confidence, correct, new[order], fdr).selected, selection.selected[order])


def test_benjamini_hochberg_is_that_of_scipy():
    rng = np.random.default_rng(0)
    for size in (1, 5, 50):
        for _ in range(20):
            p = rng.random(size) ** 3
            assert np.array_equal(benjamini_hochberg(p, 0.1), false_discovery_control(p) <= 0.1)


def test_when_nothing_is_selected_the_needed_rows_are_said():
    sure = np.linspace(0.5, 1, 5)
    short = select_with_fdr(sure, np.ones(5), [0.99, 0.98, 0.4], 0.05)
    assert not short.selected.any()
    # All three have p = 1/6; 1/(n + 1) <= 0.05 needs 19 rows.
    assert short.shortage() == "nothing can be selected with 5 calibration rows; at least about 19 are needed"
    assert select_with_fdr(np.linspace(0.5, 1, 19), np.ones(19), [0.99, 0.98, 0.4], 0.05).selected.all()
    assert "with 1 calibration row;" in select_with_fdr([0.9], [1], [0.99, 0.4], 0.05).shortage()
    hopeless = select_with_fdr(sure, np.zeros(5), [0.7], 0.05)
    assert hopeless.shortage().startswith("nothing can be selected: among the most confident calibration rows")
    assert hopeless.shortage().endswith("too many answers are wrong (5 of 5 in all)")
    assert select_with_fdr(sure, np.ones(5), [], 0.05).shortage() is None
    assert select_with_fdr(sure, np.ones(5), [0.9], 0.5).shortage() is None


def test_rows_above_all_errors_do_not_promise_that_there_are_none():
    rng = np.random.default_rng(0)
    sure, new = rng.random(500) * 0.9, np.append(rng.random(399) * 0.9, 0.95)
    # One of 400 new rows is surer than every error; 1 / (n + 1) <= 0.05 / 400 needs 7,999 rows without any.
    assert "too many answers are wrong (500 of 500" in select_with_fdr(sure, np.zeros(500), new, 0.05).shortage()
    right = rng.random(500) < sure
    assert "too many answers are wrong" in select_with_fdr(sure, right, new, 0.05).shortage()
    assert "at least about 9,999 are needed" in select_with_fdr(sure, right, new, 0.0001).shortage()
    # At rank 20 of 400, 3 of 500 errors are as sure: (1 + 3.5 n / 500) / (n + 1) <= 0.153 * 20 / 400 for n > 1,526.
    tops = np.append(np.linspace(0.96, 1, 3), np.full(97, 0.1))
    short = select_with_fdr(
        np.append(tops, np.full(400, 0.9)), np.arange(500) >= 100, [0.95] * 20 + [0.0] * 380, 0.153
    )
    assert short.shortage().endswith("with 500 calibration rows; at least about 1,527 are needed")


def test_the_promise_in_words():
    assert select_with_fdr([0.5, 0.6], [1, 0], [0.7], 0.1).promise() == (
        "the share of wrong answers among those selected is at most 0.1 on average over calibration files"
        " and new files, if the new rows and the 2 calibration rows are exchangeable (conformal p-values,"
        " Benjamini-Hochberg)"
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sample_weight": [1.0, 1.0]}, "predictions without weights"),
        ({"fdr": 0}, r"expected fdr in \(0, 1\), but got 0"),
        ({"new_confidence": [np.nan]}, "finite values in confidence"),
        ({"confidence": [], "correct": []}, "labelled rows to compare new ones with, but got none"),
        ({"correct": [True]}, "2 in confidence, 1 in correct"),
    ],
)
def test_mistakes(changed, message):
    given = {"confidence": [0.5, 0.6], "correct": [True, False], "new_confidence": [0.7]}
    with pytest.raises(ValueError, match=message):
        select_with_fdr(**(given | changed))

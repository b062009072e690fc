"""The monitor's tests, against exact expectations and naive loops."""

import itertools
import json
import math
import runpy
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from confrank.decisions import monitor
from confrank.decisions.betting import ODDS, START, log_e_values, risk_test
from confrank.decisions.drift import SHIFTS, SPREADS, Reference, drift_test, reference_of
from confrank.decisions.drift import log_e_values as drift_values
from confrank.decisions.monitor import miscoverage_bound
from confrank.decisions.policy_file import restored


def naive_capital(wrong, risk):
    """The gambler's capital, one stake and one answer after the other."""
    capital, reserve = [], 1.0
    stakes = dict.fromkeys(ODDS, 0.0)
    for time, error in enumerate(wrong, 1):
        staked = 0.5 * START * (1 - START) ** (time - 1) + 0.5 / (time * (time + 1))
        reserve -= staked
        for odds in ODDS:
            rate = odds * risk / (1 - risk + odds * risk)
            factor = rate / risk if error else (1 - rate) / (1 - risk)
            stakes[odds] = (stakes[odds] + staked / len(ODDS)) * factor
        capital.append(reserve + sum(stakes.values()))
    return capital


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.integers(1, 200), risk=st.sampled_from([0.001, 0.05, 0.5, 0.99]))
def test_capital_is_that_of_a_loop(seed, size, risk):
    wrong = np.random.default_rng(seed).random(size) < risk
    assert np.exp(log_e_values(wrong, risk)) == pytest.approx(naive_capital(wrong, risk), rel=1e-9)


@pytest.mark.parametrize("rate", [0.2, 0.1, 0.0])
def test_expected_capital_does_not_grow_while_the_promise_holds(rate):
    """Over all sequences of 10 answers: a martingale at the guaranteed risk, and below it less."""
    sequences = np.array(list(itertools.product([False, True], repeat=10)))
    probability = np.where(sequences, rate, 1 - rate).prod(axis=1)
    expected = probability @ np.exp(log_e_values(sequences, 0.2))
    if rate == 0.2:
        assert expected == pytest.approx(np.ones(10), rel=1e-12)
    else:
        assert (np.diff(expected) < 0).all() and expected[0] < 1


def test_longer_sequences_continue_the_test():
    wrong = np.random.default_rng(0).random(500) < 0.1
    assert log_e_values(wrong, 0.05)[:200].tolist() == log_e_values(wrong[:200], 0.05).tolist()
    confidence = np.round(np.random.default_rng(1).random(500), 1)
    reference = reference_of(confidence[:100])
    longer, shorter = (drift_test(part, reference).log_e_value for part in (confidence, confidence[:200]))
    assert longer[:200].tolist() == shorter.tolist()


def test_a_rise_is_noticed_and_dated():
    rng = np.random.default_rng(0)
    wrong = np.concatenate([rng.random(3000) < 0.05, rng.random(2000) < 0.2])
    test = risk_test(wrong, 0.06)
    assert 3000 < test.alarm < 3200 and abs(test.since - 3000) < 100
    assert test.num_wrong == wrong.sum() and test.num_answers == 5000 and test.line == 20
    assert test.log_e_value[test.alarm] >= math.log(20) > test.log_e_value[: test.alarm].max()
    assert risk_test(wrong[:3000], 0.06).holds
    assert risk_test(wrong, 0.06, num_tests=10**6).alarm > test.alarm
    assert risk_test([], 0.06).holds


def test_groups_share_the_level_and_keep_their_rows():
    rng = np.random.default_rng(0)
    group = np.array(["a", "b", "c"])[rng.integers(0, 3, 3000)]
    accepted = rng.random(3000) < 0.8
    correct = rng.random(3000) > np.where(group == "b", 0.3, 0.05)
    result = monitor(correct, 0.1, accepted=accepted, group=group)
    assert not result.holds
    assert [watch.group for watch in result.watches] == ["a", "b", "c"]
    places = {name: place for place, name in enumerate(dict.fromkeys(group.tolist()), 1)}
    assert [watch.test.line for watch in result.watches] == [20 * places[name] * (places[name] + 1) for name in "abc"]
    broken = result.first_alarm
    assert broken.group == "b" and group[broken.alarm_row] == "b" and accepted[broken.alarm_row]
    alone = monitor(correct[(group == "b") & accepted], 0.1, alpha=0.05 / 3)
    assert alone.watches[0].test.log_e_value.tolist() == broken.test.log_e_value.tolist()
    assert monitor(correct, 0.1, accepted=np.zeros(3000)).holds is None


def test_groups_that_occur_one_by_one_share_no_more_than_alpha():
    """Each look at a growing file sees the same lines, and the shares of alpha add up to at most alpha."""
    group = np.repeat([f"site {number}" for number in range(9, -1, -1)], 50)
    looks = [monitor(np.ones(size), 0.1, group=group[:size]) for size in (1, 50, 51, 275, 500)]
    lines = [{watch.group: watch.test.line for watch in look.watches} for look in looks]
    assert all(one.items() <= lines[-1].items() for one in lines) and len(lines[-1]) == 10
    assert lines[0] == {"site 9": 40}
    assert 0.9 * 0.05 < sum(1 / line for line in lines[-1].values()) <= 0.05


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.integers(1, 60), levels=st.sampled_from([2, 10, 10**6]))
def test_slots_count_the_gaps_between_calibration_values(seed, size, levels):
    values = np.random.default_rng(seed).integers(0, levels, size) / levels
    reference = reference_of(values)
    assert reference.slots.sum() == size + 1 and (reference.slots > 0).all()
    assert [int((values <= value).sum()) for value in reference.values] == [*reference.at_most]
    assert [int((values == value).sum()) for value in reference.values] == [*reference.equal]
    assert restored(Reference, json.loads(json.dumps(asdict(reference)))) == reference


def test_expected_drift_value_is_one_over_the_urn():
    """Over all sequences of 4 new answers in 3 bins, with the probabilities of Polya's urn."""
    slots = np.array([2, 1, 4])
    expected = np.zeros(4)
    for bins in itertools.product(range(3), repeat=4):
        counts, probability = slots.astype(float), 1.0
        for number in bins:
            probability *= counts[number] / counts.sum()
            counts[number] += 1
        expected += probability * np.exp(drift_values(np.array(bins), slots))
    assert expected == pytest.approx(np.ones(4), rel=1e-12)


def test_drift_values_are_those_of_a_loop():
    rng = np.random.default_rng(3)
    slots, bins = np.array([5, 3, 4]), rng.integers(0, 3, 30)
    middle = [2 * 2.5 / 12 - 1, 2 * 6.5 / 12 - 1, 2 * 10 / 12 - 1]
    tilts = [[math.exp(s * m) for m in middle] for s in SHIFTS]
    tilts += [[math.exp(s * (3 * m * m - 1) / 2) for m in middle] for s in SPREADS]
    counts, reserve, stakes, capital = slots.astype(float), 1.0, [0.0] * len(tilts), []
    for time, number in enumerate(bins, 1):
        staked = 0.5 * START * (1 - START) ** (time - 1) + 0.5 / (time * (time + 1))
        reserve -= staked
        for k, tilt in enumerate(tilts):
            stakes[k] = (stakes[k] + staked / len(tilts)) * tilt[number] / (counts @ tilt / counts.sum())
        counts[number] += 1
        capital.append(reserve + sum(stakes))
    assert np.exp(drift_values(bins, slots)) == pytest.approx(capital, rel=1e-9)


def test_ties_fall_into_bins_as_often_as_the_urn_expects():
    """All values equal: each order of equal values is as likely, so the share above the highest is 1 / (n + 1)."""
    reference = reference_of(np.full(3, 0.5))
    assert (reference.values, reference.equal) == ((0.5,), (3,))
    above = [drift_test(np.full(1, 0.5), reference, seed=seed).below == 0 for seed in range(300)]
    assert np.mean(above) == pytest.approx(0.25, abs=3 * math.sqrt(0.25 * 0.75 / 300))


def test_drift_is_noticed_in_both_directions_and_in_spread():
    rng = np.random.default_rng(0)
    calibration = rng.normal(size=1000)
    reference = reference_of(calibration)
    same = drift_test(rng.normal(size=3000), reference)
    assert same.alarm is None and same.num_reference == 1000
    assert same.below == pytest.approx(0.5, abs=0.05) and same.expected == pytest.approx(0.5, abs=0.03)
    for mean, spread in ((-0.5, 1), (0.5, 1), (0, 2), (0, 0.4)):
        assert drift_test(rng.normal(mean, spread, 500), reference).alarm < 300
    assert drift_test(rng.normal(-0.5, 1, 500), reference).below > 0.6
    assert drift_test([], reference).below is None


def test_the_bound_of_sets_is_a_quantile_of_an_order_statistic():
    assert miscoverage_bound(99, 0.9, 0.05) == pytest.approx(beta.ppf(0.95, 10, 90), rel=1e-9)
    assert miscoverage_bound(8, 0.9, 0.05) is None
    assert miscoverage_bound(9, 0.9, 0.05) == pytest.approx(beta.ppf(0.95, 1, 9), rel=1e-9)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: risk_test([True], 0.0), "expected a risk in (0, 1), but got 0.0"),
    (lambda: risk_test([True], 0.1, alpha=1), "expected alpha in (0, 1), but got 1"),
    (lambda: reference_of([]), "expected confidences to compare with, but got none"),
    (lambda: drift_test([0.5], reference_of([0.5]), alpha=0), "expected alpha in (0, 1), but got 0"),
    (lambda: monitor([True], 0.1, accepted=[True, False]), "but got 1 in correct, 2 in accepted"),
])  # fmt: skip
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=".") as error:
        call()
    assert message in str(error.value)


@pytest.mark.slow
def test_alarms_are_as_rare_and_as_quick_as_the_benchmark_says():
    """300 repetitions of the benchmark; its file has 2,000."""
    benchmark = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "monitor.py"))
    for row in itertools.chain(benchmark["risk_rows"](300), benchmark["drift_rows"](300)):
        assert row["ok"], row

"""Costs: the threshold of least cost against brute force, its held-out cost, and the hull that the page carries."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from confrank.decisions import (
    cost_at,
    cost_table,
    cost_threshold,
    error_costs,
    random_folds,
    random_split,
    read_cost_table,
)
from confrank.decisions.costs import mean_cost
from confrank.decisions.outcome import outcome_of
from confrank.decisions.policy import Policy
from confrank.decisions.policy_network import network_rule
from confrank.decisions.rows import design_rows
from confrank.errors import InputError
from confrank.metrics import at_or_above
from confrank.metrics.curve import cheapest_curve, hull_positions
from confrank.metrics.ranking import ranked
from confrank.predictions import Predictions

COSTS = st.sampled_from([0, 1, 2, 3, 10, 1000, 0.1, 0.3, 7.38])


def brute(confidence, correct, errors, reject, weight):
    """The mean cost of every threshold, rejecting everything included, as {threshold: cost}."""
    found = {}
    for threshold in [math.inf, *sorted(set(confidence.tolist()), reverse=True), -math.inf]:
        accepted = at_or_above(confidence, threshold)
        found[threshold] = math.fsum(
            w * (reject if not a else 0 if c else e)
            for a, c, e, w in zip(accepted, correct, errors, weight, strict=True)
        ) / math.fsum(weight)
    return found


def drawn(seed, size, levels):
    rng = np.random.default_rng(seed)
    confidence = rng.integers(0, levels, size) / levels - 0.3
    return rng, confidence, rng.random(size) < 0.4 + 0.6 * confidence


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**31), size=st.integers(1, 40), levels=st.sampled_from([3, 30, 10**6]), error=COSTS,
    reject=COSTS, by_row=st.booleans(), weighted=st.booleans(),
)  # fmt: skip
def test_no_threshold_costs_less(seed, size, levels, error, reject, by_row, weighted):
    rng, confidence, correct = drawn(seed, size, levels)
    errors = error * rng.integers(1, 4, size) if by_row else np.full(size, error)
    weight = rng.integers(0, 4, size) + (rng.integers(0, size) == np.arange(size)) if weighted else np.ones(size)
    weight = weight if weight.any() else np.ones(size)
    rule = cost_threshold(
        confidence, correct, cost_error=errors if by_row else error, cost_reject=reject, folds=0,
        sample_weight=weight if weighted else None,
    )  # fmt: skip
    counted = weight > 0  # the others are absent
    confidence, correct, errors = confidence[counted], correct[counted], errors[counted]
    costs = brute(confidence, correct, errors, reject, weight[counted])
    near = 1e-9 * max(errors.max(), reject, 1)
    assert rule.cost == pytest.approx(costs[rule.threshold], abs=near)
    assert rule.cost == pytest.approx(min(costs.values()), abs=near)
    assert rule.threshold == min(threshold for threshold, cost in costs.items() if cost <= min(costs.values()) + near)
    assert rule.accept_all == pytest.approx(min(costs.items())[1], abs=near)
    accepted = at_or_above(confidence, rule.threshold)
    assert (rule.accepted, rule.wrong) == (accepted.sum(), (accepted & ~correct).sum())


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**31), size=st.integers(1, 300), levels=st.sampled_from([5, 10**6, 10**12]), error=COSTS,
    reject=COSTS, weighted=st.booleans(),
)  # fmt: skip
def test_the_cheapest_threshold_is_on_the_hull(seed, size, levels, error, reject, weighted):
    rng, confidence, correct = drawn(seed, size, levels)
    confidence = np.where(rng.random(size) < 0.2, confidence[0] + 1e-13 * rng.integers(0, 3, size), confidence)
    weight = rng.integers(1, 4, size) if weighted else None
    hull = cheapest_curve(ranked(confidence, correct, weight))
    rule = cost_threshold(confidence, correct, cost_error=error, cost_reject=reject, folds=0, sample_weight=weight)
    wrong, accepted = (hull.wrong, hull.accepted) if weight is None else (hull.wrong_weight, hull.accepted_weight)
    costs = (error * wrong + reject * (accepted[-1] - accepted)) / accepted[-1]
    assert min(costs.min(), reject) == pytest.approx(rule.cost, abs=1e-9 * max(error, reject, 1))
    if math.isfinite(rule.threshold):
        assert rule.threshold in hull.threshold
    # Convex, and without points on a straight line.
    slopes = np.diff(wrong, prepend=0) / np.diff(accepted, prepend=0)
    assert (np.diff(slopes) > -1e-12).all() and (weighted or len(set(slopes.tolist())) == len(slopes))


def test_a_hull_of_many_points_is_that_of_a_loop():
    rng = np.random.default_rng(0)
    wrong = np.cumsum(rng.random(200_000) < np.linspace(0, 0.4, 200_000))
    accepted = np.arange(1, 200_001)
    corners = hull_positions(accepted, wrong)
    lines = np.interp(accepted, np.append(0, accepted[corners]), np.append(0, wrong[corners]))
    assert (wrong >= lines - 1e-6).all() and len(corners) < 2000
    confidence = 1 - accepted / 200_000
    streamed = cheapest_curve(ranked(confidence, np.diff(wrong, prepend=0) == 0))
    assert np.array_equal(streamed.accepted, accepted[corners])


def test_rejecting_everything():
    rule = cost_threshold([0.9, 0.8], [False, False], cost_error=10, cost_reject=1)
    assert (rule.threshold, rule.accepted, rule.cost, rule.accept_all) == (math.inf, 0, 1.0, 10.0)
    assert rule.as_dict()["threshold"] is None
    json.dumps(rule.as_dict(), allow_nan=False)
    assert (rule.held_out.value, rule.held_out.low, rule.held_out.high) == (1.0, 1.0, 1.0)


def test_a_rejection_that_cannot_pay_never_happens():
    """The lowest confidence seen would reject a lower one, at a higher cost than any error has."""
    rng, confidence, correct = drawn(3, 60, 10**6)
    errors = rng.uniform(0, 10, 60)
    for costs in ({"cost_error": 1, "cost_reject": 10}, {"cost_error": errors, "cost_reject": errors.max()}):
        rule = cost_threshold(confidence, correct, **costs)
        assert (rule.threshold, rule.accepted, rule.cost) == (-math.inf, 60, rule.accept_all)
        assert rule.held_out.value == pytest.approx(rule.accept_all)
        stored = json.loads(json.dumps(rule.as_dict(), allow_nan=False))["threshold"]
        assert at_or_above([-1e300, -1e9, 0.2], stored).all()


def test_the_held_out_cost_is_that_of_rows_that_did_not_choose():
    _, confidence, correct = drawn(0, 400, 10**6)
    rule = cost_threshold(confidence, correct, cost_error=8, cost_reject=1, folds=4, seed=7)
    costs = np.empty(400)
    for others, fold in random_folds(400, 4, 7):
        chosen = cost_threshold(confidence[others], correct[others], cost_error=8, cost_reject=1, folds=0).threshold
        accepted = confidence[fold] >= chosen
        costs[fold] = np.where(accepted, np.where(correct[fold], 0, 8), 1)
    assert rule.held_out.value == pytest.approx(costs.mean())
    assert rule.held_out.num_samples == 400
    one = cost_threshold([0.5], [True], cost_error=8, cost_reject=1)
    assert one.held_out is None and (one.threshold, one.cost) == (-math.inf, 0)
    assert cost_threshold([0.5, 0.6], [True, True], cost_error=8, cost_reject=1).held_out.num_samples == 2


def test_cost_at_a_given_threshold():
    measured = cost_at([0.9, 0.8, 0.7, 0.6], [1, 0, 0, 1], 0.75, cost_error=[1, 4, 9, 1], cost_reject=2)
    assert (measured.value, measured.num_samples) == (2.0, 4)
    weighted = cost_at([0.9, 0.8], [1, 0], 0.75, cost_error=4, cost_reject=2, sample_weight=[3, 1])
    assert weighted.value == 1.0


def test_the_interval_covers_the_mean_even_of_rare_errors():
    """Nominal 95%, and not much below with 2 expected errors; the seed was fixed beforehand."""
    rng = np.random.default_rng(18)
    for errors, size in ((0.01, 200), (0.02, 500), (0.1, 2000)):
        draws = rng.multinomial(size, [0.7 - errors, 0.3, errors], 2000)
        truth, covered = 0.3 + 10 * errors, 0
        for right, rejected, wrong in draws:
            interval = mean_cost(np.repeat([0.0, 1.0, 10.0], [right, rejected, wrong]), 10)
            covered += interval.low <= truth <= interval.high
        assert 0.93 <= covered / 2000 <= 0.995


def test_mistakes_about_costs():
    for costs, message in (
        ({"cost_error": -1, "cost_reject": 1}, "at least 0, but got -1.0; change `cost_error`"),
        ({"cost_error": math.inf, "cost_reject": 1}, "but got inf"),
        ({"cost_error": 1, "cost_reject": math.nan}, "at least 0, but got nan; change `cost_reject`"),
        ({"cost_error": [1, 2, 3], "cost_reject": 1}, "one for each of 2 rows"),
        ({"cost_error": "high", "cost_reject": 1}, "expected costs to be numbers, but got shape"),
    ):
        with pytest.raises(ValueError, match=message):
            cost_threshold([0.5, 0.6], [1, 0], **costs)
    with pytest.raises(ValueError, match="but got none"):
        cost_threshold([], [], cost_error=1, cost_reject=1)


def test_a_table_of_costs(tmp_path):
    label, prediction, names = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 2, 0]), ["cat", "dog", "owl"]
    (tmp_path / "label.csv").write_text("\ufefflabel,cost\ndog, 5\ncat,2\n", encoding="utf-8")
    by_label = error_costs(read_cost_table(tmp_path / "label.csv"), label, prediction, class_names=names, default=1)
    assert by_label.tolist() == [2, 2, 5, 5, 1]
    (tmp_path / "label.csv").write_text("label;cost\r\ndog;5,5\r\ncat;2\r\n", encoding="utf-16", newline="")
    assert read_cost_table(tmp_path / "label.csv").costs == {("dog",): 5.5, ("cat",): 2}
    (tmp_path / "pairs.json").write_text('[{"label": "cat", "prediction": "dog", "cost": 7.5}]')
    pairs = read_cost_table(tmp_path / "pairs.json")
    assert error_costs(pairs, label, prediction, class_names=names, default=1).tolist() == [1, 7.5, 1, 1, 1]
    by_prediction = cost_table([{"prediction": 0, "cost": 3}, {"prediction": 1, "cost": 4}])
    assert error_costs(by_prediction, label[:3], prediction[:3]).tolist() == [3, 4, 3]
    with pytest.raises(InputError, match="the table has none of prediction 2; give `cost_error` for all others"):
        error_costs(by_prediction, label, prediction)
    with pytest.raises(InputError, match="among cat, dog, owl, but the table has 0, 1; change `cost_table`"):
        error_costs(by_prediction, label, prediction, class_names=names)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "label,price\ncat,1\n", "but got the columns label, price"),
        ("a.csv", "cost\n1\n", "but got the columns cost"),
        ("a.csv", "label,cost\n", "but got no rows"),
        ("a.csv", "label,cost\ncat,-1\n", "at least 0 in each row of the table, but got '-1' in row 0"),
        ("a.csv", "label,cost\ncat,x\n", "but got 'x' in row 0"),
        ("a.csv", "label;cost\ncat;1,000\n", "but got '1,000' in row 0"),
        ("a.csv", "label,cost\ncat\n", "cannot be read: line 2 has 1 values, the header 2"),
        ("a.csv", "label,cost\ncat,1\ncat,2\n", "each class once, but got cat twice"),
        ("a.csv", "label,cost\n,1\n", "row 0 has none"),
        ("a.csv", "label,cost\ncat,1,9\n", "cannot be read: line 2 has 3 values, the header 2"),
        ("a.json", '{"cat": 1}', "but got no rows"),
        ("a.json", '[{"label": "cat", "cost": true}]', "but got True in row 0"),
        ("a.json", "[", "it cannot be read"),
        (
            "a.json",
            '[{"label": "cat", "cost": 1, "cost": 2}]',
            "cannot be read: expected distinct names in each object",
        ),
        ("missing.csv", None, "it cannot be read: No such file or directory"),
    ],
)
def test_tables_that_are_none(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match="change `cost_table`") as caught:
        read_cost_table(tmp_path / name)
    assert message in str(caught.value)


@pytest.fixture
def predictions(tmp_path):
    rng, confidence, correct = drawn(3, 300, 10**6)
    label = rng.integers(0, 3, 300)
    confidence = np.clip(confidence + 0.3, 0, 1)
    prediction = np.where(correct, label, (label + 1) % 3)
    columns = (label, prediction, confidence, rng.integers(1, 4, 300))
    rows = [",".join(map(repr, row)) for row in zip(*(column.tolist() for column in columns), strict=True)]
    (tmp_path / "p.csv").write_text("label,prediction,confidence,w\n" + "\n".join(rows) + "\n")
    return tmp_path / "p.csv"


def test_threshold_of_least_cost_from_the_command_line(predictions, tmp_path, capsys, command):
    costs = ["--cost-error", 4, "--cost-reject", 1]
    command("threshold", predictions, *costs, "--json", tmp_path / "t.json", "--seed", 2)
    result = json.loads((tmp_path / "t.json").read_text())
    table = np.genfromtxt(predictions, delimiter=",", skip_header=1)
    confidence, correct, weight = table[:, 2], table[:, 0] == table[:, 1], table[:, 3]
    rule = cost_threshold(confidence, correct, cost_error=4, cost_reject=1, seed=2)
    assert {key: result[key] for key in rule.as_dict()} == rule.as_dict()
    assert (result["coverage"], result["risk"]) == (rule.accepted / 300, rule.wrong / rule.accepted)
    printed = capsys.readouterr().out
    assert f"accept      confidence >= {rule.threshold!r}" in printed
    assert f"cost        {rule.cost:.4g} per prediction; an error costs 4, a rejection 1" in printed
    interval = f"(95% interval {rule.held_out.low:.4g} to {rule.held_out.high:.4g})"
    assert f"new rows    {rule.held_out.value:.4g} per prediction {interval}, each of 5 folds" in printed
    command("threshold", predictions, *costs, "--sample-weight", "w", "--json", tmp_path / "t.json")
    weighted = cost_threshold(confidence, correct, cost_error=4, cost_reject=1, sample_weight=weight)
    assert json.loads((tmp_path / "t.json").read_text())["cost"] == weighted.cost
    line = f"new rows    {weighted.held_out.value:.4g} per prediction (no interval with weights)"
    assert line in capsys.readouterr().out
    assert "[" not in str(weighted) and weighted.held_out.low is weighted.held_out.high is None
    command("threshold", predictions, *costs, "--split", 0.4, "--json", tmp_path / "t.json")
    rows, others = random_split(300, 0.4)
    rule = cost_threshold(confidence[rows], correct[rows], cost_error=4, cost_reject=1)
    held_out = cost_at(confidence[others], correct[others], rule.threshold, cost_error=4, cost_reject=1)
    result = json.loads((tmp_path / "t.json").read_text())
    assert (result["threshold"], result["held_out"]["value"]) == (rule.threshold, held_out.value)
    assert "on 120 rows set aside" in capsys.readouterr().out
    (tmp_path / "costs.csv").write_text("label,prediction,cost\n0,1,50\n")
    command("threshold", predictions, *costs, "--cost-table", tmp_path / "costs.csv", "--json", tmp_path / "t.json")
    errors = np.where((table[:, 0] == 0) & (table[:, 1] == 1), 50, 4)
    rule = cost_threshold(confidence, correct, cost_error=errors, cost_reject=1)
    assert json.loads((tmp_path / "t.json").read_text())["held_out"]["value"] == rule.held_out.value
    assert "an error costs what the table says" in capsys.readouterr().out
    (tmp_path / "wrong.csv").write_text("confidence,correct\n0.9,0\n0.8,0\n")
    command("threshold", tmp_path / "wrong.csv", *costs, "--json", tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text())["threshold"] is None
    assert "accept      nothing: rejecting every prediction costs least" in capsys.readouterr().out


def test_a_cost_threshold_in_a_policy_is_chosen_on_rows_that_no_part_saw(tmp_path, capsys, command):
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, 400)
    logits = 3 * (rng.standard_normal((400, 3)) + (label[:, None] == np.arange(3)))
    np.savez(tmp_path / "p.npz", logits=logits, label=label)
    policy, costs = tmp_path / "policy.json", ["--cost-error", 5, "--cost-reject", 1]
    command("calibrate", tmp_path / "p.npz", "--policy", policy)
    command("threshold", tmp_path / "p.npz", *costs, "--policy", policy, "--json", tmp_path / "t.json")
    made, result = Policy.load(policy), json.loads((tmp_path / "t.json").read_text())
    unseen = ~design_rows(400)
    confidence = softmax(logits / made.table_calibrator.parameters["temperature"], axis=1).max(axis=1)
    correct = logits.argmax(axis=1) == label
    rule = cost_threshold(confidence[unseen], correct[unseen], cost_error=5, cost_reject=1)
    assert result["threshold"] == pytest.approx(rule.threshold, rel=1e-12)
    assert result["held_out"]["value"] == pytest.approx(rule.held_out.value)
    assert made.threshold.threshold == result["threshold"] and made.threshold.promise == ""
    assert (made.threshold.rows.half, made.threshold.settings["cost_error"]) == ("promise", 5)
    command("apply", policy, tmp_path / "p.npz", "--out", tmp_path / "answers.csv")
    answers = (tmp_path / "answers.csv").read_text().splitlines()[1:]
    accepted = np.array([line.endswith("true") for line in answers])
    assert accepted[unseen].sum() == result["accepted"]
    capsys.readouterr()
    command("threshold", tmp_path / "p.npz", *costs, "--policy", policy, "--split", 0.5, code=2)
    assert "expected either --split or --policy, but got both" in capsys.readouterr().err
    # Nothing is worth accepting: the policy says so.
    np.savez(tmp_path / "bad.npz", confidence=np.linspace(0, 1, 50), correct=np.arange(50) % 2 < 0)
    command("threshold", tmp_path / "bad.npz", *costs, "--policy", tmp_path / "none.json")
    assert Policy.load(tmp_path / "none.json").threshold.threshold is None
    assert "Accepts nothing, at the least cost" in (tmp_path / "none.json").read_text()
    # No rejection is worth its cost: the policy says so, and accepts any confidence.
    capsys.readouterr()
    never = ["--cost-error", 1, "--cost-reject", 10, "--policy", tmp_path / "every.json"]
    command("threshold", tmp_path / "bad.npz", *never)
    assert "accept      everything: accepting every prediction costs least" in capsys.readouterr().out
    every = Policy.load(tmp_path / "every.json")
    assert every.apply({"confidence": [0.0, 1e-9, 1.0]}).accepted.all()
    assert "Accepts every answer, at the least cost" in (tmp_path / "every.json").read_text()
    truth = {"confidence": np.array([0.0, 0.5]), "correct": np.array([False, True])}
    assert outcome_of(every, Predictions(**truth)).cost == 0.5
    assert network_rule(replace(every, input=replace(every.input, kind="logits", ranked=False)))[0] < -1e300


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--cost-error", "4"],
            "expected --cost-reject with --cost-error or --cost-table, but got --cost-error alone",
        ),
        (["--cost-reject", "4"], "but got --cost-reject alone"),
        (["--cost-error", "4", "--cost-reject", "1", "--risk", "0.1"], "--risk or costs, but got both"),
        (["--cost-error", "4", "--cost-reject", "1", "--coverage", "0.1"], "--coverage or costs, but got both"),
        (["--cost-error", "-4", "--cost-reject", "1"], "at least 0, but got -4.0; change --cost-error"),
        (["--cost-error", "4", "--cost-reject", "1", "--folds", "1"], "--folds to be at least 2, but got 1"),
        (["--cost-error", "4", "--cost-reject", "1", "--split", "0.5", "--folds", "3"], "--split or --folds"),
        (["--coverage", "0.5", "--folds", "3"], "--folds with --cost-error and --cost-reject"),
        (["--cost-reject", "1", "--cost-table", "no.csv"], "no.csv: expected a table with the column cost"),
    ],
)
def test_mistakes_about_costs_are_one_line(predictions, flags, message, capsys, command):
    command("threshold", predictions, *flags, code=2)
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1

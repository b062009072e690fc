"""Sample weights against scikit-learn, scipy's digamma, repeated rows and the metrics without weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score, roc_curve

from confrank import compare, evaluate
from confrank import metrics as module
from confrank.decisions import cost_at, cost_threshold, threshold_for_coverage
from confrank.metrics import bootstrap, sample_values
from confrank.metrics.areas import harmonic_gap
from confrank.metrics.curve import curve_of
from confrank.metrics.inputs import as_weights
from confrank.metrics.ranking import ranked
from confrank.metrics.resampling import NO_INTERVALS
from confrank.report.table import interval_note
from confrank.report.verdict import comparisons


def example(seed=0, size=300, decimals=None):
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.ones(3), size)
    label = np.array([rng.choice(3, p=row) for row in table])
    samples = sample_values(probabilities=table, label=label)
    confidence = samples.confidence if decimals is None else samples.confidence.round(decimals)
    return table, label, confidence, samples.correct, rng.exponential(size=size)


def test_harmonic_numbers_between_integers_against_scipy():
    low = np.concatenate([[0, 0, 0, 31.9, 32], np.geomspace(1e-6, 1e7, 400)])
    for width in (1e-9, 0.3, 1.0, 40.0, 1e5):
        expected = digamma(low + width + 1) - digamma(low + 1)
        assert harmonic_gap(low, low + width) == pytest.approx(expected, abs=2e-14, rel=1e-13)


def test_harmonic_numbers_of_integers_agree_with_those_between():
    low, high = np.arange(0, 300), np.arange(0, 300) + np.arange(300) % 7
    assert harmonic_gap(low, high) == pytest.approx(harmonic_gap(low * 1.0, high * 1.0), abs=1e-13)


@pytest.mark.parametrize("decimals", [None, 1])
@pytest.mark.parametrize("value", [1.0, 0.1, 7e300, 3e-300])
def test_equal_weights_change_nothing(decimals, value):
    """Of 1, fractions and numbers too large to count with; equal counts of 2 or more are repeated rows."""
    table, label, confidence, _, _ = example(decimals=decimals)
    arrays = {"probabilities": table, "label": label, "confidence": confidence}
    weighted = evaluate(**arrays, sample_weight=np.full(len(label), value))
    assert weighted.metrics == pytest.approx(evaluate(**arrays).metrics, rel=1e-12)
    assert weighted.undefined == {} and weighted.notes == []


@pytest.mark.parametrize("decimals", [None, 1])
def test_weighted_metrics_are_those_of_scikit_learn(decimals):
    table, label, confidence, correct, weight = example(decimals=decimals)
    found = evaluate(probabilities=table, label=label, confidence=confidence, sample_weight=weight).metrics
    assert found["auroc"] == pytest.approx(roc_auc_score(correct, confidence, sample_weight=weight))
    assert found["aupr_error"] == pytest.approx(average_precision_score(~correct, -confidence, sample_weight=weight))
    fpr, tpr, _ = roc_curve(correct, confidence, sample_weight=weight, drop_intermediate=False)
    assert found["fpr95"] == pytest.approx(fpr[np.argmax(tpr >= 0.95)])
    assert found["nll"] == pytest.approx(log_loss(label, table, sample_weight=weight, labels=[0, 1, 2]))
    brier = sum(brier_score_loss(label == k, table[:, k], sample_weight=weight) for k in range(3))
    assert found["brier"] == pytest.approx(brier)
    assert found["acc"] == pytest.approx(np.average(correct, weights=weight))


def naive_aurc(confidence, correct, weight):
    """The formula, step by step, with scipy's digamma."""
    weight = weight * np.count_nonzero(weight) / weight.sum()
    total = accepted = wrong = 0.0
    for value in np.unique(confidence)[::-1]:
        tied = confidence == value
        m, e = weight[tied].sum(), weight[tied & ~correct].sum()
        if m:
            gap = digamma(accepted + m + 1) - digamma(accepted + 1)
            total += e + (wrong - e * accepted / m) * gap
        accepted, wrong = accepted + m, wrong + e
    return total / accepted


@pytest.mark.parametrize("decimals", [None, 1])
def test_weighted_aurc_is_its_formula(decimals):
    _, _, confidence, correct, weight = example(decimals=decimals)
    weight[::5] = 0
    expected, risk = naive_aurc(confidence, correct, weight), np.average(~correct, weights=weight)
    assert module.aurc(confidence, correct, sample_weight=weight) == pytest.approx(expected, rel=1e-12)
    best = risk + (1 - risk) * np.log1p(-risk)
    assert module.e_aurc(confidence, correct, sample_weight=weight) == pytest.approx(expected - best, rel=1e-10)


ROWS = st.lists(
    st.tuples(st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.9]), st.booleans(), st.integers(0, 3)),
    min_size=1,
    max_size=30,
).filter(lambda rows: any(weight for *_, weight in rows))
SHARES = (0.1, 0.3, 0.5, 0.75, 0.9, 0.95, 1.0)


def measured(confidence, correct, weight=None):
    """Every value that takes weights, by name."""
    confidence, correct = np.array(confidence), np.array(correct)
    given = {"confidence": confidence, "correct": correct, "sample_weight": weight}
    values = dict(evaluate(**given).metrics)
    values["thresholds"] = module.aurc(**given, estimator="thresholds")
    table, label = np.stack([confidence, 1 - confidence], axis=1), (~correct).astype(int)
    values |= {name: getattr(module, name)(table, label, sample_weight=weight) for name in ("nll", "brier")}
    for share in SHARES:
        values["fpr", share] = module.fpr_at_tpr(**given, tpr=share)
        values["risk", share] = module.risk_at_coverage(**given, coverage=share)
        values["coverage", share] = module.coverage_at_risk(**given, risk=share)
        values["threshold", share] = threshold_for_coverage(**given, coverage=share).threshold
    values["nearest"] = module.fpr_at_tpr(**given, point="nearest")
    curve = module.risk_coverage_curve(**given)
    for name in ("threshold", "coverage", "risk"):
        values |= {(name, position): value for position, value in enumerate(getattr(curve, name).tolist())}
    bins = module.reliability_bins(**given)
    values |= {("bin", number): value for number, value in enumerate(bins.accuracy.tolist())}
    for error, reject in ((1, 1), (3, 1), (10, 3), (0, 1)):
        rule = cost_threshold(**given, cost_error=error, cost_reject=reject, folds=0)
        found = cost_at(**given, threshold=0.5, cost_error=error, cost_reject=reject)
        values["costs", error] = (rule.threshold, rule.cost, rule.accept_all, found.value)
    return values


def check_equal(found, expected):
    assert [*found] == [*expected]
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, abs=1e-9, nan_ok=True), key


@given(rows=ROWS, factor=st.sampled_from([1.0, 0.37, 1e6]))
@settings(max_examples=80, deadline=None)
def test_integer_weights_are_repeated_rows(rows, factor):
    """Only AURC, E-AURC and NAURC depend on the number of rows, and not on shares of weight alone."""
    confidence, correct, weight = (np.array(column) for column in zip(*rows, strict=True))
    copies = np.repeat(confidence, weight), np.repeat(correct, weight)
    repeated = measured(*copies)
    check_equal(measured(confidence, correct, weight), repeated)
    for metric in (module.aurc, module.e_aurc, module.naurc):
        assert metric(confidence, correct, sample_weight=weight) == pytest.approx(metric(*copies), abs=1e-12)
    found = measured(confidence, correct, weight * factor)
    for values in (found, repeated):
        del values["aurc"], values["e_aurc"], values["naurc"]
    check_equal(found, repeated)
    weighted = evaluate(confidence=confidence, correct=correct, sample_weight=weight * factor)
    assert weighted.undefined == evaluate(confidence=copies[0], correct=copies[1]).undefined


@given(rows=ROWS, seed=st.integers(0, 99), unit=st.sampled_from([1.0, 0.1, 1 / 3, 7.7]))
@settings(max_examples=80, deadline=None)
def test_no_weighted_value_depends_on_the_order_of_rows(rows, seed, unit):
    confidence, correct, weight = (np.array(column) for column in zip(*rows, strict=True))
    order = np.random.default_rng(seed).permutation(len(rows))
    arrays = confidence, correct, unit * weight
    shuffled = [values[order] for values in arrays]
    check_equal(measured(*shuffled), measured(*arrays))


@given(rows=ROWS, absent=st.lists(st.tuples(st.sampled_from([0.0, 0.4, 0.5, 1.0]), st.booleans()), max_size=5))
@settings(max_examples=80, deadline=None)
def test_rows_of_weight_zero_are_absent(rows, absent):
    counted = [row for row in rows if row[2]]
    alone = [[*column] for column in zip(*counted, strict=True)]
    padded = [[*column] for column in zip(*counted, *[(*row, 0) for row in absent], strict=True)]
    check_equal(measured(*padded), measured(*alone))
    results, curves, counts = [], [], []
    for confidence, correct, weight in (padded, alone):
        results.append(evaluate(confidence=confidence, correct=correct, sample_weight=weight))
        curves.append(module.risk_coverage_curve(confidence, correct, sample_weight=weight))
        counts.append(module.reliability_bins(confidence, correct, sample_weight=weight).count.tolist())
    (result, expected), (curve, whole) = results, curves
    assert result.metrics == pytest.approx(expected.metrics, abs=1e-12) and result.undefined == expected.undefined
    assert result.num_samples == expected.num_samples == curve.num_samples == len(counted)
    assert curve.accepted.tolist() == whole.accepted.tolist() and curve.wrong.tolist() == whole.wrong.tolist()
    assert counts[0] == counts[1]


def test_targets_that_are_met_exactly_do_not_depend_on_the_order_of_rows():
    arguments = [0.5, 0.1, 0.7, 0.9], [1, 1, 1, 0], 0.3
    assert module.coverage_at_risk(*arguments, sample_weight=[1, 3, 3, 3]) == pytest.approx(1)
    assert module.coverage_at_risk([0.7, 0.1, 0.5, 0.9], [1, 1, 1, 0], 0.3, sample_weight=[3, 3, 1, 3]) == 1


def test_rows_of_weight_zero_may_be_anything_that_can_be_read():
    """A score above 1 would leave the ECE undefined, and a probability of 0 the NLL clipped, with a warning."""
    assert evaluate(confidence=[0.5, 7.0], correct=[1, 1], sample_weight=[1, 0]).metrics["ece"] == 0.5
    assert module.ece([0.5, 7.0], [1, 1], sample_weight=[1, 0]) == 0.5
    assert module.nll([[0.5, 0.5], [0.0, 1.0]], [0, 0], sample_weight=[1, 0]) == pytest.approx(np.log(2))
    result = evaluate(probabilities=[[0.5, 0.5], [0.2, 0.8], [0.9, 0.1]], label=[0, 0, 1], sample_weight=[1, 0, 0])
    assert result.metrics == evaluate(probabilities=[[0.5, 0.5]], label=[0]).metrics
    assert result.notes == ["2 of 3 rows have weight 0 and do not count"]
    rule = cost_threshold([0.9, 0.1], [1, 0], cost_error=[2.0, 99.0], cost_reject=1, sample_weight=[1, 0])
    assert (rule.threshold, rule.num_samples, rule.accepted, rule.cost_error) == (-np.inf, 1, 1, 2.0)


def test_the_aurc_of_many_repeated_rows_is_that_of_their_counts():
    _, _, confidence, correct, _ = example(size=5000)
    weight = np.arange(5000) % 3 + 1
    repeated = module.aurc(np.repeat(confidence, weight), np.repeat(correct, weight))
    for values in (weight, weight.astype(np.float32)):
        assert module.aurc(confidence, correct, sample_weight=values) == pytest.approx(repeated, abs=1e-12)


def test_a_group_of_one_weight_is_not_counted_twice_unless_all_weights_are_counts():
    """A weight of 0.5 and one of 0.125 have the mean 0.25: as multiples of it, the first would be a count of 2."""
    _, _, confidence, correct, _ = example()
    model = {"confidence": confidence, "correct": correct}
    weight, group = np.where(np.arange(300) < 100, 0.5, 0.125), np.where(np.arange(300) < 100, "a", "b")
    assert weight.mean() == 0.25
    rows = slice(0, 100)
    for unit, copies in ((1.0, 1), (8.0, 4)):
        found = compare(model, by=group, sample_weight=unit * weight).groups[0]["group"]["a"].evaluation.metrics
        expected = module.aurc(np.repeat(confidence[rows], copies), np.repeat(correct[rows], copies))
        assert found["aurc"] == pytest.approx(expected, abs=1e-12)


def test_single_metrics_take_weights_too():
    table, label, confidence, correct, weight = example()
    expected = evaluate(probabilities=table, label=label, sample_weight=weight).metrics
    ranking = {
        key: getattr(module, key) for key in ("aurc", "e_aurc", "naurc", "augrc", "aupr_error", "auroc", "ece")
    }
    found = {key: metric(confidence, correct, sample_weight=weight) for key, metric in ranking.items()}
    found["fpr95"] = module.fpr_at_tpr(confidence, correct, sample_weight=weight)
    found["acc"] = module.accuracy(correct, sample_weight=weight)
    found["nll"] = module.nll(table, label, sample_weight=weight)
    found["brier"] = module.brier(table, label, sample_weight=weight)
    assert found == pytest.approx(expected, rel=1e-14)


def test_a_weighted_curve_keeps_counts_and_has_shares_of_weight():
    curve = module.risk_coverage_curve([0.9, 0.8, 0.8, 0.1], [True, False, True, False], sample_weight=[1, 2, 1, 4])
    assert curve.accepted.tolist() == [1, 3, 4] and curve.wrong.tolist() == [0, 1, 2]
    assert curve.coverage == pytest.approx([1 / 8, 1 / 2, 1])
    assert curve.risk == pytest.approx([0, 1 / 2, 3 / 4])
    assert (curve.at_coverage(0.5), curve.at_coverage(0.51), curve.num_samples) == (1, 2, 4)
    risk = module.coverage_at_risk([0.9, 0.8], [True, False], 0.1, sample_weight=[3, 1])
    assert risk == pytest.approx(0.75)


def test_values_with_weights_have_no_intervals():
    table, label, _, _, weight = example()
    model = {"probabilities": table, "label": label}
    with pytest.raises(ValueError, match="expected predictions without weights to resample: .* no intervals"):
        bootstrap([sample_values(**model).weighted(weight)], 100)
    result = compare(model, model, sample_weight=weight, resamples=100)
    assert result.metrics[1] == evaluate(**model, sample_weight=weight).metrics
    assert result.intervals == ({}, {}) and result.differences == ({},)
    assert NO_INTERVALS in str(result) and "in brackets" not in str(result)
    for one in result.models:
        assert one.as_dict()["no_intervals"] == NO_INTERVALS and "intervals" not in one.as_dict()
    assert comparisons(result.models) == ["model 2 and model 1 are not compared pair by pair (rows have weights)."]
    assert interval_note(result.models) == NO_INTERVALS


def test_rows_of_weight_zero_are_absent_from_a_comparison():
    table, label, _, _, weight = example()
    group, weight[::3] = np.arange(300) % 5, 0
    group[::3] = 9
    model = {"probabilities": table, "label": label, "index": np.arange(300)}
    other = {name: values[::-1] for name, values in model.items()}
    result = compare(model, other, by=group, sample_weight=weight)
    alone = {name: values[weight > 0] for name, values in model.items()}
    expected = compare(alone, by=group[weight > 0], sample_weight=weight[weight > 0])
    for metrics in result.metrics:
        assert metrics == pytest.approx(expected.metrics[0])
    assert [one.value for one in result.groups[0]["group"].groups] == ["0", "1", "2", "3", "4"]
    for one, rest in zip(result.groups[0]["group"].groups, expected.groups[0]["group"].groups, strict=True):
        assert one.evaluation.metrics == pytest.approx(rest.evaluation.metrics)
        assert one.acceptance.accepted == rest.acceptance.accepted
    assert not {mistake.row for mistake in result.models[0].mistakes} & {*range(0, 300, 3)}
    assert [one.row for one in result.models[0].mistakes] == [299 - one.row for one in result.models[1].mistakes]
    assert result.models[0].classes[0].num_samples == np.count_nonzero(label[weight > 0] == 0)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -2.0], "expected weights of at least 0, but got -2 in row 1"),
        ([0.0, 0.0], "expected a weight above 0, but all weights are 0"),
        ([1.0], "expected a weight for each of 2 rows, but got 1 weights"),
        ([1.0, np.nan], "expected finite values in sample_weight, but got nan in row 1"),
        (["a", "b"], "expected sample_weight to be a 1-D array of numbers"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        evaluate(confidence=[0.5, 0.6], correct=[True, False], sample_weight=weights)


def test_other_conventions_refuse_weights_or_use_them():
    arguments = [0.9, 0.8, 0.1], [True, False, True]
    with pytest.raises(ValueError, match="expected no weights with the estimator"):
        module.aurc(*arguments, estimator="trapezoid", sample_weight=[1, 1, 2])
    equal = module.aurc(*arguments, estimator="thresholds", sample_weight=[2, 2, 2])
    assert equal == pytest.approx(module.aurc(*arguments, estimator="thresholds"))


def test_weights_without_both_kinds_of_predictions():
    result = evaluate(confidence=[0.9, 0.8, 0.1], correct=[True, False, True], sample_weight=[1, 0, 2])
    assert result.metrics["auroc"] is None and result.metrics["acc"] == 1
    assert result.undefined["auroc"] == "needs right and wrong predictions, but none is wrong"
    assert as_weights([], 0).shape == (0,)


def test_a_thinned_curve_by_weight_ends_where_all_are_accepted():
    rng = np.random.default_rng(0)
    ranking = ranked(rng.random(500), rng.random(500) < 0.8, rng.random(500))
    whole, thinned = curve_of(ranking), curve_of(ranking, 10)
    assert len(thinned.accepted) <= 11
    for name in ("threshold", "accepted", "wrong", "coverage", "risk"):
        assert getattr(thinned, name)[[0, -1]].tolist() == getattr(whole, name)[[0, -1]].tolist()

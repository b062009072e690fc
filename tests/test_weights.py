"""Sample weights against scikit-learn, scipy's digamma, repeated rows and the metrics without weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score, roc_curve

from confrank import metrics as module
from confrank.metrics import (
    KEYS,
    Samples,
    bootstrap,
    evaluate,
    evaluation_of,
    intervals_of,
    paired_differences,
    resampling,
    sample_values,
)
from confrank.metrics.areas import harmonic_gap
from confrank.metrics.curve import curve_of
from confrank.metrics.ranking import ranked
from confrank.metrics.weights import as_weights, effective_number


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


@given(
    rows=st.lists(
        st.tuples(st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.9]), st.booleans(), st.integers(0, 3)),
        min_size=1,
        max_size=30,
    ).filter(lambda rows: any(weight for *_, weight in rows)),
    factor=st.sampled_from([1.0, 0.37, 1e6]),
)
@settings(max_examples=80, deadline=None)
def test_integer_weights_are_repeated_rows(rows, factor):
    """All metrics but the AURC, which depends on the number of samples, and not on shares alone."""
    confidence, correct, weight = (np.array(column) for column in zip(*rows, strict=True))
    repeated = evaluate(confidence=np.repeat(confidence, weight), correct=np.repeat(correct, weight))
    weighted = evaluate(confidence=confidence, correct=correct, sample_weight=weight * factor)
    assert weighted.undefined == repeated.undefined
    for key in ("acc", "augrc", "aupr_error", "fpr95", "auroc", "ece"):
        assert weighted.metrics[key] == pytest.approx(repeated.metrics[key], abs=1e-12), key
    for coverage in (0.2, 0.5, 1.0):
        expected = module.risk_at_coverage(np.repeat(confidence, weight), np.repeat(correct, weight), coverage)
        found = module.risk_at_coverage(confidence, correct, coverage, sample_weight=weight * factor)
        assert found == pytest.approx(expected)


def test_repeated_rows_have_nearly_the_aurc_of_integer_weights():
    _, _, confidence, correct, _ = example(size=5000)
    weight = np.arange(5000) % 3 + 1
    repeated = module.aurc(np.repeat(confidence, weight), np.repeat(correct, weight))
    assert module.aurc(confidence, correct, sample_weight=weight) == pytest.approx(repeated, rel=2e-3)


def test_a_row_of_weight_zero_counts_as_absent():
    table, label, _, _, weight = example()
    weight[::3] = 0
    result = evaluate(probabilities=table, label=label, sample_weight=weight)
    counted = weight > 0
    alone = evaluate(probabilities=table[counted], label=label[counted], sample_weight=weight[counted])
    assert result.metrics == pytest.approx(alone.metrics, rel=1e-12)
    assert result.notes == ["100 of 300 rows have weight 0 and do not count"]


def test_single_metrics_take_weights_too():
    table, label, confidence, correct, weight = example()
    expected = evaluate(probabilities=table, label=label, sample_weight=weight).metrics
    ranking = {key: getattr(module, key) for key in ("aurc", "e_aurc", "augrc", "aupr_error", "auroc", "ece")}
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


@pytest.mark.parametrize("decimals", [None, 1])
def test_each_weighted_resample_is_the_metric_of_the_repeated_rows(decimals, monkeypatch):
    table, label, confidence, _, weight = example(size=90, decimals=decimals)
    weight[::4] = 0
    samples = sample_values(probabilities=table, label=label, confidence=confidence).weighted(weight)
    monkeypatch.setattr(resampling, "BLOCK", 7 * len(samples))
    found = bootstrap([samples], 30, seed=3)[0]
    assert set(found) == set(KEYS)
    drawn = np.concatenate(list(resampling._resamples(len(samples), 30, np.random.default_rng(3))))
    for position, counts in enumerate(drawn):
        rows = np.repeat(np.arange(len(samples)), counts)
        metrics = evaluation_of(samples.select(rows)).metrics
        assert {key: values[position] for key, values in found.items()} == pytest.approx(metrics, abs=1e-12)


def test_the_accuracy_of_the_same_answers_does_not_differ_by_rounding():
    """Two rankings add up the same weights in other orders."""
    _, _, confidence, correct, weight = example(size=400)
    models = [Samples(scores, correct).weighted(weight) for scores in (confidence, -confidence)]
    first, second = (evaluation_of(one).metrics for one in models)
    found = paired_differences(*bootstrap(models, 200), first, second)["acc"]
    assert (found.value, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_weighted_intervals_are_wider_for_fewer_effective_samples():
    table, label, _, _, weight = example(size=2000)
    samples = sample_values(probabilities=table, label=label)
    widths = []
    for values in (np.ones(2000), weight**2):
        weighted = samples.weighted(values)
        limits = intervals_of(bootstrap([weighted], 400)[0], evaluation_of(weighted).metrics)["acc"]
        widths.append((limits.high - limits.low) * np.sqrt(effective_number(values)))
    assert widths[1] == pytest.approx(widths[0], rel=0.2)
    assert effective_number(weight**2) < 1000


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


def test_rows_of_weight_zero_are_counted_in_a_note():
    samples = sample_values(confidence=[0.5, 0.75, 1.0, 0.25], correct=[True, False, True, True])
    assert samples.weighted([1, 0, 2, 0]).notes == ["2 of 4 rows have weight 0 and do not count"]
    assert samples.weighted([1, 1, 2, 3]).notes == []
    assert effective_number(np.zeros(3)) == 0


def test_a_thinned_curve_by_weight_ends_where_all_are_accepted():
    rng = np.random.default_rng(0)
    ranking = ranked(rng.random(500), rng.random(500) < 0.8, rng.random(500))
    whole, thinned = curve_of(ranking), curve_of(ranking, 10)
    assert len(thinned.accepted) <= 11
    for name in ("threshold", "accepted", "wrong", "coverage", "risk"):
        assert getattr(thinned, name)[[0, -1]].tolist() == getattr(whole, name)[[0, -1]].tolist()

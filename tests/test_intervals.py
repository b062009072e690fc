import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from programs import program
from scipy.special import expit, logit
from scipy.stats import binomtest, gamma, norm, skew
from scipy.stats import t as student_t

from confrank import compare
from confrank.metrics import (
    KEYS,
    Samples,
    bootstrap,
    class_summaries,
    evaluation_of,
    intervals_of,
    paired_differences,
    resampling,
)
from confrank.metrics.groups import confident_mistakes
from confrank.metrics.intervals import fpr_interval, gamma_quantile, no_interval
from confrank.metrics.ranking import rank
from confrank.metrics.resampling import default_resamples
from confrank.metrics.samples import sample_values


def example(seed=0, size=120, num_classes=3, decimals=None):
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.ones(num_classes), size)
    label = np.array([rng.choice(num_classes, p=row) for row in table])
    samples = sample_values(probabilities=table, label=label)
    if decimals is None:
        return samples
    return Samples(
        samples.confidence.round(decimals), samples.correct, samples.probability, samples.nll, samples.brier,
        samples.label, samples.prediction, num_classes,
    )  # fmt: skip


@pytest.mark.parametrize("decimals", [None, 1])
def test_each_resampled_value_is_the_metric_of_the_repeated_rows(decimals, monkeypatch):
    """The counts of a resample, written out as rows and evaluated in the ordinary way."""
    samples = example(decimals=decimals)
    monkeypatch.setattr(resampling, "BLOCK", 7 * len(samples))
    found = bootstrap([samples], 30, seed=3)[0]
    assert set(found) == set(KEYS)
    drawn = np.concatenate(list(resampling._resamples(len(samples), 30, np.random.default_rng(3))))
    for position, counts in enumerate(drawn):
        assert counts.sum() == len(samples)
        rows = np.repeat(np.arange(len(samples)), counts)
        metrics = evaluation_of(samples.select(rows)).metrics
        assert {key: values[position] for key, values in found.items()} == pytest.approx(metrics, abs=1e-12)


def test_a_score_without_probabilities_has_no_calibration():
    found = bootstrap([Samples(np.array([3.0, 7.0, 1.0]), np.array([True, False, True]))], 5)[0]
    assert set(found) == set(KEYS) - {"ece", "nll", "brier"}


def test_a_bare_confidence_is_resampled_as_the_probability_of_being_right():
    samples = example(size=40)
    bare = sample_values(confidence=samples.confidence, correct=samples.correct)
    found = bootstrap([bare], 20, seed=3)[0]
    assert set(found) == {*KEYS, "nll_correct", "brier_correct"} - {"nll", "brier"}
    (drawn,) = resampling._resamples(40, 20, np.random.default_rng(3))
    for position, counts in enumerate(drawn):
        metrics = evaluation_of(bare.select(np.repeat(np.arange(40), counts))).metrics
        for key in ("nll_correct", "brier_correct", "naurc"):
            assert found[key][position] == pytest.approx(metrics[key], abs=1e-12)


def test_resamples_with_one_error_or_none_equal_their_rows():
    """NaN where the metric of the repeated rows is undefined."""
    samples = Samples(np.array([0.9, 0.8, 0.7, 0.6, 0.5]), np.array([True, False, True, False, True]))
    found = bootstrap([samples], 300, seed=2)[0]
    (drawn,) = resampling._resamples(5, 300, np.random.default_rng(2))
    assert set(drawn @ ~samples.correct) == set(range(6))
    for position, counts in enumerate(drawn):
        metrics = evaluation_of(samples.select(np.repeat(np.arange(5), counts))).metrics
        for key, values in found.items():
            expected = np.nan if metrics[key] is None else metrics[key]
            assert values[position] == pytest.approx(expected, abs=1e-12, nan_ok=True), (key, counts)


def test_every_row_is_drawn_equally_often():
    drawn = np.concatenate(list(resampling._resamples(8, 4000, np.random.default_rng(0))))
    assert drawn.mean(axis=0) == pytest.approx(np.ones(8), abs=0.06)


@pytest.mark.parametrize("shift", [-0.4, 0.0, 0.1, 3.0])
def test_p_is_the_smaller_tail_doubled(shift):
    resampled = np.random.default_rng(3).standard_normal(60).round(1)
    value = resampled.mean() + shift
    below = sum(one + shift <= 0 or one == 0 for one in resampled)
    above = sum(one + shift >= 0 or one == 0 for one in resampled)
    assert resampling._difference(value, resampled, 0.95).p == pytest.approx(min(1, 2 * (min(below, above) + 1) / 61))


@pytest.mark.parametrize("degrees", [4, 7.5, 30])
@pytest.mark.parametrize("shift", [-2.4, 0.3, 1.8])
def test_percentiles_of_few_rows_are_farther_out_as_students_t_is(degrees, shift):
    resampled = np.random.default_rng(3).standard_normal(4999)
    value = resampled.mean() + shift
    gap = resampling._difference(value, resampled, 0.95, degrees)
    tail = norm.sf(student_t.ppf(0.975, degrees))
    low, high = np.quantile(resampled - resampled.mean(), [tail, 1 - tail], method="weibull") + value
    expected = (low, high) if low > 0 or high < 0 else (min(low, 0), max(high, 0))
    assert [gap.low, gap.high] == pytest.approx(expected, abs=0.1)
    below = (1 + np.count_nonzero(resampled + shift <= 0)) / 5000
    assert gap.p == pytest.approx(2 * student_t.sf(norm.isf(min(below, 1 - below)), degrees), rel=0.1)


def test_what_decides_a_difference_is_counted():
    first, second = (example(seed, size=90) for seed in (3, 4))
    found = resampling._paired_degrees(first, second)

    def kish(values):
        return sum(values) ** 2 / sum(value**2 for value in values)

    wrong = sum(not (a and b) for a, b in zip(first.correct, second.correct, strict=True))
    right = sum(bool(a or b) for a, b in zip(first.correct, second.correct, strict=True))
    assert found["aupr_error"] == min(wrong, right) - 1
    gaps = second.brier - first.brier
    mean = sum(gaps) / 90
    assert found["brier"] == pytest.approx(kish([abs(gap - mean) for gap in gaps]) - 1)
    assert set(found) == {"aupr_error", "nll", "brier"}


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_limit_of_a_skewed_area_that_is_farther_from_0_is_moved_out(sign):
    resampled = sign * np.random.default_rng(5).gamma(6, size=999)
    value = float(resampled.mean())
    plain, wider = (resampling._difference(value, resampled, 0.95, skewed=skewed) for skewed in (False, True))
    z = norm.isf(0.025)
    shift = (2 + z**2) / 6 * skew(resampled) * resampled.std()
    near, far = ("low", "high") if sign > 0 else ("high", "low")
    assert (getattr(wider, near), wider.p) == (getattr(plain, near), plain.p)
    assert getattr(wider, far) == pytest.approx(getattr(plain, far) + shift)
    # Skewed towards 0: the resamples around the same value, mirrored.
    mirrored = [resampling._difference(value, 2 * value - resampled, 0.95, skewed=skewed) for skewed in (False, True)]
    assert mirrored[0] == mirrored[1]


def test_a_few_rows_of_probability_0_prove_nothing_about_nll():
    """Five rows in which the second model alone has a probability of 0: a sign test has p = 0.0625."""
    rng = np.random.default_rng(6)
    label, size = rng.integers(0, 2, 400), 400
    sure = np.where(rng.random(size) < 0.9, label, 1 - label)
    first = np.full((size, 2), 0.02)
    first[np.arange(size), sure] = 0.98
    second = first.copy()
    rows = np.flatnonzero(sure != label)[:5]
    second[rows, label[rows]], second[rows, sure[rows]] = 0, 1
    pair = tuple(sample_values(probabilities=table, label=label) for table in (first, second))
    metrics = [evaluation_of(samples).metrics for samples in pair]
    resampled = bootstrap(pair, 1000)
    assert paired_differences(*resampled, *metrics)["nll"].p < 0.02
    assert 0.02 < paired_differences(*resampled, *metrics, samples=pair)["nll"].p < 0.0625


def everything(samples, num_resamples=200, level=0.95, seed=0):
    """The metrics and their intervals."""
    metrics, (resampled,) = evaluation_of(samples).metrics, bootstrap([samples], num_resamples, seed=seed)
    return metrics, intervals_of(samples, metrics, resampled, level=level)


@pytest.mark.parametrize("shape", [0.1, 0.5, 1.0, 1.3, 2.0, 3.7, 10.0, 33.3, 500.0, 1e4, 1e5])
def test_the_gamma_quantile_is_that_of_scipy(shape):
    for share in (0.0005, 0.005, 0.025, 0.3, 0.5, 0.9, 0.975, 0.995):
        assert gamma_quantile(share, shape) == pytest.approx(gamma.ppf(share, shape), rel=1e-10)


def naive_area_limits(confidence, correct, level):
    """By the ranks of single rows, with the gamma distribution of scipy (Fay and Feuer, Tiwari's version)."""
    size, tail = len(correct), (1 - level) / 2
    order = sorted(range(size), key=lambda row: -confidence[row])
    harmonic = [sum(1 / k for k in range(1, rank + 1)) for rank in range(size + 1)]
    added = {"aurc": {}, "augrc": {}, "risk": {}}
    for place, row in enumerate(order, start=1):
        added["aurc"][row] = (harmonic[size] - harmonic[place - 1]) / size
        added["augrc"][row] = (size - place + 1) / size**2
        added["risk"][row] = 1 / size
    limits, sums = {}, {}
    for key, of_row in added.items():
        ties = {value: [row for row in order if confidence[row] == value] for value in confidence}
        h = [np.mean([of_row[same] for same in ties[confidence[row]]]) for row in range(size)]
        wrong = [value for value, right in zip(h, correct, strict=True) if not right]
        y, v, m1, m2 = sum(wrong), sum(value**2 for value in wrong), np.mean(h), np.mean(np.square(h))
        low = gamma.ppf(tail, y**2 / v, scale=v / y) if wrong else 0.0
        high = gamma.ppf(1 - tail, (y + m1) ** 2 / (v + m2), scale=(v + m2) / (y + m1))
        limits[key], sums[key] = (low, min(high, 1)), (y, v, len(wrong))

    def best(risk):
        return risk + (1 - risk) * np.log(1 - risk) if risk < 1 else 1.0

    (y, v, m), (risk, _, _) = sums["aurc"], sums["risk"]
    rho, value = y / np.sqrt(m * v), y - best(risk)
    reaches = []
    for side in (0, 1):
        a, b = abs(limits["aurc"][side] - y), abs(best(limits["risk"][side]) - best(risk))
        reaches.append(np.sqrt(max(0, a**2 + b**2 - 2 * rho * a * b)))
    limits["e_aurc"] = max(0, value - reaches[0]), min(1, value + reaches[1])
    return limits


@pytest.mark.parametrize("decimals", [None, 1])
@pytest.mark.parametrize("level", [0.95, 0.8])
def test_intervals_of_areas_are_those_of_weighted_counts(decimals, level):
    samples = example(size=50, decimals=decimals)
    expected = naive_area_limits(samples.confidence.tolist(), samples.correct.tolist(), level)
    limits = everything(samples, 2, level)[1]
    for key in ("aurc", "e_aurc", "augrc"):
        assert (limits[key].low, limits[key].high) == pytest.approx(expected[key], rel=1e-9, abs=1e-12)
        assert limits[key].method == "gamma"


def test_without_errors_areas_have_an_upper_limit_and_what_is_not_known_has_none():
    samples = Samples(np.array([0.9, 0.8, 0.7]), np.ones(3, dtype=bool), np.array([0.9, 0.8, 0.7]))
    metrics, limits = everything(samples)
    assert limits["acc"].low < limits["acc"].high == 1
    for key in ("aurc", "e_aurc", "augrc"):
        assert limits[key].low == metrics[key] == 0 < limits[key].high <= 1
    for key in ("nll_correct", "brier_correct"):
        assert metrics[key] > 0 and limits[key] is None and "2 wrong predictions" in no_interval(key, samples)
    assert limits["ece"].low < limits["ece"].high
    assert {limits[key] for key in ("naurc", "auroc", "aupr_error", "fpr95")} == {None}


def test_with_errors_alone_areas_end_at_1():
    _, limits = everything(Samples(np.linspace(0, 1, 30), np.zeros(30, dtype=bool)))
    assert limits["aurc"].high == 1 and 0.5 < limits["aurc"].low < 1
    assert limits["e_aurc"].low == 0 < limits["e_aurc"].high < 1
    assert limits["acc"].low == 0 and limits["auroc"] is None


@pytest.mark.parametrize(("right", "size"), [(20, 20), (0, 20), (19, 20), (3, 7), (880, 1000)])
def test_accuracy_has_wilsons_interval(right, size):
    samples = Samples(np.linspace(0, 1, size), np.arange(size) < right)
    expected = binomtest(right, size).proportion_ci(0.9, method="wilson")
    limits = everything(samples, 100, level=0.9)[1]["acc"]
    assert (limits.low, limits.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert limits.method == "Wilson"


def test_limits_of_fpr95_are_those_of_the_farthest_possible_thresholds():
    samples = example(size=400, decimals=1)
    right, wrong = samples.confidence[samples.correct], samples.confidence[~samples.correct]
    possible, sure = [], []
    for threshold in np.unique(samples.confidence):
        share = binomtest(int((right >= threshold).sum()), len(right)).proportion_ci(0.95, method="wilson")
        possible += [threshold] if share.high >= 0.95 else []
        sure += [threshold] if share.low >= 0.95 else []
    counts = [int((wrong >= threshold).sum()) for threshold in (max(possible), max(sure))]
    expected = [binomtest(count, len(wrong)).proportion_ci(0.95, method="wilson") for count in counts]
    interval = everything(samples, 2)[1]["fpr95"]
    assert (interval.low, interval.high) == pytest.approx((expected[0].low, expected[1].high), abs=1e-12)
    assert interval.method == "order statistics"


@pytest.mark.parametrize(("lowest", "truth"), [(0.04, 0.7), (0.06, 1.0)])
def test_fpr95_holds_where_the_share_of_errors_jumps(lowest, truth):
    """Three values: 96% or 94% of the right predictions are above the lowest, and 70% of the wrong ones."""
    rng, covered, correct = np.random.default_rng(4), 0, np.arange(300) < 270
    for _ in range(300):
        right = rng.choice([1, 2, 3], 270, p=[lowest, 0.5, 0.5 - lowest])
        wrong = rng.choice([1, 2, 3], 30, p=[0.3, 0.4, 0.3])
        interval = fpr_interval(rank(np.concatenate([right, wrong]), correct))
        covered += interval.low <= truth <= interval.high
    assert covered / 300 >= 0.92


def test_limits_by_resampling_are_students_t_on_their_scale():
    samples = example(size=60)
    metrics, (resampled,) = evaluation_of(samples).metrics, bootstrap([samples], 300)
    limits = intervals_of(samples, metrics, resampled, level=0.9)
    degrees = min(samples.correct.sum(), (~samples.correct).sum()) - 1
    for key in ("auroc", "aupr_error"):
        spread = logit(resampled[key]).std(ddof=1) * student_t.ppf(0.95, degrees)
        expected = expit(logit(metrics[key]) + np.array([-spread, spread]))
        assert [limits[key].low, limits[key].high] == pytest.approx(expected, abs=2e-4)
        assert limits[key].method == "logit bootstrap"
    reach = np.log(resampled["naurc"]).std(ddof=1) * student_t.ppf(0.95, degrees)
    expected = metrics["naurc"] * np.exp([-reach, reach])
    assert [limits["naurc"].low, limits["naurc"].high] == pytest.approx(expected, rel=1e-3)
    assert limits["naurc"].method == "log bootstrap"
    for key, values in (("nll", samples.nll), ("brier", samples.brier)):
        reach = np.sqrt(resampled[key]).std(ddof=1) * student_t.ppf(0.95, values.sum() ** 2 / (values**2).sum() - 1)
        expected = (np.sqrt(metrics[key]) + np.array([-reach, reach])) ** 2
        assert [limits[key].low, limits[key].high] == pytest.approx(expected, abs=2e-4)
        assert limits[key].method == "square-root bootstrap"
    assert limits["ece"].method == "test inversion"


def test_naurc_is_at_most_that_of_the_worst_ranking():
    """Three errors, the surest of all: any other ranking of them is better."""
    confidence = np.linspace(1, 0, 40)
    correct = np.ones(40, dtype=bool)
    correct[[0, 2, 5]] = False
    _, limits = everything(Samples(confidence, correct), 500)
    worst = evaluation_of(Samples(confidence, np.arange(40) >= 3)).metrics["naurc"]
    assert limits["naurc"].high == pytest.approx(worst)


@pytest.mark.parametrize("rare", [True, False])
def test_the_rarer_kind_decides_how_wide_a_ranking_interval_is(rare):
    """Student's t of five samples of one kind, whichever it is."""
    correct = np.full(200, not rare)
    correct[::40] = rare
    samples = Samples(np.random.default_rng(0).random(200) + 0.05 * correct, correct)
    metrics, (resampled,) = evaluation_of(samples).metrics, bootstrap([samples], 300)
    limits = intervals_of(samples, metrics, resampled)["auroc"]
    nearest = 1 / 800
    spread = np.nanstd(logit(resampled["auroc"].clip(nearest, 1 - nearest)), ddof=1)
    width = logit(limits.high) - logit(limits.low)
    assert width / (2 * spread) == pytest.approx(student_t.ppf(0.975, 4), rel=0.02)


def test_nll_is_never_more_than_its_largest_value_and_one_row_gives_no_interval():
    """286.68 was the limit of a file in which two probabilities of 200 are 0."""
    label, table = np.zeros(200, dtype=int), np.full((200, 2), [0.99, 0.01])
    table[:2] = [0, 1]
    two = sample_values(probabilities=table, label=label)
    _, limits = everything(two, 300)
    assert limits["nll"].high <= two.nll.max()
    table[1:4] = [0.4, 0.6]
    one = sample_values(probabilities=table, label=label)
    metrics, limits = everything(one, 300)
    assert limits["nll"] is None and limits["brier"] is not None and metrics["nll"] > 1
    assert "no single row makes up most of it" in no_interval("nll", one)


def test_perfect_separation_has_no_interval_by_resampling():
    samples = Samples(np.linspace(0, 1, 40), np.arange(40) > 9)
    _, limits = everything(samples, 100)
    assert (limits["auroc"], limits["aupr_error"], limits["naurc"]) == (None, None, None)
    assert no_interval("auroc", samples) == "needs more right or wrong predictions"


def clustered(seed, num_clusters=30, size=4):
    rng = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(num_clusters), size)
    confidence = expit(rng.normal(1, 1.5, num_clusters)[cluster] + rng.normal(0, 0.5, len(cluster)))
    return Samples(confidence, rng.random(len(cluster)) < confidence, confidence, cluster=cluster)


def test_a_resample_of_clusters_brings_all_rows_of_each():
    samples = clustered(0).select(np.random.default_rng(1).permutation(120)[:100])  # clusters of several sizes
    assert set(samples.cluster) == set(range(30))
    found = bootstrap([samples], 25, seed=6)[0]
    draws = np.random.default_rng(6).integers(0, 30, (25, 30))
    for position, drawn in enumerate(draws):
        rows = np.concatenate([np.flatnonzero(samples.cluster == which) for which in drawn])
        metrics = evaluation_of(replace(samples, cluster=None).select(rows)).metrics
        assert {key: values[position] for key, values in found.items()} == pytest.approx(
            {key: metrics[key] for key in found}, abs=1e-12
        )


def test_intervals_of_clusters_are_students_t_of_their_number():
    samples = clustered(2)
    metrics, (resampled,) = evaluation_of(samples).metrics, bootstrap([samples], 400)
    limits, quantile = intervals_of(samples, metrics, resampled), student_t.ppf(0.975, 29)
    reach = quantile * resampled["acc"].std(ddof=1)
    assert (limits["acc"].low, limits["acc"].high) == pytest.approx((metrics["acc"] - reach, metrics["acc"] + reach))
    for key in ("aurc", "augrc", "nll_correct"):
        reach = quantile * np.log(resampled[key]).std(ddof=1)
        assert limits[key].low == pytest.approx(metrics[key] * np.exp(-reach))
        assert limits[key].high == pytest.approx(metrics[key] * np.exp(reach))
        assert limits[key].method == "cluster bootstrap"
    reach = quantile * logit(resampled["auroc"]).std(ddof=1)
    assert limits["auroc"].high == pytest.approx(expit(logit(metrics["auroc"]) + reach))
    assert (limits["ece"], limits["fpr95"]) == (None, None)
    assert "rows as independent" in no_interval("ece", samples)
    single = samples.select(samples.cluster == 3)
    assert (
        set(everything(single)[1].values()) == {None} and no_interval("acc", single) == "needs two clusters or more"
    )


WORLDS = program("experiments/interval_worlds.py")


def patients():
    """Two models' answers about 100 patients of 20 rows each in any order, and the patient of each row."""
    rng = np.random.default_rng(8)
    confidence, wrong = WORLDS.clustered(2000, rng)
    order = rng.permutation(2000)
    one = {"confidence": confidence[order], "correct": (rng.random(2000) >= wrong)[order], "index": np.arange(2000)}
    other = np.clip(one["confidence"] + rng.normal(0, 0.02, 2000), 0, 1)
    return one, one | {"confidence": other}, pd.factorize(order // 20)[0]


def test_a_comparison_resamples_the_clusters_of_both_models():
    one, other, patient = patients()
    backwards = {name: values[::-1] for name, values in other.items()}
    plain = [sample_values(confidence=model["confidence"], correct=model["correct"]) for model in (one, other)]
    samples = [replace(values, cluster=patient) for values in plain]
    metrics = [evaluation_of(values).metrics for values in samples]
    direct = compare(one, other, cluster=patient, resamples=200)
    assert direct.intervals[0] == intervals_of(samples[0], metrics[0], (drawn := bootstrap(samples, 200))[0])
    assert direct.differences[0] == paired_differences(*drawn, *metrics, samples=tuple(samples))
    (matched,), (expected,) = compare(one, backwards, cluster=patient, resamples=200).differences, direct.differences
    assert (matched["aurc"].low, matched["aurc"].p) == pytest.approx((expected["aurc"].low, expected["aurc"].p))
    named = compare(one, cluster=[f"p{number}" for number in patient], resamples=0)
    assert named.models[0].num_clusters == 100
    rows = compare(one, other, resamples=200)
    for key in ("acc", "aurc", "auroc", "brier_correct"):
        with_clusters, without = direct.intervals[0][key], rows.intervals[0][key]
        assert with_clusters.high - with_clusters.low > 1.3 * (without.high - without.low)
    assert "resampling 100 clusters (cluster)" in str(direct) and "clusters" not in str(rows)
    assert direct.as_dicts()[1]["clustered_by"] == "cluster" and direct.as_dicts()[1]["num_clusters"] == 100


def test_groups_have_the_clusters_of_their_rows():
    one, _, patient = patients()
    site = np.where(patient % 2, "A", "B")
    groups = compare(one, by={"site": site}, cluster=patient, resamples=100).groups[0]["site"]
    half = {name: values[site == "A"] for name, values in one.items()}
    assert groups["A"].intervals == compare(half, cluster=patient[site == "A"], resamples=100).intervals[0]
    assert groups["A"].too_small is None and groups["A"].risk_interval is None
    single = compare(one, one, cluster=0 * patient, resamples=100)
    assert {*single.intervals[0].values()} == {*single.differences[0].values()} == {None}


def test_clusters_that_do_not_fit_the_rows_are_errors():
    one, _, patient = patients()
    gaps = np.where(patient == patient[7], np.nan, patient)
    for cluster, message in (
        (patient[:-1], r"a value of 'cluster' for each of 2,000 rows, but got \(1999,\)"),
        ("patient", "expected a column 'patient' in model 1, but it has none"),
        (gaps, "model 1: expected a cluster for each row .* but row 7 has none"),
    ):
        with pytest.raises(ValueError, match=message):
            compare(one, cluster=cluster)
    with pytest.raises(ValueError, match="both are called 'cluster'"):
        compare(one, cluster=patient, by={"cluster": patient})


def test_the_command_resamples_clusters(tmp_path, command, capsys):
    one, other, patient = patients()
    frame = pd.DataFrame(one).assign(correct=one["correct"].astype(int), patient=patient)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.assign(confidence=other["confidence"]).drop(columns="patient").to_csv(tmp_path / "b.csv", index=False)
    results, out, page = [], tmp_path / "m.json", tmp_path / "page.html"
    options = ["--resamples", 100, "--json", out, "--report", page]
    for flags in (["--cluster", "patient"], ["--columns", "cluster=patient"]):
        command("evaluate", tmp_path / "a.csv", *flags, *options)
        results.append(json.loads(out.read_text()))
        name = results[-1]["clustered_by"]
        assert f"from 100 resamples, resampling 100 clusters ({name})" in " ".join(capsys.readouterr().out.split())
        assert f"resampling 100 clusters ({name})" in page.read_text()
    assert results[0]["clustered_by"] == "patient" and results[0]["intervals"] == results[1]["intervals"]
    command("evaluate", tmp_path / "a.csv", tmp_path / "b.csv", "--cluster", "patient", *options)
    first, second = json.loads(out.read_text())
    assert first["intervals"] == results[0]["intervals"] and second["num_clusters"] == 100
    expected = compare(one, other, cluster=patient, resamples=100).differences[0]["aurc"]
    assert second["difference_to_first"]["aurc"]["low"] == pytest.approx(expected.low)
    command("evaluate", tmp_path / "a.csv", "--cluster", "planet", code=2)
    assert "expected a column 'planet'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("size", [50, 2000])
@pytest.mark.parametrize("world", WORLDS.WORLDS)
def test_intervals_hold_in_hard_worlds(world, size):
    """The bounds are 92.5% and 99.5% of 1,000 files, here widened by three standard errors of 200."""
    for row in WORLDS.measured(world, size, 200, 5, ("aurc", "e_aurc", "augrc", "fpr95"), num_resamples=0):
        if row["metric"] == "fpr95":
            assert row["errors"] < 20 or row["covered"] >= 0.87
            continue
        assert row["intervals"] == 200 and row["covered"] >= 0.925 - 3 * (0.925 * 0.075 / 200) ** 0.5
        if row["errors"] > 30 and row["errors"] / size <= 0.25:
            assert row["too_high"] + row["too_low"] > 0  # 99.5% of 1,000 files at most


@pytest.mark.slow
def test_intervals_hold_with_clusters():
    with_clusters, without = (
        {row["metric"]: row["covered"] for row in WORLDS.measured(name, 2000, 200, 5, ("acc", "aurc"))}
        for name in (WORLDS.WITH_CLUSTERS, WORLDS.WITHOUT)
    )
    assert 0.88 <= with_clusters["acc"] <= 1 and 0.87 <= with_clusters["aurc"] <= 1
    assert without["acc"] < 0.8 and without["aurc"] < 0.8


def test_the_true_values_of_a_world_are_those_of_many_drawn_rows():
    for name in ("three values", "2% confident errors"):
        truth, rng = WORLDS.truth(WORLDS.WORLDS[name]), np.random.default_rng(3)
        confidence, wrong = WORLDS.WORLDS[name](400_000, rng)
        metrics = evaluation_of(sample_values(confidence=confidence, correct=rng.random(400_000) >= wrong)).metrics
        assert truth == pytest.approx({key: metrics[key] for key in truth}, rel=0.04, abs=0.003)


@pytest.mark.parametrize("degrees", [4, 9, 19, 99])
def test_students_t_is_close(degrees):
    for level in (0.9, 0.95, 0.99):
        tail = (1 + level) / 2
        assert resampling.student(norm.ppf(tail), degrees) == pytest.approx(student_t.ppf(tail, degrees), rel=0.06)


def test_no_difference_between_a_file_and_itself():
    samples = example()
    metrics = evaluation_of(samples).metrics
    first, second = bootstrap([samples, samples], 200)
    for given in (None, (samples, samples)):
        for found in paired_differences(first, second, metrics, metrics, samples=given).values():
            assert (found.value, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_paired_differences_find_what_separate_intervals_cannot():
    rng = np.random.default_rng(1)
    ability = rng.random(2000)
    confidence, correct = ability + 0.02 * rng.random(2000), rng.random(2000) < 0.5 + ability / 2
    worse = Samples(confidence - 0.3 * (rng.random(2000) < 0.2), correct)
    sets = Samples(confidence, correct), worse
    metrics = [evaluation_of(samples).metrics for samples in sets]
    resampled = bootstrap(sets, 499)
    first, second = (intervals_of(*each)["aurc"] for each in zip(sets, metrics, resampled, strict=True))
    assert first.high > second.low
    gap = paired_differences(*resampled, *metrics, samples=sets)["aurc"]
    assert gap.value == pytest.approx(metrics[1]["aurc"] - metrics[0]["aurc"])
    assert 0 < gap.low < gap.value < gap.high
    assert gap.p <= 0.01
    assert paired_differences(*resampled, *metrics)["acc"].p == 1


def test_p_values_are_uniform_when_nothing_differs():
    """Two scores of equal quality: p below 0.1 in about a tenth of 400 data sets."""
    rng, low = np.random.default_rng(7), 0
    for repetition in range(400):
        ability = rng.random(200)
        correct = rng.random(200) < 0.4 + ability / 2
        sets = [Samples(ability + rng.standard_normal(200) / 5, correct) for _ in range(2)]
        metrics = [evaluation_of(samples).metrics for samples in sets]
        low += paired_differences(*bootstrap(sets, 99, seed=repetition), *metrics)["aurc"].p <= 0.1
    assert 0.05 <= low / 400 <= 0.16


def test_the_number_of_resamples_falls_with_n():
    assert [default_resamples(n) for n in (10, 50_000, 200_000, 10**6, 10**6 + 1)] == [1000, 1000, 250, 200, 0]
    with pytest.raises(ValueError, match="at least 1 resample, but got 0"):
        bootstrap([example()], 0)
    with pytest.raises(ValueError, match=r"same samples, but got lengths \[100, 120\]"):
        bootstrap([example(), example(size=100)], 5)


def test_progress_counts_the_resampled_rows_of_all_sets(monkeypatch):
    monkeypatch.setattr(resampling, "BLOCK", 2 * 120)
    seen = []
    bootstrap([example(), example(1)], 5, on_progress=lambda *numbers: seen.append(numbers))
    assert seen == [(done * 120, 10 * 120) for done in (0, 2, 4, 6, 8, 9, 10)]


def test_classes_equal_a_loop_over_them():
    samples = example(size=90)
    summaries = class_summaries(samples)
    assert sum(one.num_samples for one in summaries) == 90
    assert sum(one.error_share for one in summaries) == pytest.approx(1)
    for one in summaries:
        rows = np.flatnonzero(samples.label == one.label)
        metrics = evaluation_of(samples.select(rows)).metrics
        assert (one.accuracy, one.aurc) == pytest.approx((metrics["acc"], metrics["aurc"]))
        assert one.confidence == pytest.approx(samples.confidence[rows].mean())
        assert one.error_share == pytest.approx((~samples.correct[rows]).sum() / (~samples.correct).sum())
    assert class_summaries(Samples(np.ones(1), np.array([True]))) == []
    assert class_summaries(Samples(np.ones(1), np.array([True]), label=np.array([4])))[0].error_share is None


@pytest.mark.parametrize("limit", [1, 5, 1000])
def test_confident_mistakes_are_the_surest_wrong_rows(limit):
    samples = example(size=300, decimals=1)
    wrong = [row for row in range(300) if not samples.correct[row]]
    expected = sorted(wrong, key=lambda row: (-samples.confidence[row], row))[:limit]
    assert confident_mistakes(samples, limit) == expected


def test_one_discordant_row_proves_nothing():
    correct = np.arange(2000) % 5 > 0
    other = correct.copy()
    other[0] = ~other[0]
    confidence = np.linspace(0, 1, 2000)
    for seed in range(10):
        pair = [sample_values(confidence=confidence, correct=values) for values in (correct, other)]
        metrics = [evaluation_of(samples).metrics for samples in pair]
        gap = paired_differences(*bootstrap(pair, 200, seed), *metrics)["acc"]
        assert gap.p > 0.3
        assert gap.low <= 0 <= gap.high


@pytest.mark.parametrize(
    ("degrees", "skewed"), [(np.inf, False), (np.inf, True), (0.5, False), (3.0, False), (40, True)]
)
def test_p_value_and_interval_agree(degrees, skewed):
    rng = np.random.default_rng(0)
    for _ in range(40):
        resampled = 0.05 + rng.gamma(4, size=399)
        value = resampled.mean() + rng.uniform(-14, 6)
        gap = resampling._difference(value, resampled, 0.95, degrees, skewed=skewed)
        assert (gap.p < 0.05 + 1e-9) == (not gap.low <= 0 <= gap.high), (gap, value)


def test_nothing_cannot_be_resampled_but_one_row_can():
    with pytest.raises(ValueError, match=r"predictions for the same samples, but got lengths \[0\]"):
        bootstrap([Samples(np.empty(0), np.empty(0, dtype=bool))], 10)
    assert bootstrap([Samples(np.array([0.5]), np.array([True]))], 10)[0]["acc"].tolist() == [1] * 10

import numpy as np
import pytest
from scipy.special import expit, logit, softmax
from scipy.stats import binomtest, norm, skew
from scipy.stats import t as student_t

from confrank.metrics import (
    KEYS,
    Samples,
    bootstrap,
    class_summaries,
    evaluation_of,
    intervals,
    intervals_of,
    paired_differences,
    resampling,
)
from confrank.metrics.classes import confident_mistakes
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


def test_undefined_resamples_give_no_interval():
    samples = Samples(np.array([0.9, 0.8, 0.7]), np.array([True, True, False]))
    found = bootstrap([samples], 200)[0]
    assert np.isnan(found["auroc"]).any()
    limits = intervals_of(found, evaluation_of(samples).metrics)
    assert limits["auroc"] is None
    assert limits["ece"] is None
    assert 0 <= limits["acc"].low < limits["acc"].high <= 1


def test_without_errors_there_is_no_interval_of_width_zero():
    samples = Samples(np.array([0.9, 0.8, 0.7]), np.ones(3, dtype=bool), np.array([0.9, 0.8, 0.7]))
    limits = intervals_of(bootstrap([samples], 50)[0], evaluation_of(samples).metrics, samples=samples)
    assert limits["aurc"] is None
    assert limits["ece"].low < limits["ece"].high
    assert limits["acc"].low < limits["acc"].high == 1


@pytest.mark.parametrize(("right", "size"), [(20, 20), (0, 20), (19, 20), (3, 7), (880, 1000)])
def test_accuracy_has_wilsons_interval(right, size):
    samples = Samples(np.linspace(0, 1, size), np.arange(size) < right)
    metrics, (resampled,) = evaluation_of(samples).metrics, bootstrap([samples], 100)
    expected = binomtest(right, size).proportion_ci(0.9, method="wilson")
    limits = intervals_of(resampled, metrics, level=0.9, samples=samples)["acc"]
    assert (limits.low, limits.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert limits.method == "Wilson"


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
    assert intervals._difference(value, resampled, 0.95).p == pytest.approx(min(1, 2 * (min(below, above) + 1) / 61))


@pytest.mark.parametrize("degrees", [4, 7.5, 30])
@pytest.mark.parametrize("shift", [-2.4, 0.3, 1.8])
def test_percentiles_of_few_rows_are_farther_out_as_students_t_is(degrees, shift):
    resampled = np.random.default_rng(3).standard_normal(4999)
    value = resampled.mean() + shift
    gap = intervals._difference(value, resampled, 0.95, degrees)
    tail = norm.sf(student_t.ppf(0.975, degrees))
    low, high = np.quantile(resampled - resampled.mean(), [tail, 1 - tail], method="weibull") + value
    expected = (low, high) if low > 0 or high < 0 else (min(low, 0), max(high, 0))
    assert [gap.low, gap.high] == pytest.approx(expected, abs=0.1)
    below = (1 + np.count_nonzero(resampled + shift <= 0)) / 5000
    assert gap.p == pytest.approx(2 * student_t.sf(norm.isf(min(below, 1 - below)), degrees), rel=0.1)


def test_what_decides_a_difference_is_counted():
    first, second = (example(seed, size=90) for seed in (3, 4))
    found = intervals._paired_degrees(first, second)

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
    plain, wider = (intervals._difference(value, resampled, 0.95, skewed=skewed) for skewed in (False, True))
    z = norm.isf(0.025)
    shift = (2 + z**2) / 6 * skew(resampled) * resampled.std()
    near, far = ("low", "high") if sign > 0 else ("high", "low")
    assert (getattr(wider, near), wider.p) == (getattr(plain, near), plain.p)
    assert getattr(wider, far) == pytest.approx(getattr(plain, far) + shift)
    # Skewed towards 0: the resamples around the same value, mirrored.
    mirrored = [intervals._difference(value, 2 * value - resampled, 0.95, skewed=skewed) for skewed in (False, True)]
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


def test_ranking_limits_are_students_t_on_the_logit_scale():
    samples = example(size=60)
    metrics, (resampled,) = evaluation_of(samples).metrics, bootstrap([samples], 300)
    limits = intervals_of(resampled, metrics, level=0.9, samples=samples)
    degrees = min(samples.correct.sum(), (~samples.correct).sum()) - 1
    for key in ("auroc", "aupr_error"):
        spread = logit(resampled[key]).std(ddof=1) * student_t.ppf(0.95, degrees)
        expected = expit(logit(metrics[key]) + np.array([-spread, spread]))
        assert [limits[key].low, limits[key].high] == pytest.approx(expected, abs=2e-4)
        assert limits[key].method == "logit bootstrap"
    wider = intervals_of(resampled, metrics, level=0.9)["auroc"]
    assert limits["auroc"].low < wider.low < wider.high < limits["auroc"].high
    assert limits["fpr95"].method == "bootstrap" and limits["ece"].method == "test inversion"


def test_limits_of_areas_are_students_t_on_the_root_scale():
    samples = example(size=60)
    metrics, (resampled,) = evaluation_of(samples).metrics, bootstrap([samples], 300)
    limits = intervals_of(resampled, metrics, level=0.9, samples=samples)
    degrees = min(samples.correct.sum(), (~samples.correct).sum()) - 1
    for key in ("aurc", "e_aurc", "augrc"):
        assert resampled[key].min() > 0
        reach = np.sqrt(resampled[key]).std(ddof=1) * student_t.ppf(0.95, degrees)
        expected = (np.sqrt(metrics[key]) + np.array([-reach, reach])) ** 2
        assert [limits[key].low, limits[key].high] == pytest.approx(expected, abs=2e-4)
        assert limits[key].method == "square-root bootstrap"
    for key, values in (("nll", samples.nll), ("brier", samples.brier)):
        reach = np.sqrt(resampled[key]).std(ddof=1) * student_t.ppf(0.95, values.sum() ** 2 / (values**2).sum() - 1)
        expected = (np.sqrt(metrics[key]) + np.array([-reach, reach])) ** 2
        assert [limits[key].low, limits[key].high] == pytest.approx(expected, abs=2e-4)
        assert limits[key].method == "square-root bootstrap"


def test_intervals_of_proper_scores_hold_with_few_rows():
    """Logits with a spread of 6, calibrated: two errors in 20. The percentiles cover the Brier score in 83%."""

    def drawn(rng, size):
        table = softmax(rng.normal(0, 6, (size, 3)), axis=1)
        return sample_values(
            probabilities=table, label=(rng.random(size)[:, None] > table.cumsum(axis=1)).sum(axis=1)
        )

    truth = evaluation_of(drawn(np.random.default_rng(0), 500_000)).metrics
    rng, covered, plain = np.random.default_rng(5), dict.fromkeys(("nll", "brier"), 0), 0
    for repetition in range(400):
        samples = drawn(rng, 20)
        metrics, (resampled,) = evaluation_of(samples).metrics, bootstrap([samples], 199, seed=repetition)
        limits = intervals_of(resampled, metrics, samples=samples)
        for key in covered:
            covered[key] += limits[key].low <= truth[key] <= limits[key].high
        low, high = intervals._percentiles(resampled["brier"], metrics["brier"], 0.95)
        plain += low <= truth["brier"] <= high
    assert covered["brier"] / 400 >= 0.92 and covered["nll"] / 400 >= 0.9 and plain / 400 < 0.86


def test_limits_of_areas_stay_in_their_range():
    """One error of ten: the square root less its reach is negative, which no area is."""
    samples = Samples(np.linspace(1, 0, 10), np.arange(10) != 8)
    metrics, (resampled,) = evaluation_of(samples).metrics, bootstrap([samples], 500)
    limits = intervals_of(resampled, metrics, samples=samples)
    for key in ("aurc", "e_aurc", "augrc"):
        assert limits[key].low < metrics[key] < limits[key].high <= 1
        assert limits[key].low == 0


def test_intervals_of_areas_hold_with_few_errors():
    """Confidence ~ Beta(19, 1) and calibrated: about 5 errors in 100. The percentiles cover AURC in 83%."""
    # r(q) at coverage q is the mean of 1 - u^(1/19) over u from 1 - q to 1.
    coverage = (np.arange(20_000) + 0.5) / 20_000
    truth = (1 - 19 / 20 * (1 - (1 - coverage) ** (20 / 19)) / coverage).mean()
    rng, covered, plain = np.random.default_rng(5), 0, 0
    for repetition in range(300):
        confidence = rng.beta(19, 1, 100)
        samples = Samples(confidence, rng.random(100) < confidence)
        metrics, (resampled,) = evaluation_of(samples).metrics, bootstrap([samples], 199, seed=repetition)
        limits = intervals_of(resampled, metrics, samples=samples)["aurc"]
        low, high = intervals._percentiles(resampled["aurc"], metrics["aurc"], 0.95)
        covered += limits is None or limits.low <= truth <= limits.high
        plain += low <= truth <= high
    assert covered / 300 >= 0.94 and plain / 300 < 0.9


@pytest.mark.parametrize("degrees", [4, 9, 19, 99])
def test_students_t_is_close(degrees):
    for level in (0.9, 0.95, 0.99):
        tail = (1 + level) / 2
        assert intervals._student(norm.ppf(tail), degrees) == pytest.approx(student_t.ppf(tail, degrees), rel=0.06)


def test_perfect_separation_has_no_ranking_interval():
    samples = Samples(np.linspace(0, 1, 40), np.arange(40) > 9)
    limits = intervals_of(bootstrap([samples], 100)[0], evaluation_of(samples).metrics, samples=samples)
    assert (limits["auroc"], limits["aupr_error"]) == (None, None)


@pytest.mark.parametrize("repetitions", [1000, pytest.param(2000, marks=pytest.mark.slow)])
def test_bootstrap_intervals_cover_the_true_aurc(repetitions):
    """Confidence uniform on [1/2, 1] and calibrated: r(q) = q / 4, so the true AURC is 1/8. Seed fixed beforehand."""
    rng, size = np.random.default_rng(5), 300
    covered = 0
    for repetition in range(repetitions):
        confidence = rng.uniform(0.5, 1, size)
        samples = Samples(confidence, rng.random(size) < confidence)
        limits = intervals_of(bootstrap([samples], 199, seed=repetition)[0], evaluation_of(samples).metrics)["aurc"]
        covered += limits.low <= 1 / 8 <= limits.high
    assert 0.93 <= covered / repetitions <= 0.97


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
    first, second = (intervals_of(*pair)["aurc"] for pair in zip(resampled, metrics, strict=True))
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
        gap = intervals._difference(value, resampled, 0.95, degrees, skewed=skewed)
        assert (gap.p < 0.05 + 1e-9) == (not gap.low <= 0 <= gap.high), (gap, value)


def test_nothing_cannot_be_resampled_but_one_row_can():
    with pytest.raises(ValueError, match=r"predictions for the same samples, but got lengths \[0\]"):
        bootstrap([Samples(np.empty(0), np.empty(0, dtype=bool))], 10)
    assert bootstrap([Samples(np.array([0.5]), np.array([True]))], 10)[0]["acc"].tolist() == [1] * 10


@pytest.mark.parametrize("rare", [True, False])
def test_the_rarer_kind_decides_how_wide_a_ranking_interval_is(rare):
    """Student's t of five samples of one kind, whichever it is, against the normal quantile without samples."""
    correct = np.full(200, not rare)
    correct[::40] = rare
    samples = Samples(np.random.default_rng(0).random(200) + 0.05 * correct, correct)
    resampled, metrics = bootstrap([samples], 300)[0], evaluation_of(samples).metrics
    known, normal = (intervals_of(resampled, metrics, samples=given)["auroc"] for given in (samples, None))
    widths = [logit(limits.high) - logit(limits.low) for limits in (known, normal)]
    assert widths[0] / widths[1] == pytest.approx(student_t.ppf(0.975, 4) / norm.ppf(0.975), rel=0.02)

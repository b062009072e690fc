import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import beta, binom
from torch import nn

from confrank import evaluate
from confrank.confidence import margin
from confrank.decisions import (
    ABSTAIN,
    SelectiveClassifier,
    UnreachableError,
    fit_temperature,
    guaranteed_threshold,
    measured_at,
    random_split,
    risk_bound,
    scaled_logits,
    threshold_for_coverage,
)
from confrank.decisions.temperature import as_logits
from confrank.metrics import sample_values


@settings(max_examples=60, deadline=None)
@given(accepted=st.integers(1, 5000), share=st.floats(0, 1), delta=st.sampled_from([1e-9, 0.001, 0.05, 0.5]))
def test_the_bound_inverts_the_binomial_tail(accepted, share, delta):
    wrong = int(share * accepted)
    bound = risk_bound(wrong, accepted, delta)
    if wrong == accepted:
        assert bound == 1
    else:
        assert binom.cdf(wrong, accepted, bound) == pytest.approx(delta, rel=1e-6)
        assert bound == pytest.approx(beta.isf(delta, wrong + 1, accepted - wrong), rel=1e-9)


def slow_guarantee(confidence, correct, risk, delta):
    """Algorithm 1 of the paper, line by line; of the thresholds with a sufficient bound the one of most coverage."""
    pairs = sorted(zip(confidence, correct, strict=True))
    m = len(pairs)
    k = max(1, math.ceil(math.log2(m)))
    z_min, z_max, visited = 1, m, []
    for _ in range(k):
        z = math.ceil((z_min + z_max) / 2)
        threshold = pairs[z - 1][0]
        accepted = [right for score, right in pairs if score >= threshold]
        errors = sum(not right for right in accepted)
        bound = 1.0 if errors == len(accepted) else float(beta.ppf(1 - delta / k, errors + 1, len(accepted) - errors))
        visited.append((threshold, len(accepted), bound))
        if bound <= risk:
            z_max = z
        else:
            z_min = z
    good = [item for item in visited if item[2] <= risk]
    return max(good, key=lambda item: item[1]) if good else min(item[2] for item in visited)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**31), size=st.integers(1, 300), risk=st.sampled_from([0.02, 0.1, 0.3]),
    delta=st.sampled_from([0.001, 0.1]), levels=st.sampled_from([5, 100, 10**6]),
)  # fmt: skip
def test_the_threshold_is_that_of_a_direct_transcription(seed, size, risk, delta, levels):
    rng = np.random.default_rng(seed)
    confidence = rng.integers(0, levels, size) / levels
    correct = rng.random(size) < 0.3 + 0.7 * confidence
    slow = slow_guarantee(confidence, correct, risk, delta)
    try:
        point = guaranteed_threshold(confidence, correct, risk, delta=delta)
    except UnreachableError as error:
        assert error.best.bound == pytest.approx(slow, rel=1e-9)  # noqa: PT017 - both outcomes are compared
        assert slow > risk
        lowest = error.best.bound
        assert lowest == 1 or guaranteed_threshold(confidence, correct, lowest, delta=delta).bound <= lowest
    else:
        assert (point.threshold, point.accepted) == slow[:2]
        assert point.bound == pytest.approx(slow[2], rel=1e-9)
        assert point.bound >= point.risk
        assert replace(point, bound=None) == measured_at(confidence, correct, point.threshold)


@pytest.mark.parametrize("num_sets", [1000, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("delta", [0.1, 0.05])
def test_the_guarantee_holds(delta, num_sets):
    """Many calibration sets for each asked risk: the true risk exceeds it in at most a delta share.

    The seed was fixed beforehand. Confidence is uniform and a prediction is wrong with
    probability (1 - confidence)^2 / 2, so that the true risk of accepting confidence >= t is (1 - t)^2 / 6.
    """
    rng = np.random.default_rng(2017)
    for risk in (0.05, 0.08, 0.12, 0.16):
        confidence = rng.random((num_sets, 500))
        correct = rng.random((num_sets, 500)) >= (1 - confidence) ** 2 / 2
        exceeded = chosen = 0
        for scores, flags in zip(confidence, correct, strict=True):
            try:
                threshold = guaranteed_threshold(scores, flags, risk, delta=delta).threshold
            except UnreachableError:
                continue
            chosen += 1
            exceeded += (1 - threshold) ** 2 / 6 > risk
        assert exceeded <= delta * num_sets
        # It must not hold for want of answers.
        assert chosen > num_sets * (0.9 if risk > 0.05 else 0.2)


def test_more_predictions_give_more_coverage():
    rng = np.random.default_rng(0)
    coverage = []
    for size in (1000, 10_000, 100_000):
        confidence = rng.random(size)
        correct = rng.random(size) >= (1 - confidence) ** 2 / 2
        coverage.append(guaranteed_threshold(confidence, correct, 0.06, delta=0.001).coverage)
    # The true risk is 0.06 at a coverage of sqrt(0.36) = 0.6.
    assert coverage[0] < coverage[1] < coverage[2] < 0.6
    assert coverage[2] > 0.57


def test_the_impossible_names_what_is_possible():
    confidence, correct = np.linspace(0, 1, 100), np.arange(100) % 4 > 0
    with pytest.raises(
        UnreachableError,
        match="certified with 100 predictions, but got 0.01: .* comes nearest; .*, or ask for 0.501269 or more$",
    ) as e:
        guaranteed_threshold(confidence, correct, 0.01, delta=0.001)
    lowest = e.value.best
    assert guaranteed_threshold(confidence, correct, lowest.bound, delta=0.001).bound <= lowest.bound
    with pytest.raises(UnreachableError):
        guaranteed_threshold(confidence, correct, lowest.bound - 1e-9, delta=0.001)
    assert guaranteed_threshold(confidence, correct, 0.501269, delta=0.001)  # rounded up, as the message says
    with pytest.raises(
        UnreachableError,
        match=r"nearest; use a model with fewer errors: more predictions like these would not suffice$",
    ):
        guaranteed_threshold([0.5, 0.25], [False, False], 0.01)
    with pytest.raises(ValueError, match="expected risk in"):
        guaranteed_threshold(confidence, correct, 1.5)
    with pytest.raises(ValueError, match="expected delta in"):
        guaranteed_threshold(confidence, correct, 0.1, delta=0)
    with pytest.raises(ValueError, match="but got none"):
        guaranteed_threshold([], [], 0.1)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.integers(1, 200), coverage=st.sampled_from([0.01, 0.3, 0.5, 0.9, 1.0]))
def test_threshold_for_a_coverage_is_the_largest_that_suffices(seed, size, coverage):
    rng = np.random.default_rng(seed)
    confidence, correct = rng.integers(0, 30, size) / 30, rng.random(size) < 0.7
    point = threshold_for_coverage(confidence, correct, coverage)
    enough = [level for level in set(confidence.tolist()) if (confidence >= level).sum() >= coverage * size - 1e-9]
    assert point.threshold == max(enough)
    assert point == measured_at(confidence, correct, point.threshold)
    with pytest.raises(ValueError, match=r"coverage in \(0, 1\], but got 0"):
        threshold_for_coverage(confidence, correct, 0)


def calibrated(seed, temperature, size=3000):
    rng = np.random.default_rng(seed)
    logits = 3 * rng.standard_normal((size, 5))
    label = np.array([rng.choice(5, p=row) for row in torch.softmax(torch.tensor(logits), 1).numpy()])
    return logits * temperature, label


@pytest.mark.parametrize("true", [0.4, 1.0, 3.0])
def test_temperature_minimises_the_likelihood(true):
    logits, label = calibrated(0, true)
    temperature = fit_temperature(logits, label)
    reference = minimize_scalar(
        lambda log_t: evaluate(logits=logits / np.exp(log_t), label=label).metrics["nll"],
        bounds=(-3, 3), method="bounded", options={"xatol": 1e-9},
    )  # fmt: skip
    assert temperature == pytest.approx(np.exp(reference.x), rel=1e-5)
    assert temperature == pytest.approx(true, rel=0.1)
    before, after = (
        evaluate(logits=item, label=label).metrics for item in (logits, scaled_logits(logits, temperature))
    )
    assert before["acc"] == after["acc"]
    if true == 3:
        assert after["ece"] < before["ece"] / 3


def test_temperatures_without_limit_are_errors():
    with pytest.raises(ValueError, match="all answers are right in the 2 rows"):
        fit_temperature([[2.0, 0.0], [0.0, 2.0]], [0, 1])
    with pytest.raises(ValueError, match="no better than chance"):
        fit_temperature([[2.0, 0.0], [0.0, 2.0]], [1, 0])
    with pytest.raises(ValueError, match="in the 1 row it is fitted to"):
        fit_temperature([[2.0, 0.0]], [0])
    with pytest.raises(ValueError, match="the logits are the same for all classes in the 3 rows"):
        fit_temperature([[1.0, 1.0]] * 3, [1, 0, 1])
    with pytest.raises(ValueError, match="same number of rows in each input, but got 3 in logits, 2 in label"):
        fit_temperature([[2.0, 0.0]] * 3, [0, 1])
    with pytest.raises(ValueError, match="positive temperature, but got 0"):
        scaled_logits(np.ones((1, 2)), 0)


@pytest.mark.parametrize("seed", range(20))
def test_a_threshold_chosen_on_calibrated_predictions_accepts_the_same(seed):
    generator = torch.Generator().manual_seed(seed)
    logits = 5 * torch.randn(40, 10, generator=generator).repeat(5, 1)  # in float32, each row five times
    label = torch.where(torch.rand(200, generator=generator) < 0.3, 0, logits.argmax(1))
    temperature = fit_temperature(logits, label)
    samples = sample_values(logits=scaled_logits(logits, temperature), label=label)
    point = threshold_for_coverage(samples.confidence, samples.correct, 0.8)
    answers = SelectiveClassifier(nn.Identity(), point.threshold, temperature=temperature)(logits)
    given = answers != ABSTAIN
    assert given.sum() == point.accepted and (answers[given] != label[given]).sum() == point.wrong
    assert torch.equal(answers[given], logits.argmax(1)[given])


def test_selective_classifier_options():
    logits = torch.tensor([[4.0, 0.0, 0.0], [1.0, 0.0, 0.0]], dtype=torch.bfloat16, requires_grad=True)
    strict = SelectiveClassifier(nn.Identity(), 0.9, "margin")
    assert strict(logits).tolist() == [0, ABSTAIN]
    assert strict.confidence(logits).tolist() == margin(logits.double()).tolist()
    assert SelectiveClassifier(nn.Identity(), 0.9, temperature=0.2)(logits).tolist() == [0, 0]
    limits = [0.5, math.inf, 0.5]
    for threshold in (limits, tuple(limits), np.array(limits), torch.tensor(limits, requires_grad=True)):
        assert SelectiveClassifier(nn.Identity(), threshold)(logits.flip(1)).tolist() == [2, 2]
        assert SelectiveClassifier(nn.Identity(), threshold)(logits.roll(1, 1)).tolist() == [ABSTAIN, ABSTAIN]
    for threshold in (np.float32(0.75), torch.tensor(0.75), 0.75):
        assert SelectiveClassifier(nn.Identity(), threshold).threshold == 0.75
    for threshold in ([[0.5, 0.5]], "high"):
        with pytest.raises(ValueError, match="a threshold, or one for each class, but got shape"):
            SelectiveClassifier(nn.Identity(), threshold)
    with pytest.raises(ValueError, match="a confidence among"):
        SelectiveClassifier(nn.Identity(), 0.9, "energy")
    with pytest.raises(ValueError, match="but got NaN"):
        SelectiveClassifier(nn.Identity(), math.nan)
    with pytest.raises(ValueError, match="positive temperature"):
        SelectiveClassifier(nn.Identity(), 0.5, temperature=-1)
    for outputs, problem in (
        (torch.zeros(2, 3, 8, 8), r"shape \(2, 3, 8, 8\); wrap it in a module"),
        (logits[0], r"shape \(3,\)"),
        ({"logits": logits}, "dict; wrap it in a module that returns its logits alone"),
        ((logits, logits), "tuple; wrap it"),
    ):
        with pytest.raises(ValueError, match=rf"a model that returns logits \[n, K\], but got {problem}"):
            SelectiveClassifier(nn.Identity(), 0.5)(outputs)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_temperature_of_logits_in_any_unit(scale):
    rng = np.random.default_rng(0)
    logits = 2 * rng.standard_normal((500, 4))
    probabilities = torch.softmax(torch.from_numpy(logits), dim=1)
    label = torch.multinomial(probabilities, 1, generator=torch.Generator().manual_seed(0))[:, 0].numpy()
    assert fit_temperature(scale * logits, label) == pytest.approx(scale * fit_temperature(logits, label), rel=1e-6)


def test_what_the_search_cannot_certify_is_not_called_impossible():
    """A search for a higher risk may end at a bound below the one that was refused."""
    confidence, correct = np.linspace(0, 1, 300), np.ones(300, dtype=bool)
    with pytest.raises(UnreachableError) as error:
        guaranteed_threshold(confidence, correct, 0.05)
    assert guaranteed_threshold(confidence, correct, 0.06).bound < 0.05
    assert "no threshold" not in str(error.value)
    assert "lowest" not in str(error.value)
    assert "300 predictions, but got 0.05" in str(error.value)
    assert "use more validation predictions (at least about 356), or ask for 0.058895 or more" in str(error.value)
    assert error.value.needed == 356
    with pytest.raises(UnreachableError, match="certified with 1 prediction, but got 0.05"):
        guaranteed_threshold([0.9], [1], 0.05)


@pytest.mark.parametrize("risk", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("delta", [0.001, 0.05])
@pytest.mark.parametrize("size", [10, 120, 300])
def test_the_number_asked_for_without_errors_is_the_smallest_that_suffices(risk, delta, size):
    """More rows mean more steps of the search, and each gets a smaller share of delta."""

    def suffices(num_rows):
        level = delta / math.ceil(math.log2(num_rows))  # the first of the steps accepts half of the rows
        return binom.cdf(0, num_rows // 2, risk) <= level

    if suffices(size):
        return
    with pytest.raises(UnreachableError) as error:
        guaranteed_threshold(np.linspace(0, 1, size), np.ones(size, dtype=bool), risk, delta=delta)
    needed = error.value.needed
    assert suffices(needed) and not suffices(needed - 2)
    assert (
        guaranteed_threshold(np.linspace(0, 1, needed), np.ones(needed, dtype=bool), risk, delta=delta).bound <= risk
    )


def test_a_threshold_on_no_predictions_has_neither_coverage_nor_risk():
    point = measured_at(np.zeros(0), np.zeros(0), 0.5)
    assert (point.coverage, point.risk) == (None, None)


@pytest.mark.parametrize("masked", [-1e3, np.finfo(np.float32).min, np.finfo(np.float64).min])
@pytest.mark.parametrize("raised", [0.0, 1e300])
def test_temperature_with_masked_classes(masked, raised):
    logits, label = calibrated(0, 2.0, 500)
    wide = np.concatenate([logits, np.full((500, 2), masked)], axis=1)
    expected = fit_temperature(logits, label)
    assert fit_temperature(wide, label) == pytest.approx(expected, rel=1e-6)
    assert np.isfinite(scaled_logits(wide, 0.5)).all()
    # A sure and right row more changes nothing.
    sure = np.concatenate([wide, [[raised + 1e3, *[-1e3] * 4, -raised, -raised]]])
    assert fit_temperature(sure, np.append(label, 0)) == pytest.approx(expected, rel=1e-6)


def test_zeros_are_raised_to_half_of_the_smallest_other_probability():
    logits, label = calibrated(0, 2.0, 2000)
    probabilities = torch.softmax(torch.from_numpy(logits), dim=1).numpy()
    rounded = probabilities.round(3)
    raised, notes = as_logits(probabilities=rounded / rounded.sum(axis=1, keepdims=True))
    assert notes[0].startswith(f"{(rounded == 0).sum():,} of 10,000 probabilities are zero and count as")
    assert np.exp(raised).min() == pytest.approx(0.0005, rel=0.01)
    assert fit_temperature(raised, label) == pytest.approx(fit_temperature(logits, label), rel=0.2)
    exact, notes = as_logits(probabilities=probabilities)
    assert notes == []
    assert fit_temperature(exact, label) == pytest.approx(fit_temperature(logits, label), rel=1e-6)


def test_a_random_split_is_a_permutation_of_the_seed():
    for seed, given_seed in ((0, {}), (7, {"seed": 7})):
        order = np.random.default_rng(seed).permutation(20)
        chosen, checked = random_split(20, 0.25, **given_seed)
        assert (chosen.tolist(), checked.tolist()) == (sorted(order[5:]), sorted(order[:5]))
    for share in (0, 1, -0.5, 0.01, 0.99):
        with pytest.raises(ValueError, match="expected a share"):
            random_split(20, share)
    assert [len(rows) for rows in random_split(2, 0.5)] == [1, 1]


def test_the_search_does_not_test_the_acceptance_of_all_rows():
    """As published: z = ceil((1 + z_max) / 2) is at least 2. Ties are accepted together."""
    sure = np.linspace(0.5, 1, 500)
    assert guaranteed_threshold(sure, np.ones(500), 0.05, delta=0.05).accepted == 499
    assert guaranteed_threshold(np.full(500, 0.9), np.ones(500), 0.05, delta=0.05).accepted == 500

"""Ranking metrics: does the confidence rank right predictions above wrong ones?

Each is a sum over the steps of a ranking (`confrank.metrics.ranking`), exact under ties.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np

from confrank.metrics import areas
from confrank.metrics.areas import Amounts
from confrank.metrics.curve import RiskCoverageCurve, risk_coverage_curve
from confrank.metrics.inputs import EQUAL_SHARES, Array, ArrayLike, Flags, Floats, scores_and_flags
from confrank.metrics.ranking import AnyRanking, ranked, sum_over_steps

AurcEstimator = Literal["expected", "trapezoid", "thresholds"]
FprPoint = Literal["at_least", "nearest"]


def aurc_of(ranking: AnyRanking) -> float | None:
    """The mean over k of the error rate among the k surest, averaged over all orders of tied predictions."""
    total = sum_over_steps(ranking, areas.aurc_terms)
    return total / ranking.num_samples if ranking.num_samples else None


def e_aurc_of(ranking: AnyRanking) -> float | None:
    area = aurc_of(ranking)
    return None if area is None else area - best_aurc(ranking.num_wrong / ranking.num_samples)


def best_aurc(risk: float) -> float:
    """The AURC of a perfect ranking at this error rate, in the published (large n) form; 1 at risk 1."""
    return float(areas.best_aurc(np.array(risk)))


def naurc_of(ranking: AnyRanking) -> float | None:
    """(AURC - least) / (error rate - least), the least being that of a perfect ranking of these predictions."""
    if not ranking.has_both:
        return None
    right, total = (np.array([number]) for number in (ranking.num_correct, ranking.num_samples))
    least = float(least_aurc(right, total)[0])
    area = sum_over_steps(ranking, areas.aurc_terms) / ranking.num_samples
    return max(0.0, area - least) / (ranking.num_wrong / ranking.num_samples - least)


def least_aurc(num_right: Amounts, num_samples: Amounts) -> Floats:
    """The AURC of a perfect ranking of so many right predictions among all. [b], [b] -> [b]"""
    return 1 - num_right / num_samples * (1 + areas.harmonic_gap(num_right, num_samples))


def augrc_of(ranking: AnyRanking) -> float | None:
    """Area under (wrong accepted / n) over coverage, by straight lines from (0, 0); exact under ties."""
    total = sum_over_steps(ranking, areas.augrc_terms)
    return total / ranking.num_samples**2 if ranking.num_samples else None


def aupr_error_of(ranking: AnyRanking) -> float | None:
    """Average precision of finding the errors from the least confident end."""
    if not ranking.has_both:
        return None
    totals = np.array(ranking.num_samples), np.array(ranking.num_wrong)
    return min(1.0, sum_over_steps(ranking, partial(areas.aupr_error_terms, *totals)) / ranking.num_wrong)


def auroc_of(ranking: AnyRanking) -> float | None:
    """Probability that a right prediction is surer than a wrong one; ties count half."""
    if not ranking.has_both:
        return None
    won = sum_over_steps(ranking, partial(areas.auroc_terms, np.array(ranking.num_wrong)))
    return min(1.0, won / (ranking.num_wrong * ranking.num_correct))


def fpr_at_tpr_of(ranking: AnyRanking, tpr: float = 0.95) -> float | None:
    """Share of the errors accepted at the largest threshold that accepts at least `tpr` of the right ones."""
    if not ranking.has_both:
        return None
    for accepted, wrong in ranking.steps():
        reached = (accepted - wrong) / ranking.num_correct >= tpr - EQUAL_SHARES
        if reached.any():
            return float(wrong[reached.argmax()] / ranking.num_wrong)
    raise AssertionError("the last step accepts everything")


def fpr_nearest_tpr_of(ranking: AnyRanking, tpr: float = 0.95) -> float | None:
    """Share of the errors accepted at the corner of the ROC curve whose share of the right ones is nearest to `tpr`.

    As in scikit-learn, the first and the last step are corners whatever the curve does there.
    """
    if not ranking.has_both:
        return None
    steps = [
        np.stack([(accepted - wrong) / ranking.num_correct, wrong / ranking.num_wrong])
        for accepted, wrong in ranking.steps()
    ]
    rates = np.concatenate(steps, axis=1)
    bends = (np.abs(np.diff(rates, 2)) > EQUAL_SHARES).any(axis=0)
    corners = np.concatenate([[True], bends, [True]])[: rates.shape[1]]
    right, wrong = np.concatenate([np.zeros((2, 1)), rates[:, corners]], axis=1)  # from where nothing is accepted
    gaps = np.abs(right - tpr)
    return float(wrong[np.argmax(gaps <= gaps.min() + EQUAL_SHARES)])


FPR_POINTS: dict[str, Callable[[AnyRanking, float], float | None]] = {
    "at_least": fpr_at_tpr_of,
    "nearest": fpr_nearest_tpr_of,
}


def aurc(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    estimator: AurcEstimator = "expected",
    sample_weight: ArrayLike | None = None,
) -> float | None:
    """Area under the risk-coverage curve, lower is better; None for no predictions.

    "expected" is the mean error rate among the k surest over k = 1..n, and exact under ties. Use the others to
    compare with published numbers: "trapezoid" joins the points from coverage 1/n to 1 by straight lines and
    divides by that width, with ties in row order, as torch-uncertainty does; "thresholds" joins the points of the
    distinct confidences and is constant below the first, as in fd-shifts.
    Weights [n] that are all whole numbers are counts, as if each row were repeated that often; others are scaled to
    mean 1, and k takes all values between 0 and n: see docs/concepts/metrics.md.

    >>> aurc([0.7, 0.6, 0.8], [True, False, True])
    0.1111111111111111
    >>> round(aurc([0.7, 0.6, 0.8], [True, False, True], estimator="trapezoid"), 4)
    0.0833
    >>> round(aurc([0.7, 0.6, 0.8], [True, False, True], estimator="thresholds"), 4)
    0.0556
    """
    if estimator == "expected":
        return aurc_of(ranked(confidence, correct, sample_weight))
    if estimator == "trapezoid":
        if sample_weight is not None:
            raise ValueError('expected no weights with the estimator "trapezoid", but got sample_weight')
        return _trapezoid_aurc(*scores_and_flags(confidence, correct))
    if estimator == "thresholds":
        return _threshold_aurc(risk_coverage_curve(confidence, correct, sample_weight=sample_weight))
    raise ValueError(f"expected an estimator among expected, trapezoid, thresholds, but got {estimator!r}")


def _trapezoid_aurc(scores: Array, flags: Flags) -> float | None:
    if len(scores) < 2:
        return None
    wrong = ~flags[np.argsort(-scores, kind="stable")]
    risk = np.cumsum(wrong) / np.arange(1, len(wrong) + 1)
    return float((risk[1:] + risk[:-1]).mean() / 2)


def _threshold_aurc(curve: RiskCoverageCurve) -> float | None:
    if not len(curve.risk):
        return None
    widths = np.diff(curve.coverage, prepend=0)
    return float(np.dot(widths, (curve.risk + np.append(curve.risk[:1], curve.risk[:-1])) / 2))


def e_aurc(confidence: ArrayLike, correct: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float | None:
    """AURC minus approximately that of a perfect ranking at the same error rate r, r + (1 - r) ln(1 - r).

    The published form is that of large n: a perfect ranking of a few predictions is not at 0.

    >>> round(e_aurc([0.7, 0.6, 0.8], [True, False, True]), 4)
    0.0481
    """
    return e_aurc_of(ranked(confidence, correct, sample_weight))


def naurc(confidence: ArrayLike, correct: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float | None:
    """AURC from 0, a perfect ranking of these predictions, to 1, a random one; higher is worse than random.

    The prediction rejection ratio (PRR) of the language-model literature is 1 - NAURC. None without both kinds.

    >>> round(naurc([0.7, 0.6, 0.8], [True, False, True]), 4), round(naurc([0.7, 0.9, 0.8], [True, False, True]), 4)
    (0.0, 2.25)
    """
    return naurc_of(ranked(confidence, correct, sample_weight))


def augrc(confidence: ArrayLike, correct: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float | None:
    """Area under the generalised risk (accepted errors / n) over coverage; lower is better.

    >>> round(augrc([0.7, 0.6, 0.8], [True, False, True]), 4)
    0.0556
    """
    return augrc_of(ranked(confidence, correct, sample_weight))


def aupr_error(confidence: ArrayLike, correct: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float | None:
    """Average precision with errors as positives and -confidence as score; None without both kinds.

    >>> aupr_error([0.7, 0.6, 0.8], [True, False, True])
    1.0
    """
    return aupr_error_of(ranked(confidence, correct, sample_weight))


def auroc(confidence: ArrayLike, correct: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float | None:
    """Area under the ROC curve of confidence for being right; None without both kinds.

    >>> auroc([0.7, 0.6, 0.8], [True, False, True])
    1.0
    """
    return auroc_of(ranked(confidence, correct, sample_weight))


def fpr_at_tpr(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    tpr: float = 0.95,
    point: FprPoint = "at_least",
    sample_weight: ArrayLike | None = None,
) -> float | None:
    """Share of errors accepted when at least `tpr` of the right predictions are; None without both kinds.

    Use `point` "nearest" to compare with published numbers. The code of the paper takes the corner of the ROC curve,
    as scikit-learn's `roc_curve` returns them, whose share of right predictions is nearest to `tpr`, above or below
    it; of two equally near, the one with the higher threshold.

    >>> fpr_at_tpr([0.7, 0.9, 0.8], [True, False, True])
    1.0
    """
    if not 0 < tpr <= 1:
        raise ValueError(f"expected tpr in (0, 1], but got {tpr}")
    if point not in FPR_POINTS:
        raise ValueError(f"expected a point among {', '.join(FPR_POINTS)}, but got {point!r}")
    return FPR_POINTS[point](ranked(confidence, correct, sample_weight), tpr)

"""OOD metrics: does a score rank in-distribution inputs above out-of-distribution ones?

In-distribution is the positive class; a higher score means more in-distribution. Any score that ranks will do
(probabilities, energies, negative distances). The sums are those of `ranking`, with in-distribution inputs as the
right predictions and out-of-distribution inputs as the wrong ones; ties are one step.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, get_args

import numpy as np

from confrank.metrics import areas
from confrank.metrics.curve import curve_of
from confrank.metrics.inputs import ArrayLike, Floats, Ints, as_scores
from confrank.metrics.ranking import Ranking, rank, sum_over_steps
from confrank.metrics.ranking_metrics import FPR_POINTS, FprPoint, aupr_error_of, auroc_of

DETECTION_METRICS = ("fpr95", "detection_error", "auroc", "aupr_in", "aupr_out")
AuprEstimator = Literal["average", "trapezoid"]
AUPR_ESTIMATORS: tuple[AuprEstimator, ...] = get_args(AuprEstimator)


@dataclass(frozen=True)
class Detection:
    """The five metrics as raw fractions; an undefined one is None, with the reason in `undefined`."""

    metrics: dict[str, float | None]
    undefined: dict[str, str] = field(default_factory=dict)


def detection(
    inside: ArrayLike, outside: ArrayLike, *, aupr: AuprEstimator = "average", fpr_point: FprPoint = "at_least"
) -> Detection:
    """All five metrics from the scores of in-distribution inputs [n] and out-of-distribution inputs [m].

    `aupr` "average" is average precision; "trapezoid" joins the points of the precision-recall curve by straight
    lines, as the code behind published tables does. That is too optimistic if scores are few or tied. `fpr_point` is
    the `point` of `fpr_at_tpr`.

    >>> detection([3.0, 2.0], [1.0, 2.5]).metrics["detection_error"]
    0.25
    """
    if aupr not in AUPR_ESTIMATORS:
        raise ValueError(f"expected an AUPR among {', '.join(AUPR_ESTIMATORS)}, but got {aupr!r}")
    if fpr_point not in FPR_POINTS:
        raise ValueError(f"expected an FPR point among {', '.join(FPR_POINTS)}, but got {fpr_point!r}")
    ranking = rank_sets(inside, outside)
    metrics = {
        "fpr95": FPR_POINTS[fpr_point](ranking, 0.95),
        "detection_error": detection_error_of(ranking),
        "auroc": auroc_of(ranking),
        "aupr_in": aupr_in_of(ranking) if aupr == "average" else _trapezoid(ranking, _curve_in_terms),
        "aupr_out": aupr_error_of(ranking) if aupr == "average" else _trapezoid(ranking, _curve_out_terms),
    }
    return Detection(metrics, {key: _reason(ranking) for key, value in metrics.items() if value is None})


def rank_sets(inside: ArrayLike, outside: ArrayLike) -> Ranking:
    """Both sets sorted together, once for all metrics."""
    scores = as_scores(inside, "inside"), as_scores(outside, "outside")
    flags = np.repeat([True, False], [len(scores[0]), len(scores[1])])
    return rank(np.concatenate(scores), flags)


def _reason(ranking: Ranking) -> str:
    return (
        "needs images from inside and outside the distribution,"
        f" but got {ranking.num_correct} and {ranking.num_wrong}"
    )


def detection_error_of(ranking: Ranking) -> float | None:
    """The smallest mean of the rejected share of the inside and the accepted share of the outside.

    Accepting nothing counts as a threshold, so the error is at most one half.
    """
    if not ranking.has_both:
        return None
    lowest = 0.5
    for accepted, wrong in ranking.steps():
        missed = 1 - (accepted - wrong) / ranking.num_correct
        lowest = min(lowest, float(((missed + wrong / ranking.num_wrong) / 2).min()))
    return lowest


def aupr_in_of(ranking: Ranking) -> float | None:
    """Average precision of detecting the inside from the highest score down."""
    if not ranking.has_both:
        return None
    return sum_over_steps(ranking, areas.aupr_correct_terms) / ranking.num_correct


Terms = Callable[[Ints, Ints, Ints, Ints, Ints, Ints], Floats]


def _trapezoid(ranking: Ranking, terms: Terms) -> float | None:
    if not ranking.has_both:
        return None
    return sum_over_steps(ranking, partial(terms, np.array(ranking.num_correct), np.array(ranking.num_wrong)))


def _curve_in_terms(
    num_in: Ints, num_out: Ints, accepted_before: Ints, wrong_before: Ints, accepted: Ints, wrong: Ints
) -> Floats:
    """Area under precision over recall of the inside; precision is 1 before anything is accepted."""
    gained = (accepted - wrong) - (accepted_before - wrong_before)
    precision = _share(accepted - wrong, accepted) + _share(accepted_before - wrong_before, accepted_before)
    return gained / num_in * precision / 2


def _curve_out_terms(
    num_in: Ints, num_out: Ints, accepted_before: Ints, wrong_before: Ints, accepted: Ints, wrong: Ints
) -> Floats:
    """The same for the outside, flagged from the lowest score up."""
    flagged, flagged_before = num_in + num_out - accepted_before, num_in + num_out - accepted
    precision = _share(num_out - wrong_before, flagged) + _share(num_out - wrong, flagged_before)
    return (wrong - wrong_before) / num_out * precision / 2


def _share(part: Ints, whole: Ints) -> Floats:
    return np.where(whole > 0, part / np.maximum(whole, 1), 1.0)


@dataclass(frozen=True)
class RocCurve:
    """Accepted shares of the outside (fpr) and the inside (tpr) at falling thresholds, from (0, 0) to (1, 1)."""

    fpr: Floats
    tpr: Floats


def roc_curve(inside: ArrayLike, outside: ArrayLike, *, limit: int | None = None) -> RocCurve:
    """The ROC curve at all distinct scores, or at about `limit` of them.

    >>> roc_curve([3.0, 2.0], [1.0, 2.5]).tpr.tolist()
    [0.0, 0.5, 0.5, 1.0, 1.0]
    """
    ranking = rank_sets(inside, outside)
    if not ranking.has_both:
        raise ValueError(f"expected a ROC curve of two sets; it {_reason(ranking)}")
    curve = curve_of(ranking, limit)
    right = curve.accepted - curve.wrong
    return RocCurve(
        np.concatenate([[0.0], curve.wrong / ranking.num_wrong]),
        np.concatenate([[0.0], right / ranking.num_correct]),
    )

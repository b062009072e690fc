"""Ranking metrics: does the confidence rank right predictions above wrong ones?

Every metric here is a sum over the *steps* of one sorted pass: at each distinct confidence, from the surest
down, the number of predictions accepted so far and the number of wrong ones among them. Ties are one step, so
no result depends on the order of rows. Confidence may be any score, higher = surer; sums are in float64.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from confrank.metrics import areas
from confrank.metrics.areas import Amounts
from confrank.metrics.arrays import TOLERANCE, Array, ArrayLike, Flags, Floats, Ints, chunks, scores_and_flags
from confrank.metrics.weights import WeightedRanking, as_weights, weighted_ranking

AurcEstimator = Literal["expected", "trapezoid", "thresholds"]
FprPoint = Literal["at_least", "nearest"]


@dataclass(frozen=True)
class Ranking:
    """Predictions sorted by confidence: integer keys of the confidence bits, with the flag `wrong` as lowest bit.

    Sorting packed integers is several times faster than any argsort. A sign bit would leave no room for the
    flag, so the two signs are sorted separately: `positive` ascending, `negative` (magnitudes) ascending.
    """

    positive: Array
    negative: Array
    num_wrong: int

    @property
    def num_samples(self) -> int:
        return len(self.positive) + len(self.negative)

    @property
    def num_correct(self) -> int:
        return self.num_samples - self.num_wrong

    @property
    def has_both(self) -> bool:
        """Whether there are both right and wrong predictions."""
        return 0 < self.num_wrong < self.num_samples

    def steps(self) -> Iterator[tuple[Amounts, Amounts]]:
        """Blocks of (accepted, wrong): cumulative counts at each distinct confidence, surest first."""
        accepted = wrong = 0
        for keys in (self.positive[::-1], self.negative):
            for rows in chunks(len(keys)):
                # One extra key shows whether the last step continues in the next block.
                block = keys[rows.start : rows.stop + 1]
                ends = np.flatnonzero((block[1:] ^ block[:-1]) > 1)
                if rows.stop == len(keys):
                    ends = np.append(ends, len(block) - 1)
                cumulative = np.cumsum(block[: rows.stop - rows.start] & 1, dtype=np.int64)
                if len(ends):
                    yield accepted + ends + 1, wrong + cumulative[ends]
                accepted += len(cumulative)
                wrong += int(cumulative[-1])

    def confidence_at(self, position: Ints) -> Floats:
        """The confidence of the predictions at these positions; position 0 is the surest."""
        confidence = np.empty(len(position))
        high = position < len(self.positive)
        confidence[high] = _values(self.positive[len(self.positive) - 1 - position[high]])
        confidence[~high] = -_values(self.negative[position[~high] - len(self.positive)])
        return confidence


AnyRanking = Ranking | WeightedRanking


def ranked(confidence: ArrayLike, correct: ArrayLike, sample_weight: ArrayLike | None = None) -> AnyRanking:
    """`rank`, or a ranking by weight if there are weights [n]."""
    if sample_weight is None:
        return rank(confidence, correct)
    scores, flags = scores_and_flags(confidence, correct)
    return weighted_ranking(scores, flags, as_weights(sample_weight, len(flags)))


def rank(confidence: ArrayLike, correct: ArrayLike) -> Ranking:
    """Sort `confidence` [n] with `correct` [n] once; every ranking metric is then one cheap pass."""
    scores, flags = scores_and_flags(confidence, correct)
    num_wrong = len(flags) - int(np.count_nonzero(flags))
    if not len(scores) or scores.min() >= 0:
        return Ranking(_sorted_keys(scores, flags), _sorted_keys(scores[:0], flags[:0]), num_wrong)
    negative = scores < 0
    return Ranking(
        _sorted_keys(scores[~negative], flags[~negative]),
        _sorted_keys(scores[negative], flags[negative]),
        num_wrong,
    )


def _sorted_keys(scores: Array, flags: Flags) -> Array:
    """Magnitudes as integers, shifted over the sign bit, with the flag `wrong` in the lowest bit; ascending."""
    unsigned = np.uint32 if scores.dtype == np.float32 else np.uint64
    keys: Array = np.empty(len(scores), dtype=unsigned)
    for rows in chunks(len(scores)):
        # IEEE magnitudes sort like integers; the shift drops the sign, so -0.0 and 0.0 have the same key.
        np.left_shift(np.ascontiguousarray(scores[rows]).view(unsigned), 1, out=keys[rows])
        keys[rows] |= ~flags[rows]
    keys.sort()
    return keys


def _values(keys: Array) -> Array:
    return (keys >> 1).view(np.float32 if keys.dtype == np.uint32 else np.float64)


def sum_over_steps(ranking: AnyRanking, term: Callable[[Amounts, Amounts, Amounts, Amounts], Floats]) -> float:
    """The sum of `term(accepted before, wrong before, accepted, wrong)` over all steps."""
    total, accepted_before, wrong_before = 0.0, 0, 0
    for accepted, wrong in ranking.steps():
        before = areas.shifted(accepted, accepted_before), areas.shifted(wrong, wrong_before)
        total += float(term(*before, accepted, wrong).sum())
        accepted_before, wrong_before = accepted[-1], wrong[-1]
    return total


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
        reached = (accepted - wrong) / ranking.num_correct >= tpr - rounding_of(accepted)
        if reached.any():
            return float(wrong[reached.argmax()] / ranking.num_wrong)
    raise AssertionError("the last step accepts everything")


def fpr_nearest_tpr_of(ranking: AnyRanking, tpr: float = 0.95) -> float | None:
    """Share of the errors accepted where the accepted share of the right ones is nearest to `tpr`."""
    if not ranking.has_both:
        return None
    gap, rate = tpr, 0.0  # before anything is accepted
    for accepted, wrong in ranking.steps():
        gaps = np.abs((accepted - wrong) / ranking.num_correct - tpr)
        if len(gaps) and gaps.min() < gap:
            gap, rate = float(gaps.min()), float(wrong[gaps.argmin()] / ranking.num_wrong)
    return rate


FPR_POINTS: dict[str, Callable[[AnyRanking, float], float | None]] = {
    "at_least": fpr_at_tpr_of,
    "nearest": fpr_nearest_tpr_of,
}


def rounding_of(amounts: Amounts) -> float:
    """How far a share of these amounts may be off: counts are exact, sums of weights are not."""
    return 0.0 if amounts.dtype.kind == "i" else TOLERANCE


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
    With weights [n], scaled to mean 1, k takes all values between 0 and n: see docs/concepts/metrics.md.

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


def _threshold_aurc(curve: "RiskCoverageCurve") -> float | None:
    if not len(curve.risk):
        return None
    widths = np.diff(curve.coverage, prepend=0)
    return float(np.dot(widths, (curve.risk + np.append(curve.risk[:1], curve.risk[:-1])) / 2))


def e_aurc(confidence: ArrayLike, correct: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float | None:
    """AURC minus that of a perfect ranking at the same error rate r, r + (1 - r) ln(1 - r).

    >>> round(e_aurc([0.7, 0.6, 0.8], [True, False, True]), 4)
    0.0481
    """
    return e_aurc_of(ranked(confidence, correct, sample_weight))


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

    Use `point` "nearest" to compare with published numbers: the threshold whose share of right predictions is nearest
    to `tpr`, above or below it, as in the code of the paper; of two equally near, the higher one.

    >>> fpr_at_tpr([0.7, 0.9, 0.8], [True, False, True])
    1.0
    """
    if not 0 < tpr <= 1:
        raise ValueError(f"expected tpr in (0, 1], but got {tpr}")
    if point not in FPR_POINTS:
        raise ValueError(f"expected a point among {', '.join(FPR_POINTS)}, but got {point!r}")
    return FPR_POINTS[point](ranked(confidence, correct, sample_weight), tpr)


@dataclass(frozen=True)
class RiskCoverageCurve:
    """For each threshold, from the highest down: how many predictions it accepts and how many of these are wrong.

    With sample weights, there are also their sums; coverage and risk are shares of weight.
    """

    threshold: Floats
    accepted: Ints
    wrong: Ints
    num_samples: int
    num_wrong: int
    accepted_weight: Floats | None = None
    wrong_weight: Floats | None = None

    @property
    def coverage(self) -> Floats:
        if self.accepted_weight is None:
            return self.accepted / max(1, self.num_samples)
        return self.accepted_weight / self.accepted_weight[-1:]

    @property
    def amounts(self) -> tuple[Amounts, Amounts]:
        """Accepted and wrong predictions at each threshold: sums of weights if there are any, otherwise numbers."""
        if self.accepted_weight is None or self.wrong_weight is None:
            return self.accepted, self.wrong
        return self.accepted_weight, self.wrong_weight

    @property
    def risk(self) -> Floats:
        accepted, wrong = self.amounts
        return wrong / areas.at_least_some(accepted)

    def at_coverage(self, coverage: float) -> int:
        """Position of the largest threshold that accepts at least this share."""
        if self.accepted_weight is not None:
            return int(np.searchsorted(self.coverage, coverage - 1e-9))
        return int(np.searchsorted(self.accepted, np.ceil(coverage * self.num_samples - 1e-9)))

    def last_accepted(self, threshold: Floats | float) -> Ints:
        """Position of the last point whose predictions `at_or_above` accepts; -1 if it accepts none.

        `accepted` and `wrong` at this position are what the threshold does to these predictions.
        """
        return np.searchsorted(-self.threshold, TOLERANCE - np.asarray(threshold), side="right") - 1

    def taken(self, positions: Ints) -> "RiskCoverageCurve":
        """The curve at these positions only."""
        names = ("threshold", "accepted", "wrong", "accepted_weight", "wrong_weight")
        parts: dict[str, Any] = {name: getattr(self, name) for name in names}
        return replace(self, **{name: values[positions] for name, values in parts.items() if values is not None})


def risk_coverage_curve(
    confidence: ArrayLike, correct: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> RiskCoverageCurve:
    """The risk-coverage curve at its distinct thresholds (accept confidence >= threshold).

    >>> risk_coverage_curve([0.5, 0.25, 0.5], [True, False, False]).risk.round(3).tolist()
    [0.5, 0.667]
    """
    return curve_of(ranked(confidence, correct, sample_weight))


def curve_of(ranking: AnyRanking, limit: int | None = None) -> RiskCoverageCurve:
    """The curve at all distinct thresholds, or at most `limit` + 1 of them, evenly spread, with first and last.

    Each point is exact. Memory grows with the number of points returned, not with the number of predictions.
    """
    if isinstance(ranking, WeightedRanking):
        return _weighted_curve(ranking, limit)
    spacing = 1 if limit is None else max(1, -(-ranking.num_samples // limit))
    points, last = [(np.empty(0, dtype=np.int64),) * 2], 0
    for accepted, wrong in ranking.steps():
        # Take the first step in each cell of the grid, and the last step.
        taken = np.diff((accepted - 1) // spacing, prepend=-1 if not last else (last - 1) // spacing) > 0
        taken |= accepted == ranking.num_samples
        last = int(accepted[-1])
        points.append((accepted[taken], wrong[taken]))
    accepted, wrong = (np.concatenate(parts) for parts in zip(*points, strict=True))
    threshold = ranking.confidence_at(accepted - 1)
    return RiskCoverageCurve(threshold, accepted, wrong, ranking.num_samples, ranking.num_wrong)


def has_near_ties(curve: RiskCoverageCurve, ranking: Ranking) -> bool:
    """Whether `at_or_above` accepts further predictions at a threshold of the curve: those just below it."""
    following = ranking.confidence_at(np.minimum(curve.accepted, ranking.num_samples - 1))
    return bool(((curve.threshold - following <= TOLERANCE) & (curve.accepted < ranking.num_samples)).any())


def _weighted_curve(ranking: WeightedRanking, limit: int | None) -> RiskCoverageCurve:
    rows, wrong_rows = ranking.rows, ranking.wrong_rows
    num_samples, num_wrong = (int(counts[-1]) if len(counts) else 0 for counts in (rows, wrong_rows))
    curve = RiskCoverageCurve(
        ranking.threshold, rows, wrong_rows, num_samples, num_wrong, ranking.right + ranking.wrong, ranking.wrong
    )
    if limit is None or len(rows) <= limit:
        return curve
    cells = np.floor(curve.coverage * limit * (1 - 1e-12))
    taken = np.diff(cells, prepend=-1) > 0
    taken[-1] = True
    return curve.taken(np.flatnonzero(taken))

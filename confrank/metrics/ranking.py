"""Does the confidence put right predictions above wrong ones?

Every metric here is a sum over the *steps* of one sorted pass: at each distinct confidence, from the surest
down, how many predictions are accepted so far and how many of those are wrong. Ties are one step, so no
result depends on the order of rows. Confidence may be any score, higher = surer; sums are in float64.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from confrank.metrics.arrays import Array, as_flags, as_scores, chunks, same_length

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ranking:
    """Predictions sorted by confidence: integer keys that hold the confidence bits and, lowest, whether it is wrong.

    Sorting packed integers is several times faster than any argsort. A sign bit would leave no room for the
    flag, so scores of either sign are sorted apart: `positive` ascending, `negative` (magnitudes) ascending.
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

    def steps(self) -> Iterator[tuple[Counts, Counts]]:
        """Blocks of (accepted, wrong): cumulative counts at each distinct confidence, surest first."""
        accepted = wrong = 0
        for keys in (self.positive[::-1], self.negative):
            for rows in chunks(len(keys)):
                # One key more than the block shows whether its last step goes on in the next one.
                block = keys[rows.start : rows.stop + 1]
                ends = np.flatnonzero((block[1:] ^ block[:-1]) > 1)
                if rows.stop == len(keys):
                    ends = np.append(ends, len(block) - 1)
                cumulative = np.cumsum(block[: rows.stop - rows.start] & 1, dtype=np.int64)
                if len(ends):
                    yield accepted + ends + 1, wrong + cumulative[ends]
                accepted += len(cumulative)
                wrong += int(cumulative[-1])

    def thresholds(self) -> Floats:
        """The distinct confidences, surest first: the thresholds of `steps`."""
        parts = [_values(self.positive)[::-1], -_values(self.negative)]
        values = np.concatenate(parts).astype(np.float64)
        return values[np.append(values[1:] != values[:-1], True)] if len(values) else values


def rank(confidence: object, correct: object) -> Ranking:
    """Sort once; every ranking metric is then one cheap pass. `confidence` [n] and `correct` [n]."""
    scores, flags = as_scores(confidence), as_flags(correct)
    same_length(confidence=scores, correct=flags)
    num_wrong = len(flags) - int(np.count_nonzero(flags))
    if not len(scores) or scores.min() >= 0:
        return Ranking(_sorted_keys(scores, flags), _sorted_keys(scores[:0], flags[:0]), num_wrong)
    negative = scores < 0
    return Ranking(
        _sorted_keys(scores[~negative], flags[~negative]),
        _sorted_keys(scores[negative], flags[negative]),
        num_wrong,
    )


def _sorted_keys(scores: Array, flags: NDArray[np.bool_]) -> Array:
    """Magnitudes as integers, shifted over the sign bit, with the flag `wrong` in the lowest bit; ascending."""
    unsigned = np.uint32 if scores.dtype == np.float32 else np.uint64
    keys: Array = np.empty(len(scores), dtype=unsigned)
    for rows in chunks(len(scores)):
        # IEEE magnitudes order like integers; the shift drops the sign, so -0.0 and 0.0 are one key.
        np.left_shift(np.ascontiguousarray(scores[rows]).view(unsigned), 1, out=keys[rows])
        keys[rows] |= ~flags[rows]
    keys.sort()
    return keys


def _values(keys: Array) -> Array:
    magnitudes: Array = (keys >> 1).view(np.float32 if keys.dtype == np.uint32 else np.float64)
    return magnitudes


def _previous(counts: Counts, before: int) -> Counts:
    shifted = np.empty_like(counts)
    shifted[0], shifted[1:] = before, counts[:-1]
    return shifted


def aurc_of(ranking: Ranking) -> float | None:
    """The mean over k of the error rate among the k surest, expected over all orders of tied predictions.

    A step of m predictions, e of them wrong, after a with E wrong, adds e + (E - e a/m) (H(a+m) - H(a)).
    """
    total, accepted_before, wrong_before = 0.0, 0, 0
    for accepted, wrong in ranking.steps():
        contribution = wrong / accepted
        a, e_before = _previous(accepted, accepted_before), _previous(wrong, wrong_before)
        tied = np.flatnonzero(accepted - a > 1)
        if len(tied):
            a, e_before = a[tied], e_before[tied]
            m, e = accepted[tied] - a, wrong[tied] - e_before
            contribution[tied] = e + (e_before - e * a / m) * _harmonic_gap(a, accepted[tied])
        total += float(contribution.sum())
        accepted_before, wrong_before = int(accepted[-1]), int(wrong[-1])
    return total / ranking.num_samples if ranking.num_samples else None


_SMALL = 64
_HARMONIC = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, _SMALL + 1))])


def _harmonic_gap(low: Counts, high: Counts) -> Floats:
    """H(high) - H(low) for harmonic numbers H: a table up to 64, then ln(n + 1/2) with its correction terms."""
    x, y = np.maximum(low, _SMALL) + 0.5, np.maximum(high, _SMALL) + 0.5
    inverse_x, inverse_y = 1 / (x * x), 1 / (y * y)
    correction = (inverse_y - inverse_x) / 24 - 7 * (inverse_y * inverse_y - inverse_x * inverse_x) / 960
    exact = _HARMONIC[np.minimum(high, _SMALL)] - _HARMONIC[np.minimum(low, _SMALL)]
    gap: Floats = exact + np.log1p((y - x) / x) + correction
    return gap


def e_aurc_of(ranking: Ranking) -> float | None:
    area = aurc_of(ranking)
    return None if area is None else area - best_aurc(ranking.num_wrong / ranking.num_samples)


def best_aurc(risk: float) -> float:
    """The AURC of a perfect ranking at this error rate, in the published (large n) form; 1 at risk 1."""
    return risk + (1 - risk) * float(np.log1p(-risk)) if risk < 1 else 1.0


def augrc_of(ranking: Ranking) -> float | None:
    """Area under (wrong accepted / n) over coverage, by straight lines from (0, 0); exact under ties."""
    area, accepted_before, wrong_before = 0.0, 0, 0
    for accepted, wrong in ranking.steps():
        widths = accepted - _previous(accepted, accepted_before)
        area += float((widths * (wrong + _previous(wrong, wrong_before)) / 2).sum())
        accepted_before, wrong_before = int(accepted[-1]), int(wrong[-1])
    return area / ranking.num_samples**2 if ranking.num_samples else None


def aupr_error_of(ranking: Ranking) -> float | None:
    """Average precision of finding the errors from the least confident end."""
    if not (ranking.num_wrong and ranking.num_correct):
        return None
    total, accepted_before, wrong_before = 0.0, 0, 0
    for accepted, wrong in ranking.steps():
        before = _previous(wrong, wrong_before)
        flagged = ranking.num_samples - _previous(accepted, accepted_before)
        total += float(((wrong - before) * ((ranking.num_wrong - before) / flagged)).sum())
        accepted_before, wrong_before = int(accepted[-1]), int(wrong[-1])
    return total / ranking.num_wrong


def auroc_of(ranking: Ranking) -> float | None:
    """Chance that a right prediction is surer than a wrong one, ties counting half."""
    if not (ranking.num_wrong and ranking.num_correct):
        return None
    won, wrong_before, right_before = 0.0, 0, 0
    for accepted, wrong in ranking.steps():
        right = accepted - wrong
        gained = right - _previous(right, right_before)
        won += float((gained * (ranking.num_wrong - (wrong + _previous(wrong, wrong_before)) / 2)).sum())
        wrong_before, right_before = int(wrong[-1]), int(right[-1])
    return won / (ranking.num_wrong * ranking.num_correct)


def fpr_at_tpr_of(ranking: Ranking, tpr: float = 0.95) -> float | None:
    """Share of the errors accepted at the largest threshold that accepts at least `tpr` of the right ones."""
    if not (ranking.num_wrong and ranking.num_correct):
        return None
    for accepted, wrong in ranking.steps():
        reached = (accepted - wrong) / ranking.num_correct >= tpr
        if reached.any():
            return float(wrong[reached.argmax()] / ranking.num_wrong)
    raise AssertionError("the last step accepts everything")


def aurc(confidence: object, correct: object, estimator: str = "expected") -> float | None:
    """Area under the risk-coverage curve, lower is better; None for no predictions.

    "expected" is the mean error rate among the k surest, over k = 1..n, and exact under ties. For comparison
    with published numbers there are "trapezoid" (straight lines from coverage 1/n to 1, divided by that width;
    ties in row order, as in torch-uncertainty) and "thresholds" (straight lines between distinct confidences,
    level down to coverage 0, as in fd-shifts).

    >>> aurc([0.7, 0.6, 0.8], [True, False, True])
    0.1111111111111111
    >>> round(aurc([0.7, 0.6, 0.8], [True, False, True], "trapezoid"), 4)
    0.0833
    >>> round(aurc([0.7, 0.6, 0.8], [True, False, True], "thresholds"), 4)
    0.0556
    """
    if estimator == "expected":
        return aurc_of(rank(confidence, correct))
    if estimator == "trapezoid":
        return _trapezoid_aurc(as_scores(confidence), as_flags(correct))
    if estimator == "thresholds":
        return _threshold_aurc(risk_coverage_curve(confidence, correct))
    raise ValueError(f"expected an estimator among expected, trapezoid, thresholds, but got {estimator!r}")


def _trapezoid_aurc(scores: Array, flags: NDArray[np.bool_]) -> float | None:
    same_length(confidence=scores, correct=flags)
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


def e_aurc(confidence: object, correct: object) -> float | None:
    """AURC minus that of a perfect ranking at the same error rate r, r + (1 - r) ln(1 - r).

    >>> round(e_aurc([0.7, 0.6, 0.8], [True, False, True]), 4)
    0.0481
    """
    return e_aurc_of(rank(confidence, correct))


def augrc(confidence: object, correct: object) -> float | None:
    """Area under the generalised risk (accepted errors / n) over coverage; lower is better.

    >>> round(augrc([0.7, 0.6, 0.8], [True, False, True]), 4)
    0.0556
    """
    return augrc_of(rank(confidence, correct))


def aupr_error(confidence: object, correct: object) -> float | None:
    """Average precision with errors as positives and -confidence as score; None without both kinds.

    >>> aupr_error([0.7, 0.6, 0.8], [True, False, True])
    1.0
    """
    return aupr_error_of(rank(confidence, correct))


def auroc(confidence: object, correct: object) -> float | None:
    """Area under the ROC curve of confidence for being right; None without both kinds.

    >>> auroc([0.7, 0.6, 0.8], [True, False, True])
    1.0
    """
    return auroc_of(rank(confidence, correct))


def fpr_at_tpr(confidence: object, correct: object, tpr: float = 0.95) -> float | None:
    """Share of errors accepted when at least `tpr` of the right predictions are; None without both kinds.

    >>> fpr_at_tpr([0.7, 0.9, 0.8], [True, False, True])
    1.0
    """
    if not 0 < tpr <= 1:
        raise ValueError(f"expected tpr in (0, 1], but got {tpr}")
    return fpr_at_tpr_of(rank(confidence, correct), tpr)


@dataclass(frozen=True)
class RiskCoverageCurve:
    """At each distinct confidence, surest first: the threshold, the share accepted, the error rate among those."""

    threshold: Floats
    coverage: Floats
    risk: Floats


def risk_coverage_curve(confidence: object, correct: object) -> RiskCoverageCurve:
    """The risk-coverage curve at its distinct thresholds (accept confidence >= threshold).

    >>> risk_coverage_curve([0.5, 0.25, 0.5], [True, False, False]).risk.round(3).tolist()
    [0.5, 0.667]
    """
    return curve_of(rank(confidence, correct))


def curve_of(ranking: Ranking) -> RiskCoverageCurve:
    blocks = list(ranking.steps())
    accepted = np.concatenate([block[0] for block in blocks]) if blocks else np.empty(0)
    wrong = np.concatenate([block[1] for block in blocks]) if blocks else np.empty(0)
    return RiskCoverageCurve(
        ranking.thresholds(), accepted / max(1, ranking.num_samples), wrong / np.maximum(accepted, 1)
    )

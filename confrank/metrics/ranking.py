"""Predictions sorted by confidence, once for all ranking metrics.

The sorted pass goes through *steps*: at each distinct confidence, from the surest down, the number of predictions
accepted so far and the number of wrong ones among them. Ties are one step, so no result depends on the order of rows.
Confidence may be any score, higher = surer; sums are in float64.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from confrank.metrics import areas
from confrank.metrics.areas import Amounts
from confrank.metrics.inputs import Array, ArrayLike, Flags, Floats, Ints, as_weights, chunks, scores_and_flags


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


@dataclass(frozen=True)
class WeightedRanking:
    """The distinct confidences from the surest down, with sums of weights and numbers of rows accepted so far.

    `right` and `wrong` are sums of weights: of counts as they are, of fractions scaled to mean 1. `rows` and
    `wrong_rows` are numbers of rows.
    """

    threshold: Floats
    right: Floats
    wrong: Floats
    rows: Ints
    wrong_rows: Ints

    @property
    def num_samples(self) -> float:
        """The sum of all weights."""
        return self.num_correct + self.num_wrong

    @property
    def num_correct(self) -> float:
        return float(self.right[-1]) if len(self.right) else 0.0

    @property
    def num_wrong(self) -> float:
        return float(self.wrong[-1]) if len(self.wrong) else 0.0

    @property
    def has_both(self) -> bool:
        """Whether there are both right and wrong predictions of weight above 0."""
        return self.num_correct > 0 and self.num_wrong > 0

    def steps(self) -> Iterator[tuple[Amounts, Amounts]]:
        """(accepted, wrong): cumulative weights at each distinct confidence, surest first."""
        if len(self.right):
            yield self.right + self.wrong, self.wrong


AnyRanking = Ranking | WeightedRanking


def ranked(confidence: ArrayLike, correct: ArrayLike, sample_weight: ArrayLike | None = None) -> AnyRanking:
    """`rank`, or a ranking by weight if there are weights [n]."""
    if sample_weight is None:
        return rank(confidence, correct)
    scores, flags = scores_and_flags(confidence, correct, sample_weight=sample_weight)
    return weighted_ranking(scores, flags, as_weights(sample_weight, len(flags)))


def weighted_ranking(scores: Array, flags: Flags, weights: Floats) -> WeightedRanking:
    """Sort `scores` [n] from the highest down and sum the weights (`as_weights`) of right and wrong predictions."""
    rows = np.flatnonzero(weights)  # the others are absent
    order = rows[np.argsort(-scores[rows], kind="stable")]
    ordered, right, weights = scores[order], flags[order], weights[order]
    if weights.max(initial=0) <= 1:  # fractions, or counts of 1, which stay as they are
        weights = weights * (len(weights) / max(1, weights.sum()))
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)) if len(ordered) else order
    return WeightedRanking(
        ordered[ends].astype(np.float64),
        np.cumsum(np.where(right, weights, 0))[ends],
        np.cumsum(np.where(right, 0, weights))[ends],
        ends + 1,
        np.cumsum(~right, dtype=np.int64)[ends],
    )


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

"""Sample weights: checked, and a ranking in which each prediction counts with its weight."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from confrank.metrics.areas import Amounts
from confrank.metrics.inputs import Array, ArrayLike, Flags, Floats, Ints, as_scores


def as_weights(values: ArrayLike, num_samples: int) -> Floats:
    """Weights [n] as float64: whole numbers are counts and stay as they are, others are divided by the largest.

    So the fractions of a few of the rows are not mistaken for counts, unless all are equal. Numbers too large to sum
    exactly are divided too. A row of weight 0 is absent.

    >>> as_weights([1, 3, 0], 3).tolist(), as_weights([0.5, 2, 0], 3).tolist()
    ([1.0, 3.0, 0.0], [0.25, 1.0, 0.0])
    """
    weights = as_scores(values, "sample_weight").astype(np.float64)
    if len(weights) != num_samples:
        raise ValueError(f"expected a weight for each of {num_samples:,} rows, but got {len(weights):,} weights")
    if not num_samples:
        return weights
    lowest, highest = float(weights.min()), float(weights.max())
    if lowest < 0:
        row = int(weights.argmin())
        raise ValueError(f"expected weights of at least 0, but got {lowest:g} in row {row}")
    if highest == 0:
        raise ValueError("expected a weight above 0, but all weights are 0")
    if highest * num_samples <= 2**53 and (weights == np.floor(weights)).all():
        return weights
    return weights / highest


def weighted_mean(values: Array, weights: Floats) -> float:
    return float(np.dot(weights, values) / weights.sum())


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

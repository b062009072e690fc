"""Sample weights: checked and scaled, and a ranking in which each prediction counts with its weight."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from confrank.metrics.areas import Amounts
from confrank.metrics.inputs import Array, ArrayLike, Flags, Floats, Ints, as_scores


def as_weights(values: ArrayLike, num_samples: int) -> Floats:
    """Weights [n] as float64, scaled to mean 1; a row of weight 0 counts as absent and does not enter the mean.

    >>> as_weights([1, 3, 0], 3).tolist()
    [0.5, 1.5, 0.0]
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
    return scaled(weights / highest)  # first below 1, so that no sum overflows


def scaled(weights: Floats) -> Floats:
    """Weights with mean 1 over the rows of weight above 0. [n] -> [n]"""
    return weights * (np.count_nonzero(weights) / weights.sum()) if len(weights) else weights


def weighted_mean(values: Array, weights: Floats) -> float:
    return float(np.dot(weights, values) / weights.sum())


@dataclass(frozen=True)
class WeightedRanking:
    """The distinct confidences from the surest down, with sums of weights and numbers of rows accepted so far.

    `right` and `wrong` are sums of weights, scaled to mean 1; `rows` and `wrong_rows` are counts.
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
    ordered, right, weights = scores[order], flags[order], scaled(weights[order])
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)) if len(ordered) else order
    return WeightedRanking(
        ordered[ends].astype(np.float64),
        np.cumsum(np.where(right, weights, 0))[ends],
        np.cumsum(np.where(right, 0, weights))[ends],
        ends + 1,
        np.cumsum(~right, dtype=np.int64)[ends],
    )

"""Does a confidence of 0.8 mean that 80% are right?"""

from dataclasses import dataclass

import numpy as np

from confrank.errors import aligned
from confrank.metrics.arrays import (
    Array,
    ArrayLike,
    Classes,
    Floats,
    Ints,
    as_probabilities,
    chunks,
    scores_and_flags,
)
from confrank.metrics.labels import labels_for
from confrank.metrics.weights import as_weights


@dataclass(frozen=True)
class ReliabilityBins:
    """Equal-width bins of [0, 1]: `edges` [bins+1], and per bin the count, mean confidence and accuracy.

    The means of an empty bin are NaN. With sample weights, the means are weighted, and `weight` [bins] is their sum.
    """

    edges: Floats
    count: Ints
    confidence: Floats
    accuracy: Floats
    weight: Floats | None = None

    def __repr__(self) -> str:
        rows = [["confidence", "n", "mean confidence", "accuracy"]]
        rows += [
            [f"{low:.4g} to {high:.4g}", f"{count:,}", *(f"{mean:.4f}" if count else "-" for mean in means)]
            for low, high, count, *means in zip(
                self.edges, self.edges[1:], self.count, self.confidence, self.accuracy, strict=False
            )
        ]
        return aligned(rows)

    @property
    def size(self) -> Array:
        """Number or weight of the predictions in each bin."""
        return self.count if self.weight is None else self.weight


def reliability_bins(
    confidence: ArrayLike, correct: ArrayLike, bins: int = 15, *, sample_weight: ArrayLike | None = None
) -> ReliabilityBins:
    """Sort predictions into bins (lo, hi] of confidence, the first one closed at 0.

    >>> reliability_bins([0.1, 0.5, 0.9], [False, True, True], bins=2).accuracy.tolist()
    [0.5, 1.0]
    """
    scores, flags = scores_and_flags(confidence, correct, sample_weight=sample_weight)
    weights = None
    if sample_weight is not None:
        weights = as_weights(sample_weight, len(scores))
        rows = weights > 0
        scores, flags, weights = scores[rows], flags[rows], weights[rows]
    check_bins(bins)
    check_shares(scores)
    bins = int(bins)  # a small numpy integer type would overflow
    edges = bin_edges(bins)
    count, confidence_sum, correct_sum = np.zeros(bins, dtype=np.int64), np.zeros(bins), np.zeros(bins)
    weight = np.zeros(bins)
    for chunk in chunks(len(scores)):
        part = scores[chunk].astype(np.float64)
        bin_of = bin_index(part, edges)
        count += np.bincount(bin_of, minlength=bins)
        right: Array = flags[chunk]
        if weights is not None:
            part, right = weights[chunk] * part, weights[chunk] * right
            weight += np.bincount(bin_of, weights=weights[chunk], minlength=bins)
        confidence_sum += np.bincount(bin_of, weights=part, minlength=bins)
        correct_sum += np.bincount(bin_of, weights=right, minlength=bins)
    total = count if weights is None else weight
    size = np.where(total > 0, total, np.nan)
    given = None if weights is None else weight
    return ReliabilityBins(edges, count, confidence_sum / size, correct_sum / size, given)


def check_bins(bins: int) -> None:
    """Raise if `bins` is not a positive integer."""
    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or bins < 1:
        raise ValueError(f"expected bins to be a positive integer, but got {bins!r}")


def check_shares(scores: Array) -> None:
    """Raise if scores [n] are not within [0, 1]."""
    if len(scores) and not (scores.min() >= 0 and scores.max() <= 1):
        raise ValueError(
            f"expected confidence within [0, 1] to bin it, but got values in [{scores.min()}, {scores.max()}];"
            " calibration is defined for probabilities only"
        )


def bin_edges(bins: int) -> Floats:
    """The floating-point numbers nearest to k / bins; `numpy.linspace` may be off by one unit."""
    return np.arange(bins + 1) / bins


def bin_index(confidence: Floats, edges: Floats) -> Ints:
    """Which bin (lo, hi] each confidence falls into."""
    return np.maximum(np.searchsorted(edges, confidence, side="left") - 1, 0)


def ece(
    confidence: ArrayLike, correct: ArrayLike, bins: int = 15, *, sample_weight: ArrayLike | None = None
) -> float | None:
    """Expected calibration error: the count-weighted mean of |accuracy - confidence| over the bins.

    None for no predictions; an error for scores outside [0, 1].

    >>> round(ece([0.1, 0.5, 0.9], [False, True, True]), 4)
    0.2333
    """
    return ece_of(reliability_bins(confidence, correct, bins, sample_weight=sample_weight))


def ece_of(bins: ReliabilityBins) -> float | None:
    total = bins.size.sum()
    filled = bins.size > 0
    surplus = ((bins.accuracy - bins.confidence) * bins.size)[filled]
    return float(mean_gap(surplus, total)) if total else None


def mean_gap(surplus: Floats, total: float | Floats) -> Floats:
    """ECE from each bin's sum of (correct - confidence), bins along the last axis."""
    gap: Floats = np.abs(surplus).sum(axis=-1) / total
    return gap


def adaptive_ece(confidence: ArrayLike, correct: ArrayLike, bins: int = 15) -> float | None:
    """ECE over bins of (nearly) equal numbers of predictions instead of equal widths (Nguyen & O'Connor, 2015).

    Equal confidences share a bin, so the result does not depend on the order of rows. None for no predictions; an
    error for scores outside [0, 1].

    >>> round(adaptive_ece([0.1, 0.5, 0.9, 0.9], [False, True, True, False], bins=2), 4)
    0.3
    """
    given, flags = scores_and_flags(confidence, correct)
    scores = given.astype(np.float64)
    check_bins(bins)
    check_shares(scores)
    if not len(scores):
        return None
    bin_of = np.searchsorted(equal_mass_edges(scores, int(bins)), scores, side="right")
    surplus: Floats = np.bincount(bin_of, weights=flags - scores).astype(np.float64)
    return float(mean_gap(surplus, len(scores)))


def equal_mass_edges(scores: Floats, bins: int) -> Floats:
    """Where bins of (nearly) equal numbers of scores [n] start, except for the first; equal scores share a bin.

    >>> equal_mass_edges(np.array([1.0, 2.0, 3.0, 4.0]), 2).tolist(), equal_mass_edges(np.ones(9), 3).tolist()
    ([3.0], [])
    """
    ordered = np.sort(scores)
    starts = np.arange(1, bins) * len(ordered) // bins
    inside = ordered[starts]
    return np.unique(inside[inside > ordered[0]])


def classwise_ece(probabilities: ArrayLike, label: Classes, bins: int = 15) -> float | None:
    """The mean over classes of the ECE of each class's probability against whether it is the label.

    Nixon et al. (2019) and Kull et al. (2019). Unlike `ece`, it looks at every class, not only at the predicted one.
    None for no predictions.

    >>> round(classwise_ece([[0.75, 0.25], [0.5, 0.5]], [0, 1]), 4)
    0.375
    """
    table = as_probabilities(probabilities)
    labels = labels_for(label, probabilities, probabilities=table)
    if not len(table):
        return None
    each = [ece(np.minimum(table[:, k], 1), labels == k, bins) for k in range(table.shape[1])]
    return float(np.mean([value for value in each if value is not None]))

"""Does a confidence of 0.8 mean that 80% are right?"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from confrank.errors import aligned
from confrank.metrics.inputs import (
    TOLERANCE,
    Array,
    ArrayLike,
    Classes,
    Flags,
    Floats,
    Ints,
    as_probabilities,
    as_weights,
    chunks,
    labels_for,
    scores_and_flags,
)

# Of the interval by test inversion.
NUM_DRAWS = 1000
STEPS = 8
# The proportions of the gaps are estimated, which costs some coverage; smaller tails restore it.
TAIL_FACTOR = 0.8


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


def ece_limits(bins: ReliabilityBins, level: float = 0.95, seed: int = 0) -> tuple[float, float] | None:
    """The limits of every ECE that is compatible with the estimate of these bins; None without predictions.

    The ECE adds up absolute gaps, so the noise of each bin raises it: even a calibrated model has a positive
    estimate. A bootstrap adds the same noise once more, so its interval is too high. Here a candidate ECE is accepted
    unless the estimate would be unusually small or large in a population with that ECE. The populations have the
    bins' shares and mean confidences; their gaps are the observed ones times a factor, and 0 for a calibrated model.
    The limits depend on nothing but the arguments.
    """
    observed = ece_of(bins)
    if observed is None:
        return None
    filled, tail = bins.count > 0, TAIL_FACTOR * (1 - level) / 2
    total = int(bins.count.sum())
    share, confidence = bins.count[filled] / total, bins.confidence[filled]
    family = _family(share, confidence, bins.accuracy[filled], total)
    counts = np.random.default_rng([seed, 0]).multinomial(total, share, NUM_DRAWS)

    def estimates(ece: float) -> Floats:
        right = np.random.default_rng([seed, 1]).binomial(counts, family.accuracy(ece))
        return mean_gap(right - counts * confidence, total)

    def not_too_small(ece: float) -> bool:  # the estimate, if this were the ECE
        return _share(estimates(ece) <= observed + TOLERANCE) >= tail

    def not_too_large(ece: float) -> bool:
        return _share(estimates(ece) >= observed - TOLERANCE) >= tail

    # Twice as far as the noise of 15 bins may move an estimate.
    reach = 4 / total**0.5
    low = 0.0 if not_too_large(0.0) else _boundary(not_too_large, observed, max(0.0, observed - reach), 0.0)
    largest = float(family.eces[-1])
    high = _boundary(not_too_small, observed, min(largest, observed + reach), largest)
    return low, high


@dataclass(frozen=True)
class _Family:
    """Populations with proportional gaps: each bin's gap for a factor of 1, and how large it can become.

    `eces` are those at `factors`, between which the ECE is linear in the factor: at each, a bin reaches its room.
    """

    confidence: Floats
    gap: Floats
    room: Floats
    factors: Floats
    eces: Floats

    def accuracy(self, ece: float) -> Floats:
        """The accuracy of each bin in the population with this ECE."""
        size = np.minimum(np.interp(ece, self.eces, self.factors) * np.abs(self.gap), self.room)
        inside: Floats = np.clip(self.confidence + np.sign(self.gap) * size, 0, 1)
        return inside


def _family(share: Floats, confidence: Floats, accuracy: Floats, total: int) -> _Family:
    # Two more successes and failures in each bin, as Agresti and Coull do: an observed accuracy of exactly 1 would
    # claim that no error is possible.
    gap = (total * share * accuracy + 2) / (total * share + 4) - confidence
    if not gap.any():
        gap = np.where(confidence < 0.5, 1.0, -1.0)
    room = np.where(gap > 0, 1 - confidence, confidence)
    size = np.abs(gap)
    factors = np.append(0.0, np.sort(np.divide(room, size, out=np.zeros_like(room), where=size > 0)))
    eces = np.minimum(factors[:, None] * size, room) @ share
    return _Family(confidence, gap, room, factors, eces)


def _share(events: Flags) -> float:
    """The add-one form, so that no event is impossible."""
    return (1 + int(np.count_nonzero(events))) / (1 + len(events))


def _boundary(accepted: Callable[[float], bool], inside: float, outside: float, farthest: float) -> float:
    """Where acceptance ends between `inside`, which is taken as accepted, and `farthest`; `outside` is a guess."""
    if accepted(outside):
        inside, outside = outside, farthest
        if inside == farthest or accepted(farthest):
            return farthest
    for _ in range(STEPS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if accepted(middle) else (inside, middle)
    return inside

"""An interval of the ECE by test inversion: every ECE that is compatible with the estimate.

The ECE adds up absolute gaps, so the noise of each bin raises it: even a calibrated model has a positive estimate.
A bootstrap adds the same noise once more, so its interval is too high. Here a candidate ECE is accepted unless the
estimate would be unusually small or large in a population with that ECE. The populations have the bins' shares and
mean confidences; their gaps are the observed ones times a factor, and 0 for a calibrated model.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from confrank.metrics.arrays import Flags, Floats
from confrank.metrics.calibration import ReliabilityBins, ece_of, mean_gap

NUM_DRAWS = 1000
STEPS = 8
# The proportions of the gaps are estimated, which costs some coverage; smaller tails restore it.
TAIL_FACTOR = 0.8
# Estimates closer than this are ties.
ROUNDING = 1e-12


def ece_limits(bins: ReliabilityBins, level: float = 0.95, seed: int = 0) -> tuple[float, float] | None:
    """The limits around the estimate of these bins.

    They depend on nothing but the arguments. None without predictions.
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
        return _share(estimates(ece) <= observed + ROUNDING) >= tail

    def not_too_large(ece: float) -> bool:
        return _share(estimates(ece) >= observed - ROUNDING) >= tail

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

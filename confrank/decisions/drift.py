"""An anytime-valid test of drift without labels: are new confidences distributed as at calibration?

Quantiles of the calibration confidences cut the line into bins. If new answers are exchangeable with the calibration
rows, the bins of the new answers are draws from a Polya urn: the next one falls into a bin with probability (slots of
the bin + earlier new answers in it) / (n + 1 + earlier new answers), where the slots are the gaps between the n
sorted calibration values. This is exact for any distribution, so the quantiles and their ranks are all that a policy
has to record. The gambler of `confrank.decisions.betting` stakes on tilts of this urn: more answers in low or in high
bins (`SHIFTS`), or at both ends or in the middle (`SPREADS`). Her capital ever reaches 1/alpha with probability at
most alpha, however often one looks. Ties with a recorded quantile are broken at random, as exactness requires.
"""

from dataclasses import dataclass

import numpy as np

from confrank.decisions.betting import first_alarm, log_capital
from confrank.decisions.guarantee import check_shares
from confrank.metrics.inputs import ArrayLike, Floats, Ints, as_scores

NUM_BINS = 40
SHIFTS = (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0)  # the density of the rank u in [0, 1] is proportional to exp(s (2u - 1))
SPREADS = (-1.0, 1.0)  # ... to exp(s (3 (2u - 1)^2 - 1) / 2)


@dataclass(frozen=True)
class Reference:
    """Quantiles of `num_samples` calibration confidences; how many of them are at most, and equal to, each value."""

    num_samples: int
    values: tuple[float, ...]
    at_most: tuple[int, ...]
    equal: tuple[int, ...]

    @property
    def slots(self) -> Ints:
        """The number of gaps between calibration values in each bin; their sum is `num_samples` + 1."""
        return np.diff(np.array([0, *self.at_most, self.num_samples + 1]))


def reference_of(confidence: ArrayLike, num_bins: int = NUM_BINS) -> Reference:
    """The quantiles that cut these confidences into bins of about equal size.

    >>> reference_of([0.1, 0.2, 0.3, 0.3, 0.9], 3)
    Reference(num_samples=5, values=(0.2, 0.3), at_most=(2, 4), equal=(1, 2))
    """
    ordered = np.sort(as_scores(confidence).astype(np.float64))
    if not len(ordered):
        raise ValueError("expected confidences to compare with, but got none")
    ranks = np.arange(1, num_bins) * (len(ordered) + 1) // num_bins
    values = np.unique(ordered[ranks[ranks > 0] - 1])
    at_most = np.searchsorted(ordered, values, side="right")
    equal = at_most - np.searchsorted(ordered, values, side="left")
    return Reference(len(ordered), tuple(values.tolist()), tuple(at_most.tolist()), tuple(equal.tolist()))


@dataclass(frozen=True)
class DriftTest:
    """A test of "confidences are distributed as at calibration"; positions count the new answers from 0.

    `log_e_value` [n] is the logarithm of the e-value after each answer, and `alarm` the first answer at which it
    reaches `line`, or None. `below` is the share of new answers in the lower half of the calibration confidences, and
    `expected` the share that calibration rows have there.
    """

    line: float
    log_e_value: Floats
    num_reference: int
    alarm: int | None
    below: float | None
    expected: float


def drift_test(confidence: ArrayLike, reference: Reference, *, alpha: float = 0.05, seed: int = 0) -> DriftTest:
    """Test new confidences [n] in the order of time against those that the decision was made on.

    While new answers are exchangeable with the calibration rows, it ever alarms with probability at most alpha.
    """
    check_shares(alpha=alpha)
    bins = _bins(as_scores(confidence).astype(np.float64), reference, seed)
    slots = reference.slots
    log_e_value = log_e_values(bins, slots)
    half = int(np.abs(np.cumsum(slots) - slots.sum() / 2).argmin())
    return DriftTest(
        1 / alpha,
        log_e_value,
        reference.num_samples,
        first_alarm(log_e_value, 1 / alpha),
        float((bins <= half).mean()) if len(bins) else None,
        float(slots[: half + 1].sum() / slots.sum()),
    )


def _bins(confidence: Floats, reference: Reference, seed: int) -> Ints:
    """The bin of each confidence; one equal to a quantile is above it as often as chance would order equal values."""
    values = np.array(reference.values)
    bins = np.searchsorted(values, confidence, side="left")
    random = np.random.default_rng(seed)
    highest = random.random(len(values)) ** (1 / np.array(reference.equal))  # of that many uniform tie-breakers
    tied = np.flatnonzero(np.append(values, np.nan)[bins] == confidence)
    bins[tied] += random.random(len(tied)) > highest[bins[tied]]
    return bins


def log_e_values(bins: Ints, slots: Ints) -> Floats:
    """The logarithm of the e-value after each answer, for the bins [n] of new answers in the order of time."""
    middle = 2 * (np.cumsum(slots) - slots / 2) / slots.sum() - 1
    tilts = [shift * middle for shift in SHIFTS] + [spread * (3 * middle**2 - 1) / 2 for spread in SPREADS]
    return log_capital([_log_ratio(np.exp(tilt), bins, slots) for tilt in tilts])


def _log_ratio(tilt: Floats, bins: Ints, slots: Ints) -> Floats:
    """The logarithm of what a stake on this tilt of the urn has grown to after each answer."""
    drawn = tilt[bins]
    earlier = np.concatenate([[0.0], np.cumsum(drawn)[:-1]])
    expected = (slots @ tilt + earlier) / (slots.sum() + np.arange(len(bins)))
    return np.cumsum(np.log(drawn / expected))

"""A threshold, and what it does to a set of predictions.

Confidences within 1e-12 of a threshold count as equal to it: numpy and torch round a softmax differently.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from confrank.errors import InputError, aligned
from confrank.metrics.curve import RiskCoverageCurve, curve_of
from confrank.metrics.inputs import ArrayLike, Ints, at_or_above, scores_and_flags
from confrank.metrics.ranking import ranked


@dataclass(frozen=True)
class OperatingPoint:
    """Accept confidence >= threshold: how many of `num_samples` are accepted, and how many of those are wrong.

    `bound` is the guaranteed upper limit of the true error rate among accepted, if there is a guarantee.
    """

    threshold: float
    accepted: int
    wrong: int
    num_samples: int
    bound: float | None = None

    @property
    def coverage(self) -> float | None:
        """The share of predictions accepted; None if there are none."""
        return self.accepted / self.num_samples if self.num_samples else None

    @property
    def risk(self) -> float | None:
        """The error rate among accepted; None if nothing is accepted."""
        return self.wrong / self.accepted if self.accepted else None

    @property
    def rows(self) -> list[list[str]]:
        """What is printed of it."""
        coverage = "" if self.coverage is None else f" ({self.coverage:.2%})"
        risk = "nothing is accepted" if self.risk is None else f"{self.risk:.4g} ({self.wrong:,} wrong)"
        bound = [] if self.bound is None else [["guaranteed to be at most", f"{self.bound:.4g}"]]
        return [
            ["accept confidence >=", repr(self.threshold)],
            ["accepted", f"{self.accepted:,} of {self.num_samples:,}{coverage}"],
            ["error rate among accepted", risk],
            *bound,
        ]

    def __repr__(self) -> str:
        return aligned(self.rows)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "coverage": self.coverage, "risk": self.risk}


def point_on(curve: RiskCoverageCurve, position: int) -> OperatingPoint:
    """The threshold at a position of a curve, and what it accepts there."""
    threshold = float(curve.threshold[position])
    last = curve.last_accepted(threshold)
    return OperatingPoint(threshold, int(curve.accepted[last]), int(curve.wrong[last]), curve.num_samples)


def threshold_for_coverage(
    confidence: ArrayLike, correct: ArrayLike, coverage: float, *, sample_weight: ArrayLike | None = None
) -> OperatingPoint:
    """The largest threshold that accepts at least this share of the predictions (with weights, of their sum).

    The counts of the result are rows, whatever their weights.

    >>> threshold_for_coverage([0.9, 0.8, 0.7, 0.6], [True, True, False, True], 0.75).threshold
    0.7
    """
    if not 0 < coverage <= 1:
        raise ValueError(f"expected a coverage in (0, 1], but got {coverage}")
    curve = curve_of(ranked(confidence, correct, sample_weight))
    if not curve.num_samples:
        raise ValueError("expected predictions to choose a threshold from, but got none")
    return point_on(curve, curve.at_coverage(coverage))


def measured_at(confidence: ArrayLike, correct: ArrayLike, threshold: float) -> OperatingPoint:
    """What a threshold does to these predictions."""
    scores, flags = scores_and_flags(confidence, correct)
    accepted = at_or_above(scores, threshold)
    return OperatingPoint(
        float(threshold), int(np.count_nonzero(accepted)), int(np.count_nonzero(accepted & ~flags)), len(accepted)
    )


def random_split(num_samples: int, share: float, seed: int = 0) -> tuple[Ints, Ints]:
    """(rows to choose on, rows to check on), the latter a random share of all; both in ascending order.

    >>> [len(rows) for rows in random_split(10, 0.3)]
    [7, 3]
    """
    if not 0 < share < 1:
        raise ValueError(f"expected a share in (0, 1), but got {share}")
    num_checked = round(share * num_samples)
    if not 0 < num_checked < num_samples:
        raise ValueError(f"expected a share that leaves rows on both sides, but got {share} of {num_samples} rows")
    order = np.random.default_rng(seed).permutation(num_samples)
    return np.sort(order[num_checked:]), np.sort(order[:num_checked])


def random_folds(num_samples: int, folds: int, seed: int = 0) -> list[tuple[Ints, Ints]]:
    """(rows outside the fold, rows in it) of each fold; the folds divide the rows at random into nearly equal parts.

    >>> [(len(others), len(rows)) for others, rows in random_folds(10, 3)]
    [(6, 4), (7, 3), (7, 3)]
    """
    if not 2 <= folds <= num_samples:
        raise InputError(
            f"expected between 2 folds and as many as rows ({num_samples:,}), but got {folds:,}", "change {folds}"
        )
    parts = np.array_split(np.random.default_rng(seed).permutation(num_samples), folds)
    return [
        (np.sort(np.concatenate([*parts[:number], *parts[number + 1 :]])), np.sort(part))
        for number, part in enumerate(parts)
    ]

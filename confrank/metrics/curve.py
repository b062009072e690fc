"""The risk-coverage curve: what each threshold accepts, and how many of the accepted are wrong."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from confrank.errors import counted
from confrank.metrics import areas
from confrank.metrics.areas import Amounts
from confrank.metrics.arrays import EQUAL_SHARES, TOLERANCE, ArrayLike, Floats, Ints
from confrank.metrics.ranking import AnyRanking, Ranking, ranked
from confrank.metrics.weights import WeightedRanking


@dataclass(frozen=True)
class RiskCoverageCurve:
    """For each threshold, from the highest down: how many predictions it accepts and how many of these are wrong.

    With sample weights, there are also their sums; coverage and risk are shares of weight, without rows of weight 0.
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
            return int(np.searchsorted(self.coverage, coverage - EQUAL_SHARES))
        return int(np.searchsorted(self.accepted, np.ceil(coverage * self.num_samples - 1e-9)))

    def last_accepted(self, threshold: Floats | float) -> Ints:
        """Position of the last point whose predictions `at_or_above` accepts; -1 if it accepts none.

        `accepted` and `wrong` at this position are what the threshold does to these predictions.
        """
        return np.searchsorted(-self.threshold, TOLERANCE - np.asarray(threshold), side="right") - 1

    def __repr__(self) -> str:
        size = f"{counted(self.num_samples, 'prediction')}, {self.num_wrong:,} wrong"
        return f"risk-coverage curve of {size}: {counted(len(self.threshold), 'threshold')}"

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

"""The risk-coverage curve: what each threshold accepts, how many of these are wrong, and which are cheapest."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from confrank.errors import counted
from confrank.metrics import areas
from confrank.metrics.areas import Amounts
from confrank.metrics.inputs import EQUAL_SHARES, TOLERANCE, ArrayLike, Floats, Ints
from confrank.metrics.ranking import AnyRanking, Ranking, WeightedRanking, ranked


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


def risk_at_coverage(
    confidence: ArrayLike, correct: ArrayLike, coverage: float, *, sample_weight: ArrayLike | None = None
) -> float | None:
    """Error rate among the accepted at the highest threshold that accepts at least this share.

    Tied predictions are accepted together, so the share may be larger than asked for. None for no predictions.

    >>> risk_at_coverage([0.9, 0.8, 0.8, 0.6], [True, True, False, True], 0.5)
    0.3333333333333333
    """
    if not 0 < coverage <= 1:
        raise ValueError(f"expected coverage in (0, 1], but got {coverage}")
    curve = risk_coverage_curve(confidence, correct, sample_weight=sample_weight)
    if not curve.num_samples:
        return None
    position = curve.last_accepted(curve.threshold[curve.at_coverage(coverage)])
    return float(curve.risk[position])


def coverage_at_risk(
    confidence: ArrayLike, correct: ArrayLike, risk: float, *, sample_weight: ArrayLike | None = None
) -> float | None:
    """Largest share that a threshold accepts with an error rate of at most `risk`; None for no predictions.

    0 if no threshold reaches the risk. The error rate is the one measured on these predictions; for a bound on new
    ones use `confrank.decisions.guaranteed_threshold`.

    >>> coverage_at_risk([0.9, 0.8, 0.8, 0.6], [True, True, False, True], 0.25)
    1.0
    """
    if not 0 <= risk <= 1:
        raise ValueError(f"expected risk in [0, 1], but got {risk}")
    curve = risk_coverage_curve(confidence, correct, sample_weight=sample_weight)
    if not curve.num_samples:
        return None
    positions = curve.last_accepted(curve.threshold)
    return float(curve.coverage[positions].max(initial=0, where=curve.risk[positions] <= risk + EQUAL_SHARES))


def cheapest_curve(ranking: AnyRanking) -> RiskCoverageCurve:
    """The points of the curve that are cheapest for some costs, from the highest threshold down.

    Few of many predictions: memory grows with their number. Rejecting everything is not among them.
    """
    if isinstance(ranking, Ranking) and not has_near_ties(curve := _streamed(ranking), ranking):
        return curve
    # A threshold accepts confidences just below it too.
    every = curve_of(ranking)
    every = every.taken(np.unique(every.last_accepted(every.threshold)))
    return every.taken(hull_positions(*every.amounts))


def _streamed(ranking: Ranking) -> RiskCoverageCurve:
    accepted, wrong = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    for next_accepted, next_wrong in ranking.steps():
        accepted, wrong = np.append(accepted, next_accepted), np.append(wrong, next_wrong)
        corners = hull_positions(accepted, wrong)
        accepted, wrong = accepted[corners], wrong[corners]
    threshold = ranking.confidence_at(accepted - 1)
    return RiskCoverageCurve(threshold, accepted, wrong, ranking.num_samples, ranking.num_wrong)


def hull_positions(accepted: Amounts, wrong: Amounts) -> Ints:
    """The corners of the lower convex hull of the points and (0, 0), which is not among them.

    Both arrays are cumulative. A point on a straight line between two others is no corner.

    >>> hull_positions(np.array([1, 2, 3, 4]), np.array([0, 0, 1, 1])).tolist()
    [1, 3]
    """
    positions = np.arange(len(accepted))
    while len(positions) > 2:  # one pass removes most points; what remains is left to the loop
        x, y = (np.concatenate([[0], values[positions]]) for values in (accepted, wrong))
        convex = np.append(_turn(x[:-2], y[:-2], x[1:-1], y[1:-1], x[2:], y[2:]) > 0, True)
        if np.count_nonzero(convex) > 0.9 * len(positions):
            break
        positions = positions[convex]
    return _chain(accepted, wrong, positions)


def _turn(x0: Amounts, y0: Amounts, x1: Amounts, y1: Amounts, x2: Amounts, y2: Amounts) -> Amounts:
    """Above 0 if the path through the three points turns left."""
    turn: Amounts = (x1 - x0) * (y2 - y0) - (y1 - y0) * (x2 - x0)
    return turn


def _chain(accepted: Amounts, wrong: Amounts, positions: Ints) -> Ints:
    """Andrew's monotone chain."""
    corners: list[tuple[float, float, int]] = [(0, 0, -1)]
    for position in positions.tolist():
        x, y = accepted[position].item(), wrong[position].item()
        while len(corners) > 1:
            (x0, y0, _), (x1, y1, _) = corners[-2:]
            if (x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) > 0:
                break
            corners.pop()
        corners.append((x, y, position))
    return np.array([position for _, _, position in corners[1:]], dtype=np.int64)

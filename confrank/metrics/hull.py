"""The thresholds that are cheapest for some costs of an error and of a rejection: a convex hull of the curve.

With costs a of an error and b of a rejection, a threshold costs a x wrong + b x (all - accepted). The least cost is
at a corner of the lower convex hull of the points (accepted, wrong), from (0, 0), where everything is rejected.
"""

import numpy as np

from confrank.metrics.areas import Amounts
from confrank.metrics.arrays import Ints
from confrank.metrics.curve import RiskCoverageCurve, curve_of, has_near_ties
from confrank.metrics.ranking import AnyRanking, Ranking


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

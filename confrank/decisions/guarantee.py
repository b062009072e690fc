"""Selection with Guaranteed Risk: a threshold whose true error rate is bounded with high probability.

Geifman & El-Yaniv, "Selective Classification for Deep Neural Networks", NeurIPS 2017, algorithm 1: a binary search
over the sorted confidences; each of its ceil(log2 n) steps bounds the risk by exact inversion of the binomial tail at
level delta / steps, so that all bounds hold together with probability 1 - delta.
"""

import math
from dataclasses import replace

import numpy as np
from scipy.special import betaincinv

from confrank.decisions.operating import OperatingPoint, point_on
from confrank.metrics.arrays import ArrayLike
from confrank.metrics.ranking import RiskCoverageCurve, curve_of, rank


class UnreachableError(ValueError):
    """The search met no bound as low as asked; `best` has the lowest one it met, which can be asked for.

    Asked for that, the search goes on from there to accept more, and may end at a lower bound still.
    """

    def __init__(self, risk: float, best: OperatingPoint) -> None:
        self.risk, self.best = risk, best
        lowest = _rounded_up(best.bound)
        higher = f", or ask for a risk of {lowest:g} or more" if lowest < 1 else ""
        super().__init__(
            f"expected a risk that the search can certify with {best.num_samples:,} predictions, but got {risk:g}:"
            f" of the thresholds on its way, the one that accepts {best.accepted:,} ({best.wrong:,} of them wrong)"
            f" comes nearest; bring more validation predictions{higher}"
        )


def _rounded_up(bound: float | None) -> float:
    """A number that can be asked for: rounding to the nearest might fall below the bound."""
    return 1.0 if bound is None else math.ceil(bound * 1e6) / 1e6


def risk_bound(num_wrong: int, num_accepted: int, delta: float) -> float:
    """The largest error rate under which `num_wrong` or fewer errors among `num_accepted` have probability >= delta.

    >>> round(risk_bound(0, 100, 0.05), 5)
    0.02951
    """
    if num_wrong >= num_accepted:
        return 1.0
    # P(Bin(m, b) <= e) = I_{1-b}(m - e, e + 1), solved for b.
    return 1.0 - float(betaincinv(num_accepted - num_wrong, num_wrong + 1, delta))


def guaranteed_threshold(
    confidence: ArrayLike, correct: ArrayLike, risk: float, delta: float = 0.001
) -> OperatingPoint:
    """The threshold of most coverage, among those searched, whose risk is at most `risk` with probability 1 - delta.

    Raises `UnreachableError` if none is. The predictions must not have been used to train the model.
    """
    for name, value in (("risk", risk), ("delta", delta)):
        if not 0 < value < 1:
            raise ValueError(f"expected {name} in (0, 1), but got {value}")
    curve = curve_of(rank(confidence, correct))
    if not curve.num_samples:
        raise ValueError("expected predictions to choose a threshold from, but got none")
    points = _search(curve, risk, delta)
    reached = [point for point in points if _bound(point) <= risk]
    if not reached:
        # Below the lowest bound visited the search would go the same way, so this is the least one can ask for.
        raise UnreachableError(risk, min(points, key=_bound))
    return max(reached, key=lambda point: point.accepted)


def _bound(point: OperatingPoint) -> float:
    assert point.bound is not None, "the search bounds each point"
    return point.bound


def _search(curve: RiskCoverageCurve, risk: float, delta: float) -> list[OperatingPoint]:
    """The points that the binary search visits, each with its bound."""
    num_steps = max(1, math.ceil(math.log2(curve.num_samples)))
    low, high = 1, curve.num_samples
    points = []
    for _ in range(num_steps):
        middle = (low + high + 1) // 2
        # The middle-th smallest confidence is the threshold; its ties are accepted with it.
        position = int(np.searchsorted(curve.accepted, curve.num_samples - middle + 1))
        point = point_on(curve, position)
        bound = risk_bound(point.wrong, point.accepted, delta / num_steps)
        points.append(replace(point, bound=bound))
        if bound <= risk:
            high = middle
        else:
            low = middle
    return points

"""Selection with Guaranteed Risk: a threshold with a guaranteed error rate among accepted.

Geifman & El-Yaniv, "Selective Classification for Deep Neural Networks", NeurIPS 2017, algorithm 1: a binary search
over the sorted confidences. Each of its ceil(log2 n) steps bounds the risk by exact inversion of the binomial tail at
level delta / steps, so all bounds hold together with probability 1 - delta. (Which thresholds are tested depends on
earlier tests. This needs no further correction if lower thresholds have no lower error rate; in simulations of
confidences that do not rank, the guarantee held as well.) As published, the search never tests the acceptance of all
rows: unless it is tied, the least confident one is rejected, even if all are right.
"""

import math
from dataclasses import replace

import numpy as np
from scipy.special import betaincinv

from confrank.decisions.learn_then_test import RankedRows, number_needed, ranked_rows
from confrank.decisions.operating import OperatingPoint, point_on
from confrank.errors import InputError, counted
from confrank.metrics.curve import RiskCoverageCurve, curve_of
from confrank.metrics.inputs import ArrayLike, as_flags, as_scores
from confrank.metrics.ranking import rank


class UnreachableError(ValueError):
    """The search certified no error rate as low as requested; `best` is the point with the lowest bound.

    A request for that bound succeeds. The search then continues from there, and may end at a lower bound. `needed` is
    about how many predictions with these error rates would suffice; None if no number would.
    """

    def __init__(self, risk: float, best: OperatingPoint, needed: int | None = None) -> None:
        self.risk, self.best, self.needed = risk, best, needed
        lowest = _rounded_up(best.bound)
        remedies = [f"ask for {lowest:g} or more"] if lowest < 1 else []
        if needed is not None:
            remedies.insert(0, f"use more validation predictions (at least about {needed:,})")
        else:
            remedies.append("use a model with fewer errors: more predictions like these would not suffice")
        super().__init__(
            f"expected an error rate that can be certified with {counted(best.num_samples, 'prediction')},"
            f" but got {risk:g}:"
            f" of the thresholds tried, the one that accepts {best.accepted:,} ({best.wrong:,} of them wrong)"
            f" comes nearest; {', or '.join(remedies)}"
        )


def _rounded_up(bound: float | None) -> float:
    """Rounded up, since a number below the bound could not be certified."""
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


def refuse_weights(sample_weight: ArrayLike | None, remedy: str = "leave out {sample_weight}") -> None:
    """Raise if there are weights: every guarantee is about equally weighted rows."""
    if sample_weight is not None:
        raise InputError(
            "expected predictions without weights: a guarantee counts errors among equally weighted rows", remedy
        )


def check_shares(**shares: float) -> None:
    """Raise if one of these is not between 0 and 1."""
    for name, value in shares.items():
        if not 0 < value < 1:
            raise ValueError(f"expected {name} in (0, 1), but got {value}")


def guaranteed_threshold(
    confidence: ArrayLike,
    correct: ArrayLike,
    risk: float,
    *,
    delta: float = 0.001,
    sample_weight: ArrayLike | None = None,
) -> OperatingPoint:
    """Of the thresholds searched, the one with the largest coverage that guarantees the error rate.

    With probability 1 - delta, the true error rate among accepted is at most `risk`. Raises `UnreachableError` if no
    threshold guarantees it. The model must not have been trained on these predictions. `sample_weight` is refused:
    the bound counts errors among equally weighted rows.
    """
    refuse_weights(sample_weight, "leave out {sample_weight}, or choose a threshold by {coverage}")
    check_shares(risk=risk, delta=delta)
    curve = curve_of(rank(confidence, correct))
    if not curve.num_samples:
        raise ValueError("expected predictions to choose a threshold from, but got none")
    points = _search(curve, risk, delta)
    reached = [point for point in points if _bound(point) <= risk]
    if not reached:
        # For any lower request the search takes the same path, so this is the lowest that can be certified.
        rows = ranked_rows(as_scores(confidence), as_flags(correct), risk)
        raise UnreachableError(risk, min(points, key=_bound), _needed(rows, delta))
    return max(reached, key=lambda point: point.accepted)


def _needed(rows: RankedRows, delta: float) -> int | None:
    """`number_needed` by the search: it starts at half of the rows, and with more rows delta is for more steps."""
    needed: int | None = len(rows)
    num_steps = 0
    while needed is not None and num_steps < _num_steps(needed):
        num_steps = _num_steps(needed)
        needed = number_needed(rows, delta / num_steps, widest=1)
    return needed


def _bound(point: OperatingPoint) -> float:
    assert point.bound is not None, "the search bounds each point"
    return point.bound


def _num_steps(num_rows: int) -> int:
    return max(1, math.ceil(math.log2(num_rows)))


def _search(curve: RiskCoverageCurve, risk: float, delta: float) -> list[OperatingPoint]:
    """The points that the binary search visits, each with its bound."""
    num_steps = _num_steps(curve.num_samples)
    low, high = 1, curve.num_samples
    points = []
    for _ in range(num_steps):
        middle = (low + high + 1) // 2
        # The middle-th smallest confidence is the threshold; its ties are accepted with it.
        point = point_on(curve, int(np.searchsorted(curve.accepted, curve.num_samples - middle + 1)))
        bound = risk_bound(point.wrong, point.accepted, delta / num_steps)
        points.append(replace(point, bound=bound))
        if bound <= risk:
            high = middle
        else:
            low = middle
    return points

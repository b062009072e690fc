"""Paired intervals of a difference in AURC from one sort of each score: for sets that are too large to resample.

The influence of a prediction is the derivative of the AURC with respect to its weight. The variance of the mean
influence is the variance of the AURC for large n.
"""

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from confrank.metrics.arrays import TOLERANCE, ArrayLike, Floats, Ints, scores_and_flags
from confrank.metrics.intervals import PairedDifference


def aurc_influence(confidence: ArrayLike, correct: ArrayLike) -> tuple[float, Floats]:
    """The AURC, and the influence [n] of each prediction on it, with mean 0. Ties: the mean over all their orders.

    The prediction at rank i, with error e_i, has r_i - AURC + sum over k >= i of (e_i - r_k) / k, where r_k is the
    error rate among the k surest.

    >>> area, influence = aurc_influence([0.7, 0.6, 0.8], [True, False, True])
    >>> round(area, 4), influence.round(4).tolist()
    (0.1111, [-0.2222, 0.4444, -0.2222])
    """
    scores, flags = scores_and_flags(confidence, correct, "predictions to rank")
    order = np.argsort(-scores)
    wrong = (~flags[order]).astype(np.float64)
    starts, sizes = _tie_groups(scores[order])
    rank = np.arange(1, len(scores) + 1, dtype=np.float64)
    risk = np.cumsum(_group_means(wrong, starts, sizes)) / rank
    area = float(risk.mean())
    below = np.cumsum(1 / rank[::-1])[::-1]
    risk_below = np.cumsum((risk / rank)[::-1])[::-1]
    sorted_influence = _group_means(risk - area - risk_below, starts, sizes)
    sorted_influence += wrong * _group_means(below, starts, sizes)
    influence = np.empty_like(sorted_influence)
    influence[order] = sorted_influence
    return area, influence


def _tie_groups(ordered: NDArray[np.floating]) -> tuple[Ints, Ints]:
    """The first position and the size of each group of equal values."""
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return starts, np.diff(starts, append=len(ordered))


def _group_means(values: Floats, starts: Ints, sizes: Ints) -> Floats:
    """Each value replaced by the mean of its group."""
    if len(starts) == len(values):
        return values
    return np.repeat(np.add.reduceat(values, starts) / sizes, sizes)


def difference_of(value: float, influence: Floats) -> PairedDifference:
    """A difference with its 95% interval and two-sided p-value, from the influence [n] of each row on it."""
    error = float(influence.std(ddof=1)) / len(influence) ** 0.5 if len(influence) > 1 else float("inf")
    value, error = (0.0 if abs(number) < TOLERANCE else number for number in (value, error))
    reach = NormalDist().inv_cdf(0.975) * error
    p = 2 * NormalDist().cdf(-abs(value) / error) if error else float(value == 0)
    return PairedDifference(value, value - reach, value + reach, p)

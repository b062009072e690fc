"""The term that each step of a ranking adds to each area, for arrays of steps with any leading axes.

A step accepts all predictions of one confidence. `accepted` and `wrong` count the predictions from the surest down
to this step, inclusive; `accepted_before` and `wrong_before` exclude it. An empty step (in a resample) adds 0.
With sample weights, sums of weights take the part of the counts.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from confrank.metrics.inputs import Floats

Amounts = NDArray[Any]  # counts (integers) or sums of weights (floats)


def shifted(counts: Amounts, before: float = 0) -> Amounts:
    """The counts of the previous step, `before` for the first one."""
    previous = np.empty_like(counts)
    previous[..., 0], previous[..., 1:] = before, counts[..., :-1]
    return previous


def aurc_terms(accepted_before: Amounts, wrong_before: Amounts, accepted: Amounts, wrong: Amounts) -> Floats:
    """Sum of the error rates among the k surest over the step's k, averaged over all orders of its predictions.

    m predictions, e of them wrong, after a with E wrong: e + (E - e a/m) (H(a+m) - H(a)), H the harmonic numbers.
    """
    m = accepted - accepted_before
    terms: Floats = wrong / at_least_some(accepted)
    terms *= m != 0
    # One prediction of weight 1 adds wrong / accepted; the formula covers all other steps. Positions in the flattened
    # arrays are faster than an index for each axis.
    tied = np.flatnonzero(m > 1 if m.dtype.kind == "i" else m > 0)
    if len(tied):
        a, e_before, after, m = (np.take(part, tied) for part in (accepted_before, wrong_before, accepted, m))
        e = np.take(wrong, tied) - e_before
        np.put(terms, tied, e + (e_before - e * a / m) * harmonic_gap(a, after))
    return terms


def augrc_terms(accepted_before: Amounts, wrong_before: Amounts, accepted: Amounts, wrong: Amounts) -> Floats:
    """n^2 times the area under (wrong accepted / n), a straight line over the step."""
    return (accepted - accepted_before) * ((wrong + wrong_before) / 2)


def aupr_error_terms(
    num_samples: Amounts,
    num_wrong: Amounts,
    accepted_before: Amounts,
    wrong_before: Amounts,
    accepted: Amounts,
    wrong: Amounts,
) -> Floats:
    """The step's errors times the precision of flagging this step and all less sure predictions."""
    flagged = at_least_some(num_samples - accepted_before)
    return (wrong - wrong_before) * ((num_wrong - wrong_before) / flagged)


def aupr_correct_terms(accepted_before: Amounts, wrong_before: Amounts, accepted: Amounts, wrong: Amounts) -> Floats:
    """The step's right predictions times the precision of accepting this step and all surer predictions."""
    gained = (accepted - wrong) - (accepted_before - wrong_before)
    terms: Floats = gained * ((accepted - wrong) / at_least_some(accepted))
    return terms


def auroc_terms(
    num_wrong: Amounts, accepted_before: Amounts, wrong_before: Amounts, accepted: Amounts, wrong: Amounts
) -> Floats:
    """Pairs won by the step's right predictions against less sure wrong ones, ties counting half."""
    gained = (accepted - wrong) - (accepted_before - wrong_before)
    terms: Floats = gained * (num_wrong - (wrong + wrong_before) / 2)
    return terms


def best_aurc(risk: Floats) -> Floats:
    """r + (1 - r) ln(1 - r): the AURC of a perfect ranking at error rate r, for large n; 1 at r = 1."""
    below = np.minimum(risk, 1 - 2.0**-53)
    return np.where(risk < 1, risk + (1 - risk) * np.log1p(-below), 1.0)


def at_least_some(amounts: Amounts) -> Amounts:
    """The amounts as a divisor: 1 instead of 0."""
    return np.maximum(amounts, 1) if amounts.dtype.kind == "i" else np.where(amounts > 0, amounts, 1.0)


_SMALL = 64
_HARMONIC = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, _SMALL + 1))])


def harmonic_gap(low: Amounts, high: Amounts) -> Floats:
    """H(high) - H(low), with H(x) = digamma(x + 1) + Euler's gamma: the harmonic numbers, between integers too.

    >>> harmonic_gap(np.array([0, 3]), np.array([3, 3])).round(6).tolist(), harmonic_gap(np.zeros(1), np.array([0.5]))
    ([1.833333, 0.0], array([0.61370564]))
    """
    if high.dtype.kind != "i":
        return _digamma_gap(low, high)
    # A table up to 64, then ln(n + 1/2) with its correction terms.
    x, y = np.maximum(low, _SMALL) + 0.5, np.maximum(high, _SMALL) + 0.5
    inverse_x, inverse_y = 1 / (x * x), 1 / (y * y)
    correction = (inverse_y - inverse_x) / 24 - 7 * (inverse_y * inverse_y - inverse_x * inverse_x) / 960
    exact = _HARMONIC[np.minimum(high, _SMALL)] - _HARMONIC[np.minimum(low, _SMALL)]
    gap: Floats = exact + np.log1p((y - x) / x) + correction
    return gap


_SHIFT = 32


def _digamma_gap(low: Floats, high: Floats) -> Floats:
    """The gap for real numbers: where `low` is small, both move up by 32 with H(x) = H(x + 1) - 1 / (x + 1)."""
    width = high - low
    small = np.nonzero(low < _SHIFT)
    a, b, gap = low[small], high[small], np.zeros(low.shape)
    # Differences of nearly equal numbers are never taken, so that small weights lose no digits.
    gap[small] = width[small] * sum(1 / ((a + k) * (b + k)) for k in range(1, _SHIFT + 1))
    x = np.where(low < _SHIFT, low + _SHIFT, low) + 0.5
    y = x + width
    u, v = 1 / (x * x), 1 / (y * y)
    change = -width * (x + y) * u * v  # v - u
    series = 1 / 24 - 7 * (u + v) / 960 + 31 * (u * u + u * v + v * v) / 8064
    gap += np.log1p(width / x) + change * series
    return gap

"""The term that each step of a ranking adds to each area, for arrays of steps with any leading axes.

A step accepts all predictions of one confidence. `accepted` and `wrong` count the predictions from the surest down
to this step, inclusive; `accepted_before` and `wrong_before` exclude it. An empty step (in a resample) adds 0.
"""

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


def shifted(counts: Counts, before: int = 0) -> Counts:
    """The counts of the previous step, `before` for the first one."""
    previous = np.empty_like(counts)
    previous[..., 0], previous[..., 1:] = before, counts[..., :-1]
    return previous


def aurc_terms(accepted_before: Counts, wrong_before: Counts, accepted: Counts, wrong: Counts) -> Floats:
    """Sum of the error rates among the k surest over the step's k, averaged over all orders of its predictions.

    m predictions, e of them wrong, after a with E wrong: e + (E - e a/m) (H(a+m) - H(a)), H the harmonic numbers.
    """
    m = accepted - accepted_before
    terms: Floats = wrong / np.maximum(accepted, 1)
    terms[m == 0] = 0
    tied = np.nonzero(m > 1)
    if len(tied[0]):
        a, e_before, m = accepted_before[tied], wrong_before[tied], m[tied]
        e = wrong[tied] - e_before
        terms[tied] = e + (e_before - e * a / m) * harmonic_gap(a, accepted[tied])
    return terms


def augrc_terms(accepted_before: Counts, wrong_before: Counts, accepted: Counts, wrong: Counts) -> Floats:
    """n^2 times the area under (wrong accepted / n), a straight line over the step."""
    return (accepted - accepted_before) * ((wrong + wrong_before) / 2)


def aupr_error_terms(
    num_samples: Counts,
    num_wrong: Counts,
    accepted_before: Counts,
    wrong_before: Counts,
    accepted: Counts,
    wrong: Counts,
) -> Floats:
    """The step's errors times the precision of flagging this step and all less sure predictions."""
    flagged = np.maximum(num_samples - accepted_before, 1)
    terms: Floats = (wrong - wrong_before) * ((num_wrong - wrong_before) / flagged)
    return terms


def aupr_correct_terms(accepted_before: Counts, wrong_before: Counts, accepted: Counts, wrong: Counts) -> Floats:
    """The step's right predictions times the precision of accepting this step and all surer predictions."""
    gained = (accepted - wrong) - (accepted_before - wrong_before)
    terms: Floats = gained * ((accepted - wrong) / np.maximum(accepted, 1))
    return terms


def auroc_terms(
    num_wrong: Counts, accepted_before: Counts, wrong_before: Counts, accepted: Counts, wrong: Counts
) -> Floats:
    """Pairs won by the step's right predictions against less sure wrong ones, ties counting half."""
    gained = (accepted - wrong) - (accepted_before - wrong_before)
    terms: Floats = gained * (num_wrong - (wrong + wrong_before) / 2)
    return terms


def best_aurc(risk: Floats) -> Floats:
    """r + (1 - r) ln(1 - r): the AURC of a perfect ranking at error rate r, for large n; 1 at r = 1."""
    below = np.minimum(risk, 1 - 2.0**-53)
    best: Floats = np.where(risk < 1, risk + (1 - risk) * np.log1p(-below), 1.0)
    return best


_SMALL = 64
_HARMONIC = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, _SMALL + 1))])


def harmonic_gap(low: Counts, high: Counts) -> Floats:
    """H(high) - H(low) for harmonic numbers H: a table up to 64, then ln(n + 1/2) with its correction terms."""
    x, y = np.maximum(low, _SMALL) + 0.5, np.maximum(high, _SMALL) + 0.5
    inverse_x, inverse_y = 1 / (x * x), 1 / (y * y)
    correction = (inverse_y - inverse_x) / 24 - 7 * (inverse_y * inverse_y - inverse_x * inverse_x) / 960
    exact = _HARMONIC[np.minimum(high, _SMALL)] - _HARMONIC[np.minimum(low, _SMALL)]
    gap: Floats = exact + np.log1p((y - x) / x) + correction
    return gap

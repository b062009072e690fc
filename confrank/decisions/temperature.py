"""Temperature scaling: one number that calibrates probabilities without changing any prediction."""

from typing import Any

import numpy as np

from confrank.errors import counted
from confrank.metrics.inputs import (
    Array,
    ArrayLike,
    Classes,
    Floats,
    Ints,
    as_probabilities,
    as_table,
    chunks,
    labels_for,
)

# The search for ln(1 / temperature): temperatures from about 1/400 to 400 times the spread of the logits.
LIMIT = 6.0
LARGEST = float(np.finfo(np.float64).max)


def as_logits(
    *, logits: ArrayLike | None = None, probabilities: ArrayLike | None = None, floor: float | None = None
) -> tuple[Array, list[str]]:
    """Logits unchanged, or the logarithm of probabilities; and notes on what was changed.

    Most zeros come from rounding. They, and all probabilities below it, become `floor`: half of the smallest other
    probability of the table (but at least the smallest normal number). A much smaller number would be an outlier that
    dominates the fit. Give the floor of the table that a calibrator was fitted to when you apply it to another one.

    >>> table, notes = as_logits(probabilities=[[0.98, 0.02], [1.0, 0.0]])
    >>> np.exp(table[1]).round(6).tolist(), notes
    ([1.0, 0.01], ['1 of 4 probabilities are zero and count as 0.01, half of the smallest other one'])
    """
    if logits is not None:
        return as_table(logits, "logits"), []
    if probabilities is None:
        raise ValueError("expected logits or probabilities, but got neither")
    table = as_probabilities(probabilities)
    if floor is None and np.isin(table, (0, 1)).all():
        raise ValueError("expected probabilities, but every one is 0 or 1; give them as they were before rounding")
    tiny = np.finfo(table.dtype).tiny  # the floor of another table may be none of the numbers of this type
    least = zero_floor(table) if floor is None else max(table.dtype.type(floor), tiny)
    raised = int(np.count_nonzero(table < least))
    log_table: Array = np.log(np.maximum(table, least))
    note = f"are zero and count as {least:.3g}, half of the smallest other one"
    if floor is not None:
        note = f"are below {least:.3g} and count as that, as in the table that the calibrator was fitted to"
    return log_table, [f"{raised:,} of {table.size:,} probabilities {note}"] if raised else []


def zero_floor(table: Array) -> Any:
    """What zeros of a table [n, K] of probabilities count as, in the type of the table; see `as_logits`."""
    smallest = table.min(initial=1, where=table > 0)
    return max(smallest / 2, np.finfo(table.dtype).tiny)


def fit_temperature(logits: ArrayLike, label: Classes) -> float:
    """The temperature T > 0 that minimises the NLL of softmax(logits / T) (Guo et al. 2017).

    The NLL is convex in 1/T, so its slope has one root. It is an error if the best T has no limit: all answers are
    right, or they are no better than chance.

    >>> round(fit_temperature([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]], [0, 0, 0, 1]), 4)
    1.8205
    """
    from scipy.optimize import brentq  # slow to import, and thresholds do without it

    table = as_table(logits, "logits")
    labels = labels_for(label, logits, logits=table)
    if not len(table):
        raise ValueError("expected predictions to fit a temperature to, but got none")
    # LIMIT suits logits whose rows spread by about 1; for others the range is widened by their scale.
    unit = _mean_spread(table) / 2 or 1.0
    low, high = -LIMIT - max(0.0, np.log(unit)), LIMIT - min(0.0, np.log(unit))
    slopes = _slope(low, table, labels), _slope(high, table, labels)
    if not slopes[0] < 0 < slopes[1]:
        if not _mean_spread(table):
            direction = "the logits are the same for all classes"
        else:
            direction = "all answers are right" if slopes[1] <= 0 else "the answers are no better than chance"
        raise ValueError(
            f"expected predictions that a temperature can calibrate, but {direction} in the"
            f" {counted(len(table), 'row')} it is fitted to, so the best temperature has no limit; fit it to"
            " more rows"
        )
    return float(np.exp(-brentq(_slope, low, high, args=(table, labels), xtol=1e-12, maxiter=1000)))


def _mean_spread(table: Array) -> float:
    """Mean over rows of the largest minus the smallest logit; finite even if classes are masked by -1.8e308."""
    with np.errstate(over="ignore"):
        spread = table.max(axis=1).astype(np.float64) - table.min(axis=1)
    return float((np.minimum(spread, LARGEST) / len(table)).sum())


def _slope(log_inverse: float, table: Array, labels: Ints) -> float:
    """Derivative of the mean NLL by the inverse temperature: mean of E_p[z] - z_label."""
    inverse, total = float(np.exp(log_inverse)), 0.0
    for rows in chunks(len(table), table.shape[1]):
        part = table[rows].T.astype(np.float64, order="C")  # [K, n]: few classes are summed fast along the first axis
        with np.errstate(over="ignore", under="ignore"):
            # 0 or less, and finite: no product is infinite times zero.
            part = np.maximum(part - part.max(axis=0), -LARGEST)
            weight = np.exp(part * inverse)
            expected = (weight / weight.sum(axis=0) * part).sum(axis=0)
        picked = part[labels[rows], np.arange(part.shape[1])]
        total += float(((expected - picked) / len(table)).sum())
    return total


def scaled_logits(logits: ArrayLike, temperature: float) -> Floats:
    """Logits [n, K] whose softmax is that of the calibrated model, in float64.

    In float64, because rounding would create or break ties: a threshold chosen on rounded logits would accept other
    samples than `SelectiveClassifier` with that temperature.

    >>> scaled_logits([[3, 0], [5, 1]], 2.0).tolist()
    [[1.5, 0.0], [2.5, 0.5]]
    """
    if not temperature > 0:
        raise ValueError(f"expected a positive temperature, but got {temperature}")
    with np.errstate(over="ignore"):  # classes masked by the lowest number stay masked
        scaled: Floats = np.clip(as_table(logits, "logits").astype(np.float64) / temperature, -LARGEST, LARGEST)
    return scaled

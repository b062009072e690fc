"""Temperature scaling: one number that makes probabilities honest without changing any answer."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq

from confrank.metrics.arrays import Array, as_labels, as_probabilities, as_table, chunks, same_length

Floats = NDArray[np.float64]
# The search for ln(1 / temperature): temperatures from about 1/400 to 400 times the spread of the logits.
LIMIT = 6.0


def as_logits(*, logits: object = None, probabilities: object = None) -> Array:
    """Logits as they are, or the logarithm of probabilities, zeros clipped at the smallest normal number."""
    if logits is not None:
        return as_table(logits, "logits")
    table = as_probabilities(probabilities)
    log_table: Array = np.log(np.maximum(table, np.finfo(table.dtype).tiny))
    return log_table


def fit_temperature(logits: object, label: object) -> float:
    """The temperature T > 0 that minimises the NLL of softmax(logits / T) (Guo et al. 2017).

    The NLL is convex in 1/T, so its slope has one root. A sample that no temperature can help (all answers right,
    or a better guess at random) drives T to the end of its range, which is an error.

    >>> round(fit_temperature([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]], [0, 0, 0, 1]), 4)
    1.8205
    """
    table = as_table(logits, "logits")
    labels = as_labels(label, table.shape[1])
    same_length(logits=table, label=labels)
    if not len(table):
        raise ValueError("expected predictions to fit a temperature to, but got none")
    # The range is that of logits whose rows spread by about 1; for others it reaches as far as their own unit asks.
    unit = float(np.ptp(table, axis=1).mean(dtype=np.float64)) / 2 or 1.0
    low, high = -LIMIT - max(0.0, np.log(unit)), LIMIT - min(0.0, np.log(unit))
    slopes = _slope(low, table, labels), _slope(high, table, labels)
    if not slopes[0] < 0 < slopes[1]:
        if not np.ptp(table, axis=1).any():
            direction = "the logits are the same for all classes"
        else:
            direction = "all answers are right" if slopes[1] <= 0 else "the answers are no better than chance"
        raise ValueError(
            f"expected predictions that a temperature can calibrate, but {direction} in the {len(table):,} rows"
            " it is fitted to, so that the best temperature has no limit; fit it to more rows"
        )
    return float(np.exp(-brentq(_slope, low, high, args=(table, labels), xtol=1e-12)))


def _slope(log_inverse: float, table: Array, labels: NDArray[np.int64]) -> float:
    """Derivative of the mean NLL by the inverse temperature: mean of E_p[z] - z_label."""
    inverse, total = float(np.exp(log_inverse)), 0.0
    for rows in chunks(len(table), table.shape[1]):
        part = torch.from_numpy(table[rows].astype(np.float64))
        expected = (torch.softmax(part * inverse, dim=1) * part).sum(dim=1)
        picked = part[torch.arange(len(part)), torch.from_numpy(labels[rows])]
        total += float((expected - picked).sum())
    return total / len(table)


def scaled_logits(logits: object, temperature: float) -> Floats:
    """Logits [n, K] whose softmax is that of the calibrated model, in float64.

    In float64, since rounding would make or break ties: a threshold chosen on them would accept other samples than
    `SelectiveClassifier` with that temperature.

    >>> scaled_logits([[3, 0], [5, 1]], 2.0).tolist()
    [[1.5, 0.0], [2.5, 0.5]]
    """
    if not temperature > 0:
        raise ValueError(f"expected a positive temperature, but got {temperature}")
    return as_table(logits, "logits").astype(np.float64) / temperature

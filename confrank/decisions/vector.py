"""Vector scaling: a factor and a bias for each class; unlike a temperature, it may change predictions.

Guo et al., "On Calibration of Modern Neural Networks", ICML 2017, section 4.2. The NLL is convex in the 2 K
parameters, so Newton's method finds its minimum.
"""

import numpy as np

from confrank.decisions.temperature import LARGEST
from confrank.errors import InputError, counted
from confrank.metrics.arrays import Array, ArrayLike, Classes, Floats, Ints, as_table, chunks
from confrank.metrics.labels import labels_for

MAX_STEPS = 100
# Steps of standardised parameters; Newton's method doubles the number of digits with each step.
CONVERGED = 1e-9
# A curvature below this means that the NLL keeps falling, however far the parameters move.
FLAT = 1e-11
REMEDY = "fit it to more rows, or choose the {method} temperature"


def fit_vector(logits: ArrayLike, label: Classes) -> tuple[Floats, Floats]:
    """The factors [K] and biases [K] (with sum 0) that minimise the NLL of softmax(factor * logits + bias).

    It is an error if they have no limit: a class does not occur, or the rows can be separated perfectly. Logits that
    are the same in all rows get the factor 0.

    >>> factor, bias = fit_vector([[2.0, 0.0], [2.0, 1.0], [0.0, 2.0], [1.0, 2.0]], [0, 1, 1, 0])
    >>> factor.round(3).tolist(), abs(bias).round(3).tolist()
    ([0.42, 0.42], [0.0, 0.0])
    """
    table = as_table(logits, "logits").astype(np.float64)
    labels = labels_for(label, logits, logits=table)
    _check_classes(labels, table.shape[1])
    standard, mean, spread = _standardised(table)
    fixed = _unidentified(standard, spread)
    theta = np.concatenate([np.zeros(table.shape[1]), np.log(np.bincount(labels) / len(labels))])
    value = _nll(theta, standard, labels)
    for _ in range(MAX_STEPS):
        gradient, curvature = _derivatives(theta, standard, labels)
        curvature += fixed
        if np.linalg.eigvalsh(curvature)[0] < FLAT:
            break
        step = np.linalg.solve(curvature, -gradient)
        share = 1.0
        while (lower := _nll(theta + share * step, standard, labels)) > value + 1e-15 and share > 1e-9:
            share /= 2
        theta, value = theta + share * step, min(lower, value)
        if np.abs(step).max() <= CONVERGED:
            return _unstandardised(theta, mean, spread)
    raise InputError(
        "expected predictions that vector scaling can calibrate, but some classes are separated perfectly in the"
        f" {counted(len(table), 'row')} it is fitted to, so the best parameters have no limit",
        REMEDY,
    )


def _check_classes(labels: Ints, num_classes: int) -> None:
    if not len(labels):
        raise ValueError("expected predictions to fit vector scaling to, but got none")
    missing = np.flatnonzero(np.bincount(labels, minlength=num_classes) == 0)
    if len(missing):
        raise InputError(
            f"expected every class among the {counted(len(labels), 'row')} that vector scaling is fitted to, but"
            f" {len(missing):,} of {num_classes:,} have none, such as class {missing[0]}",
            REMEDY,
        )


def _standardised(table: Floats) -> tuple[Floats, Floats, Floats]:
    """Columns with mean 0 and standard deviation 1 (constant ones are 0), their means and standard deviations."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, spread = table.mean(axis=0), table.std(axis=0)
    if not (np.isfinite(mean).all() and np.isfinite(spread).all()):
        raise InputError(
            f"expected logits that can be squared, but got values up to {np.abs(table).max():.3g}",
            "choose the {method} temperature",
        )
    # Rounding leaves a tiny deviation in a constant column.
    constant = spread <= 1e-12 * np.abs(mean)
    unit = np.where(constant, 1.0, spread)
    return np.where(constant, 0.0, (table - mean) / unit), mean, np.where(constant, 0.0, spread)


def _unidentified(standard: Floats, spread: Floats) -> Floats:
    """Curvature [2K, 2K] along the directions that change no probability, so that there is one minimum.

    These are the same bias for all classes, the factors of constant logits, and, if all logits are linear in one
    score (two classes with logits z and -z), one combination of factors.
    """
    num_classes = len(spread)
    fixed = np.diag(np.concatenate([(spread == 0).astype(float), np.zeros(num_classes)]))
    fixed[num_classes:, num_classes:] += 1 / num_classes
    sides = standard.T @ standard[:, 0] / len(standard)
    if (np.abs(np.abs(sides) - 1) < 1e-9).all():
        fixed[:num_classes, :num_classes] += np.outer(sides, sides) / num_classes
    return fixed


def _log_probabilities(theta: Floats, part: Floats) -> Floats:
    num_classes = part.shape[1]
    scores = part * theta[:num_classes] + theta[num_classes:]
    scores -= scores.max(axis=1, keepdims=True)
    values: Floats = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return values


def _nll(theta: Floats, standard: Floats, labels: Ints) -> float:
    total = 0.0
    for rows in chunks(len(standard), standard.shape[1]):
        values = _log_probabilities(theta, standard[rows])
        total -= float(values[np.arange(len(values)), labels[rows]].sum())
    return total / len(standard)


def _derivatives(theta: Floats, standard: Floats, labels: Ints) -> tuple[Floats, Floats]:
    """Gradient [2K] and Hessian [2K, 2K] of the mean NLL."""
    num_rows, num_classes = standard.shape
    gradient, curvature = np.zeros(2 * num_classes), np.zeros((2 * num_classes, 2 * num_classes))
    diagonal = np.arange(num_classes)
    for rows in chunks(num_rows, num_classes):
        part = standard[rows]
        share = np.exp(_log_probabilities(theta, part))
        surplus = share.copy()
        surplus[np.arange(len(part)), labels[rows]] -= 1
        gradient += np.concatenate([(surplus * part).sum(axis=0), surplus.sum(axis=0)])
        both = np.concatenate([share * part, share], axis=1)
        curvature -= both.T @ both
        curvature[diagonal, diagonal] += (share * part**2).sum(axis=0)
        crossed = (share * part).sum(axis=0)
        curvature[diagonal, num_classes + diagonal] += crossed
        curvature[num_classes + diagonal, diagonal] += crossed
        curvature[num_classes + diagonal, num_classes + diagonal] += share.sum(axis=0)
    return gradient / num_rows, curvature / num_rows


def _unstandardised(theta: Floats, mean: Floats, spread: Floats) -> tuple[Floats, Floats]:
    num_classes = len(mean)
    factor: Floats = np.where(spread > 0, theta[:num_classes] / np.where(spread > 0, spread, 1), 0.0)
    bias = theta[num_classes:] - factor * mean
    return factor, bias - bias.mean()


def vector_scaled(logits: ArrayLike, factor: ArrayLike, bias: ArrayLike) -> Floats:
    """Logits [n, K] whose softmax is that of the calibrated model, in float64.

    >>> vector_scaled([[3, 0], [5, 1]], [0.5, 1.0], [0.0, 2.0]).tolist()
    [[1.5, 2.0], [2.5, 3.0]]
    """
    table: Array = as_table(logits, "logits").astype(np.float64)
    factors, biases = np.asarray(factor, dtype=np.float64), np.asarray(bias, dtype=np.float64)
    if factors.shape != table.shape[1:] or biases.shape != table.shape[1:]:
        raise ValueError(
            f"expected logits of {len(factors):,} classes, as in the rows that vector scaling was fitted to, but got"
            f" {table.shape[1]:,}"
        )
    with np.errstate(over="ignore"):  # classes masked by the lowest number stay masked
        scaled: Floats = np.clip(table * factors + biases, -LARGEST, LARGEST)
    return scaled

"""Proper scores of probability vectors: negative log-likelihood and Brier score."""

import warnings

import numpy as np

from confrank.metrics.arrays import Array, ArrayLike, Classes, Floats, Ints, as_flags, as_probabilities, chunks
from confrank.metrics.frames import same_rows
from confrank.metrics.labels import labels_for
from confrank.metrics.weights import as_weights, weighted_mean


def accuracy(correct: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float | None:
    """Share of right predictions; None for no predictions.

    >>> accuracy([True, False, True, True])
    0.75
    """
    same_rows(correct=correct, sample_weight=sample_weight)
    flags = as_flags(correct)
    if sample_weight is not None:
        return mean_of(flags.astype(np.float64), as_weights(sample_weight, len(flags)))
    return float(np.count_nonzero(flags) / len(flags)) if len(flags) else None


def nll(probabilities: ArrayLike, label: Classes, *, sample_weight: ArrayLike | None = None) -> float | None:
    """Mean of -ln p(label). A zero is clipped at the type's smallest normal number, and a warning counts them.

    >>> round(nll([[0.5, 0.5], [0.25, 0.75]], [0, 1]), 4)
    0.4904
    """
    table, labels, weights = _checked(probabilities, label, sample_weight)
    values, clipped = sample_nll(table, labels)
    if clipped:
        warnings.warn(clipping_note(clipped, values, table.dtype), stacklevel=2)
    return mean_of(values, weights)


def brier(probabilities: ArrayLike, label: Classes, *, sample_weight: ArrayLike | None = None) -> float | None:
    """Mean over samples of the squared distance to the one-hot label, summed over classes.

    >>> brier([[0.5, 0.5], [0.25, 0.75]], [0, 1])
    0.3125
    """
    table, labels, weights = _checked(probabilities, label, sample_weight)
    return mean_of(sample_brier(table, labels), weights)


def _checked(
    probabilities: ArrayLike, label: Classes, sample_weight: ArrayLike | None
) -> tuple[Array, Ints, Floats | None]:
    """Probabilities [n, K], labels [n] and weights [n], without rows of weight 0."""
    table = as_probabilities(probabilities)
    labels = labels_for(label, probabilities, {"sample_weight": sample_weight}, probabilities=table)
    if sample_weight is None:
        return table, labels, None
    weights = as_weights(sample_weight, len(labels))
    rows = weights > 0
    return table[rows], labels[rows], weights[rows]


def mean_of(values: Floats, weights: Floats | None = None) -> float | None:
    if not len(values):
        return None
    return float(values.mean()) if weights is None else weighted_mean(values, weights)


def sample_nll(table: Array, labels: Ints) -> tuple[Floats, int]:
    """-ln p(label) of each sample, and the number of p below the smallest normal number of their type."""
    picked = table[np.arange(len(labels)), labels]
    floor = np.finfo(table.dtype).tiny
    values: Floats = -np.log(np.maximum(picked, floor).astype(np.float64))
    return values, int(np.count_nonzero(picked < floor))


def clipping_note(clipped: int, values: Floats, dtype: np.dtype[np.generic]) -> str:
    """How many samples were clipped, and their share of the sum of all values."""
    floor = float(np.finfo(dtype).tiny)  # type: ignore[type-var]
    share = clipped * -np.log(floor) / values.sum()
    return (
        f"{clipped} of {len(values)} label probabilities are (nearly) zero and were clipped at {floor:.3g};"
        f" they make up {share:.1%} of the NLL; give logits to avoid this"
    )


def certain_note(values: Floats, dtype: np.dtype[np.generic]) -> list[str]:
    """How many confidences of 0 or 1 were wrong, if any, and their share of the NLL of being right."""
    largest = -np.log(float(np.finfo(dtype).tiny))  # type: ignore[type-var]
    clipped = int(np.count_nonzero(values >= largest))
    if not clipped:
        return []
    return [
        f"{clipped} of {len(values)} predictions are wrong with confidence 1 or right with confidence 0;"
        f" they make up {clipped * largest / values.sum():.1%} of the NLL of being right"
    ]


def sample_brier(table: Array, labels: Ints) -> Floats:
    """Squared distance of each row of probabilities to its one-hot label."""
    values = np.empty(len(labels))
    for rows in chunks(len(labels), table.shape[1]):
        part = table[rows].astype(np.float64)
        part[np.arange(len(part)), labels[rows]] -= 1
        np.einsum("ij,ij->i", part, part, out=values[rows])
    return values


def sample_scores_of_logits(logits: Array, labels: Ints) -> tuple[Floats, Floats, Floats]:
    """NLL, Brier score and largest softmax probability of each sample, in float64.

    The NLL never takes the logarithm of zero; it is infinite only if logits are further apart than numbers go.
    """
    nll, brier, largest = (np.empty(len(labels)) for _ in range(3))
    for rows in chunks(len(logits), logits.shape[1]):
        shifted, exponentials, total = _exponentials(logits[rows])
        nll[rows] = np.log(total) - shifted[np.arange(len(shifted)), labels[rows]]
        brier[rows] = sample_brier(exponentials / total[:, None], labels[rows])
        largest[rows] = 1 / total
    return nll, brier, largest


def largest_probability(logits: Array) -> Floats:
    """The largest softmax probability of each sample, bit for bit as in `sample_scores_of_logits`."""
    largest = np.empty(len(logits))
    for rows in chunks(len(logits), logits.shape[1]):
        largest[rows] = 1 / _exponentials(logits[rows])[2]
    return largest


def probabilities_of(logits: Array) -> Floats:
    """The softmax probabilities [n, K] of each sample; the largest is that of `largest_probability`, bit for bit."""
    table = np.empty(logits.shape)
    for rows in chunks(len(logits), logits.shape[1]):
        _, exponentials, total = _exponentials(logits[rows])
        table[rows] = exponentials / total[:, None]
    return table


def _exponentials(logits: Array) -> tuple[Floats, Floats, Floats]:
    """Logits [n, K] minus their largest, the exponentials of these, and the sum of the exponentials [n].

    They are added in ascending order, so that rows with the same logits in another order stay tied to the last digit.
    """
    shifted = logits.astype(np.float64)
    with np.errstate(over="ignore"):
        shifted -= shifted.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    in_order = exponentials if logits.shape[1] < 3 else np.sort(exponentials, axis=1)  # a + b is b + a
    return shifted, exponentials, in_order.sum(axis=1)

"""Proper scores of whole probability vectors: negative log-likelihood and Brier score."""

import warnings

import numpy as np
from numpy.typing import NDArray

from confrank.metrics.arrays import Array, as_flags, as_labels, as_probabilities, chunks, same_length


def accuracy(correct: object) -> float | None:
    """Share of right predictions; None for no predictions.

    >>> accuracy([True, False, True, True])
    0.75
    """
    flags = as_flags(correct)
    return float(np.count_nonzero(flags) / len(flags)) if len(flags) else None


def nll(probabilities: object, label: object) -> float | None:
    """Mean of -ln p(label). A zero is clipped at the type's smallest normal number, and a warning counts them.

    >>> round(nll([[0.5, 0.5], [0.25, 0.75]], [0, 1]), 4)
    0.4904
    """
    table = as_probabilities(probabilities)
    labels = as_labels(label, table.shape[1])
    same_length(probabilities=table, label=labels)
    value, clipped = clipped_nll(table, labels)
    if clipped:
        warnings.warn(clipping_note(clipped, len(labels), table.dtype), stacklevel=2)
    return value


def brier(probabilities: object, label: object) -> float | None:
    """Mean over samples of the squared distance to the one-hot label, summed over classes.

    >>> brier([[0.5, 0.5], [0.25, 0.75]], [0, 1])
    0.3125
    """
    table = as_probabilities(probabilities)
    labels = as_labels(label, table.shape[1])
    same_length(probabilities=table, label=labels)
    return brier_of(table, labels)


def clipped_nll(table: Array, labels: NDArray[np.int64]) -> tuple[float | None, int]:
    """NLL and how many label probabilities were below the smallest normal number of their type."""
    picked = table[np.arange(len(labels)), labels]
    floor = np.finfo(table.dtype).tiny
    value = float(-np.log(np.maximum(picked, floor).astype(np.float64)).mean()) if len(labels) else None
    return value, int(np.count_nonzero(picked < floor))


def clipping_note(clipped: int, total: int, dtype: np.dtype[np.generic]) -> str:
    return (
        f"{clipped} of {total} label probabilities are (nearly) zero and were clipped at {np.finfo(dtype).tiny:.3g}"  # type: ignore[type-var]
        " for the NLL; give logits to avoid this"
    )


def brier_of(table: Array, labels: NDArray[np.int64]) -> float | None:
    total = 0.0
    for rows in chunks(len(labels), table.shape[1]):
        part = table[rows].astype(np.float64)
        part[np.arange(len(part)), labels[rows]] -= 1
        total += float(np.square(part).sum())
    return total / len(labels) if len(labels) else None

"""Confidence scores of logits z [n, K] or probabilities p [n, K] -> [n], higher = more confident, in float64.

Each row is computed alone: neither the other rows nor their order change its score, not even in the last digit.
Neither does the order of the classes, except for `relu`: `confrank.scores.table` sorts the values of each row before
they are added.
"""

import numpy as np

from confrank.metrics.inputs import Floats

# Differences of logits are cut off here, so that classes masked by the lowest number give finite scores.
FARTHEST = 1e300
GAMMA, TOP = 0.1, 100
ROWS = 64


def largest(values: Floats) -> Floats:
    """The largest probability or logit."""
    top: Floats = values.max(axis=1)
    return top


def margin(values: Floats) -> Floats:
    """The largest minus the second largest probability or logit; logits may be shifted."""
    position = values.shape[1] - 2
    parts = np.partition(values, position, axis=1)
    return parts[:, position + 1] - parts[:, position]


def negative_entropy(probabilities: Floats) -> Floats:
    """1 - H(p) / ln K: 1 for a certain prediction, 0 for a uniform one."""
    logarithms = np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    negative: Floats = np.einsum("ij,ij->i", probabilities, logarithms)
    value: Floats = np.clip(1 + negative / np.log(probabilities.shape[1]), 0, 1)
    return value


def sum_of_squares(probabilities: Floats) -> Floats:
    """The sum of p^2, which ranks as DOCTOR's alpha score does (Granese et al. 2021)."""
    squares: Floats = np.einsum("ij,ij->i", probabilities, probabilities)
    return squares


def gen(probabilities: Floats, gamma: float = GAMMA, top: int = TOP) -> Floats:
    """Generalised entropy (Liu et al. 2023), negative: -sum of p^gamma (1 - p)^gamma over the `top` largest p."""
    left_out = max(0, probabilities.shape[1] - top)
    largest = np.partition(probabilities, left_out, axis=1)[:, left_out:] if left_out else probabilities
    terms: Floats = np.ascontiguousarray(np.power(largest * (1 - largest), gamma))
    value: Floats = -terms.sum(axis=1)
    return value


def energy(logits: Floats) -> Floats:
    """log sum exp z: the negative energy of Liu et al. (2020)."""
    value: Floats = logits.max(axis=1) + np.log(np.exp(shifted(logits)).sum(axis=1))
    return value


def p_norm(logits: Floats, p: float | None) -> Floats:
    """max(c) / ||c||_p of the centred logits c (Cattelan & Silva 2024); the logits may be shifted.

    p = 0 means no division. None is the fallback to the maximum probability. A row of equal logits scores 0.
    """
    if p is None:
        return tempered(shifted(logits), 1)
    centred = logits - logits.mean(axis=1, keepdims=True)
    largest: Floats = centred.max(axis=1)
    if p == 0:
        return largest
    magnitudes = np.abs(centred, out=centred)
    unit = magnitudes.max(axis=1)  # divided by it, no power overflows
    unit[unit == 0] = 1
    magnitudes /= unit[:, None]
    norm = np.power(np.power(magnitudes, p).sum(axis=1), 1 / p)
    norm[norm == 0] = 1
    value: Floats = largest / unit / norm
    return value


def tempered(shifted_logits: Floats, temperature: float) -> Floats:
    """The largest probability of softmax(z / temperature), from logits whose largest is 0."""
    with np.errstate(over="ignore"):
        exponentials = np.exp(shifted_logits / temperature)
    probability: Floats = 1 / exponentials.sum(axis=1)
    return probability


def relu(probabilities: Floats, matrix: Floats) -> Floats:
    """Relative uncertainty (Dadalto et al. 2023), negative: -p' D p with a fitted matrix D [K, K]."""
    size, num_classes = probabilities.shape
    # All products have the same number of rows: otherwise the last digit would depend on a row's position.
    padded = np.zeros((-(-size // ROWS) * ROWS, num_classes))
    padded[:size] = probabilities
    products = (padded.reshape(-1, ROWS, num_classes) @ matrix).reshape(-1, num_classes)[:size]
    value: Floats = -np.einsum("ij,ij->i", products, probabilities)
    return value


def softmax(shifted_logits: Floats) -> Floats:
    """Probabilities from logits whose largest is 0."""
    exponentials: Floats = np.exp(shifted_logits)
    exponentials /= exponentials.sum(axis=1, keepdims=True)
    return exponentials


def shifted(logits: Floats) -> Floats:
    """Logits minus the largest of their row: 0 or less, and finite."""
    with np.errstate(over="ignore"):
        differences: Floats = logits - logits.max(axis=1, keepdims=True)
    return np.maximum(differences, -FARTHEST)

"""Nonconformity: how badly each class fits a row, and the quantile that decides which classes are in its set.

With p the probability of a class: LAC is 1 - p (Sadinle et al. 2019); APS is the sum of all larger probabilities plus
u p, u uniform (Romano et al. 2020); RAPS adds `penalty` for each rank beyond `free_rank` (Angelopoulos et al. 2021).
"""

import math
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from confrank.decisions.rows import mixed
from confrank.metrics.inputs import Array, Flags, Floats

SetMethod = Literal["lac", "aps", "raps"]
SET_METHODS: tuple[SetMethod, ...] = ("lac", "aps", "raps")
PENALTY, FREE_RANK = 0.01, 5


def nonconformity(
    probabilities: Floats, uniform: Floats, method: SetMethod, penalty: float = PENALTY, free_rank: int = FREE_RANK
) -> Floats:
    """How badly each class fits its row [n, K]; `uniform` [n] is the u of APS and RAPS. Tied classes fit equally.

    >>> table = np.array([[0.5, 0.2, 0.3]])
    >>> nonconformity(table, np.array([0.5]), "lac").round(3).tolist()
    [[0.5, 0.8, 0.7]]
    >>> nonconformity(table, np.array([0.5]), "aps").round(3).tolist()
    [[0.25, 0.9, 0.65]]
    >>> nonconformity(table, np.array([0.5]), "raps", penalty=0.1, free_rank=1).round(3).tolist()
    [[0.25, 1.1, 0.75]]
    """
    if method == "lac":
        return 1 - probabilities
    order = np.argsort(-probabilities, axis=1)
    ranked = np.take_along_axis(probabilities, order, axis=1)
    is_new = np.ones(ranked.shape, dtype=bool)
    is_new[:, 1:] = ranked[:, 1:] < ranked[:, :-1]
    larger = np.zeros(ranked.shape)
    np.cumsum(ranked[:, :-1], axis=1, out=larger[:, 1:])
    scores = np.maximum.accumulate(np.where(is_new, larger, 0), axis=1) + uniform[:, None] * ranked
    if method == "raps":
        rank = 1 + np.maximum.accumulate(np.where(is_new, np.arange(ranked.shape[1]), 0), axis=1)
        scores += penalty * np.maximum(0, rank - free_rank)
    result = np.empty(ranked.shape)
    np.put_along_axis(result, order, scores, axis=1)
    return result


def row_uniforms(key: Array, seed: int) -> Floats:
    """A number in [0, 1) for each key [n] (names or integers), from a hash of the seed and the key.

    It must never change between versions: policies rely on it.

    >>> row_uniforms(np.array(["7", "b.png"]), 0).round(3).tolist(), row_uniforms(np.array([7]), 0).round(3).tolist()
    ([0.319, 0.643], [0.319])
    """
    texts = key.astype("S21") if key.dtype.kind in "iu" else key
    texts = texts if texts.dtype.kind == "S" else np.char.encode(texts.astype(str), "utf-8")
    width = 8 * -(-max(1, texts.dtype.itemsize) // 8)
    words = np.ascontiguousarray(texts.astype(f"S{width}")).view("<u8").reshape(len(texts), -1).astype(np.uint64)
    # Words of padding do not count: their number depends on the longest key of the file.
    return _uniforms(words, np.logical_or.accumulate(words[:, ::-1] != 0, axis=1)[:, ::-1], seed)


def content_uniforms(probabilities: Floats, seed: int) -> Floats:
    """A number in [0, 1) for each row of a table [n, K], from a hash of the seed and the row in single precision.

    Rows without keys use it. It depends on the row alone, so calibration rows and new ones have exchangeable
    nonconformities, however many rows are in a call; equal rows get equal numbers. It must never change either.

    >>> content_uniforms(np.array([[0.5, 0.2, 0.3], [0.5, 0.3, 0.2]]), 0).round(3).tolist()
    [0.133, 0.976]
    """
    numbers = probabilities.astype("<f4") + np.float32(0)  # -0.0 becomes 0.0
    padded = np.pad(numbers, ((0, 0), (0, numbers.shape[1] % 2)))
    words = np.ascontiguousarray(padded).view("<u8").astype(np.uint64)
    return _uniforms(words, np.ones(words.shape, dtype=bool), seed)


def file_seed(values: Array, seed: int) -> int:
    """A seed for `row_uniforms` from a seed and the values [n] of the calibration rows, in any order.

    Keys are often row numbers. With one seed for all files, the u of small calibration files would be the same
    numbers every time, and coverage too low or too high in all of them.

    >>> file_seed(np.array([0.5, 0.25]), 0), file_seed(np.array([0.25, 0.5]), 0), file_seed(np.array([0.5, 0.5]), 0)
    (1297283407, 1297283407, 4046501522)
    """
    with np.errstate(over="ignore"):  # logits may be too large for single precision
        words = content_uniforms(values[:, None], seed) * 2.0**53
    return int(words.astype(np.uint64).sum(dtype=np.uint64) % np.uint64(1 << 32))


def _uniforms(words: NDArray[np.uint64], counts: Flags, seed: int) -> Floats:
    """A number in [0, 1) for each row of words [n, m], from a hash of the seed and the words that count [n, m]."""
    total = np.broadcast_to(mixed(np.array([seed], dtype=np.uint64)), len(words))
    for word, is_counted in zip(words.T, counts.T, strict=True):
        total = np.where(is_counted, mixed(total ^ word), total)
    return (mixed(total) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def conformal_quantile(scores: Floats, level: float) -> float:
    """The ceil((n + 1) level)-th smallest of n scores; infinite if there are too few.

    >>> conformal_quantile(np.arange(9.0), 0.9), conformal_quantile(np.arange(8.0), 0.9)
    (8.0, inf)
    """
    rank = math.ceil(_exact(level) * (len(scores) + 1))
    return float(np.partition(scores, rank - 1)[rank - 1]) if rank <= len(scores) else math.inf


def calibration_rows_needed(level: float) -> int:
    """The smallest number of rows with a finite quantile.

    >>> calibration_rows_needed(0.9), calibration_rows_needed(0.95)
    (9, 19)
    """
    return math.ceil(_exact(level) / (1 - _exact(level)))


def _exact(level: float) -> Fraction:
    """The level as it is written: 0.9 is nine tenths."""
    return Fraction(repr(float(level)))

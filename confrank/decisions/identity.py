"""Which rows two files have in common: by their ids, or by what they contain.

Two rows are the same if they have the same id and nearly the same answer, or the same content: the table, or the
predicted class and its confidence. Labels do not count, so that rows with corrected labels are recognised. Hashes
must never change between versions: policies store them.
"""

import base64
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, softmax

from confrank.decisions.rows import Hashes, Sample, Sketch, mixed
from confrank.metrics.inputs import Flags, Ints
from confrank.predictions import Predictions
from confrank.predictions.predictions import as_keys

SKETCH_SIZE = 256
# Two files share rows if chance explains their common contents with less than this probability.
CHANCE = 1e-6
# Rows with the same id are the same if their confidences differ by at most this: two decimals are enough.
TOLERANCE = 0.006
# Of the rows that share an id, this share must have the same answer: otherwise the ids name different samples.
SAME_ANSWERS = 0.9
# A content that occurs more often is not a copied row: a tree, for one, gives all rows of a leaf the same content.
MOST_COPIES = 10
BLOCK = 1 << 16


@dataclass(frozen=True)
class Identity:
    """What identifies each row [n]: hashes of its content, of the content with three decimals, and of its id.

    `rounded` is None without a table, and `keys` without ids, or if these are whole numbers: row numbers identify
    nothing. `confidence` is that of the predicted class, plus twice the number of this class if there is a table.
    `distinct` flags contents that only copies share.
    """

    content: Hashes
    confidence: NDArray[np.float32]
    distinct: Flags
    rounded: Hashes | None = None
    keys: Hashes | None = None

    def select(self, rows: Ints) -> "Identity":
        rounded, keys = (None if one is None else one[rows] for one in (self.rounded, self.keys))
        return Identity(self.content[rows], self.confidence[rows], self.distinct[rows], rounded, keys)

    @property
    def total(self) -> str:
        """A hash of all contents in any order."""
        return f"{int(mixed(self.content).sum(dtype=np.uint64)):016x}"


def identity_of(predictions: Predictions) -> Identity:
    """The identity of each row of a file."""
    keys, table = _key_hashes(predictions.key), predictions.table
    if table is None:
        return replace(_bare_identity(predictions), keys=keys)
    starts = range(0, max(1, len(table)), BLOCK)
    is_logits = predictions.logits is not None
    blocks = [_table_identity(table[start : start + BLOCK], is_logits=is_logits) for start in starts]
    content, confidence, distinct, rounded = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
    return Identity(content, confidence, distinct, rounded, keys)


def _bare_identity(predictions: Predictions) -> Identity:
    values: Any = predictions.confidence
    content = _single_precision_hashes(np.asarray(values))
    if predictions.prediction is not None:
        content = mixed(content ^ _class_hashes(predictions.prediction, predictions.class_names))
    return Identity(content, np.asarray(values, dtype=np.float32), np.zeros(len(content), dtype=bool))


def _table_identity(table: NDArray[Any], *, is_logits: bool) -> tuple[NDArray[Any], ...]:
    """Content, confidence, `distinct` and rounded content of the rows of a table [n, K]."""
    shares = softmax(table.astype(np.float64), axis=1) if is_logits else table.astype(np.float64)
    thousandths = np.rint(1000 * shares)
    # Three classes with a share, and more than three decimals: different samples hardly ever agree in these.
    distinct = ((thousandths >= 5).sum(axis=1) >= 3) & (np.abs(1000 * shares - thousandths) > 1e-3).any(axis=1)
    confidence = (2 * shares.argmax(axis=1) + shares.max(axis=1)).astype(np.float32)
    return _single_precision_hashes(table), confidence, distinct, _hashes(_words(thousandths.astype("<u2")))


def _single_precision_hashes(values: NDArray[Any]) -> Hashes:
    """A hash of each row in single precision: formats differ in the digits beyond."""
    with np.errstate(over="ignore"):
        columns = values[:, None] if values.ndim == 1 else values
        numbers = columns.astype("<f4") + np.float32(0)  # -0.0 becomes 0.0
    return _hashes(_words(numbers))


def _class_hashes(numbers: NDArray[Any], names: list[str] | None) -> Hashes:
    different, codes = np.unique(numbers, return_inverse=True)
    known = names is not None and len(different) and different[0] >= 0 and different[-1] < len(names)
    texts = np.asarray(names)[different.astype(np.int64)] if known else different.astype(np.int64)
    return _text_hashes(as_keys(texts))[codes]


def _key_hashes(keys: NDArray[Any] | None) -> Hashes | None:
    """A hash of each id; None if there are none, or all are whole numbers."""
    return None if keys is None or np.char.isdigit(keys).all() else _text_hashes(keys)


def _text_hashes(texts: NDArray[Any]) -> Hashes:
    return _hashes(
        _words(np.ascontiguousarray(texts).view(np.uint8).reshape(len(texts), texts.itemsize)), skip_zeros=True
    )


def _words(values: NDArray[Any]) -> Hashes:
    """The bytes of each row [n, K] as 64-bit numbers [n, W], filled with zeros."""
    per_word = 8 // values.itemsize
    padded = np.pad(values, ((0, 0), (0, -values.shape[1] % per_word)))
    return np.ascontiguousarray(padded).view("<u8").astype(np.uint64)


def _hashes(words: Hashes, *, skip_zeros: bool = False) -> Hashes:
    """A hash of each row; with `skip_zeros`, zeros at the end do not matter."""
    total = np.zeros(len(words), dtype=np.uint64)
    for column in words.T:
        new = mixed(total ^ column)
        total = np.where(column == 0, total, new) if skip_zeros else new
    return total


def copied_from(identity: Identity) -> Ints:
    """The first row [n] of which each row is a copy; the row itself if it is none."""
    first = np.arange(len(identity.content))
    rows = np.flatnonzero(identity.distinct)
    _, start, codes, counts = np.unique(
        identity.content[rows], return_index=True, return_inverse=True, return_counts=True
    )
    first[rows] = np.where(counts[codes] <= MOST_COPIES, rows[start][codes], rows)
    return first


def sketch_of(identity: Identity, rows: Ints) -> Sketch:
    """The sketch of some rows of a file, without the copies among them."""
    used = identity.select(rows[copied_from(identity)[rows] == rows])
    rounded = None if used.rounded is None else _sample(used.rounded)
    keys, confidences = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.float32)
    if used.keys is not None:
        order = np.argsort(used.keys)[:SKETCH_SIZE]
        keys, confidences = used.keys[order], used.confidence[order]
    return Sketch(
        len(used.content),
        identity.total,
        _sample(used.content),
        rounded,
        _encoded(keys, "<u8"),
        _encoded(confidences, "<f4"),
    )


def _sample(hashes: Hashes) -> Sample:
    contents, counts = np.unique(hashes, return_counts=True)
    once = contents[counts == 1]
    return Sample(_encoded(once[:SKETCH_SIZE], "<u8"), len(once), int(np.count_nonzero(counts == 2)))


def _encoded(values: NDArray[Any], dtype: str) -> str:
    return base64.b64encode(values.astype(dtype).tobytes()).decode()


def _decoded(text: str, dtype: str = "<u8") -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(text), dtype=dtype).astype(dtype[1:])


def shares_rows(sketch: Sketch, identity: Identity) -> bool:
    """Whether a file contains rows of the sketch: more of them than chance explains."""
    if sketch.total == identity.total or _shares_ids(sketch, identity.keys, identity.confidence):
        return True
    pairs = ((sketch.content, identity.content), (sketch.rounded, identity.rounded))
    return any(_shares_contents(sample, hashes, len(identity.content) / sketch.rows) for sample, hashes in pairs)


def sketches_share(first: Sketch, second: Sketch) -> bool:
    """Whether two sketches are of common rows: `shares_rows` for rows that are no longer at hand."""
    if first.total == second.total:
        return True
    pairs = ((first.content, second.content), (first.rounded, second.rounded))
    return _shares_ids(first, _decoded(second.keys), _decoded(second.confidences, "<f4")) or any(
        _shares_contents(sample, _decoded(other.hashes), second.rows / first.rows, sampled=True)
        for sample, other in pairs
        if other is not None
    )


def _shares_ids(sketch: Sketch, keys: Hashes | None, confidence: NDArray[np.float32]) -> bool:
    """Whether there are common ids, and nearly all of them have the same answer in both."""
    if keys is None or not sketch.keys:
        return False
    _, mine, others = np.intersect1d(_decoded(sketch.keys), keys, return_indices=True)
    same = np.abs(_decoded(sketch.confidences, "<f4")[mine] - confidence[others]) <= TOLERANCE
    return bool(len(same) and same.mean() >= SAME_ANSWERS)


def _shares_contents(sample: Sample | None, contents: Hashes | None, ratio: float, *, sampled: bool = False) -> bool:
    """Whether more of the sample occur than chance explains, in `ratio` times as many rows or their sample."""
    if sample is None or contents is None or not len(contents):
        return False
    known = _decoded(sample.hashes)
    if sampled and len(contents) >= SKETCH_SIZE:  # it has all hashes up to its largest
        known = known[known <= contents.max()]
    common = int(np.isin(known, contents).sum())
    # P(Bin(k, chance) >= common)
    return bool(common and bdtrc(common - 1, len(known), min(1.0, ratio * _coincidence(sample))) < CHANCE)


def _coincidence(sample: Sample) -> float:
    """The expected number of times that a content that occurs once occurs among as many other rows (Good-Turing)."""
    return 2 * (sample.twice + 1) / (sample.once + 1)


def tells_rows_apart(sketch: Sketch) -> bool:
    """Whether single rows of the sketch can be recognised in another file."""
    samples = [sample for sample in (sketch.content, sketch.rounded) if sample is not None]
    return bool(sketch.keys) or any(_coincidence(sample) < 0.5 for sample in samples)

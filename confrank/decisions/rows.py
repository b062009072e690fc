"""Which rows of a file a decision used: seeded halves, a digest of the file, and a sketch that recognises its rows.

A guarantee is void on rows that chose or fitted anything. Parts that are fitted or chosen use the design half of a
file, and guarantees its other half, the promise half. Halves, digests and sketches must never change between
versions: policies store them.
"""

import base64
import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from confrank.decisions.drift import Reference
from confrank.predictions import Predictions

Half = Literal["all", "design", "promise"]
Positions = NDArray[np.int64]
Hashes = NDArray[np.uint64]
# The arrays that make up the content of a file.
CONTENT = ("logits", "probabilities", "confidence", "prediction", "label", "correct")
SKETCH_SIZE = 256
# Two files share rows if chance explains their common contents with less than this probability.
CHANCE = 1e-6


@dataclass(frozen=True)
class Sketch:
    """A sample of the rows that a part saw: the smallest hashes of contents that occur once, in base64.

    `once` and `twice` count the contents that occur that often among `rows` rows: from them follows how many contents
    another file shares by chance.
    """

    hashes: str
    once: int
    twice: int
    rows: int


@dataclass(frozen=True)
class Rows:
    """The rows that a part used: `used` of the `n` rows of a file, in the half that `seed` gives.

    `reference` holds quantiles of their confidences, with which the monitor compares new ones.
    """

    file: str
    digest: str
    n: int
    used: int
    half: Half
    seed: int
    sketch: Sketch | None = None
    reference: Reference | None = None


def design_rows(num_rows: int, seed: int = 0) -> NDArray[np.bool_]:
    """Which rows [n] belong to the design half: half of them, chosen by hashes of the seed and their positions.

    >>> design_rows(8).astype(int).tolist(), int(design_rows(9, seed=1).sum())
    ([0, 1, 0, 0, 1, 1, 0, 1], 4)
    """
    if seed < 0:
        raise ValueError(f"expected a seed of 0 or more, but got {seed}")
    positions = np.arange(num_rows, dtype=np.uint64)
    order = np.argsort(mixed(positions ^ mixed(np.array([seed], dtype=np.uint64))), kind="stable")
    chosen = np.zeros(num_rows, dtype=bool)
    chosen[order[: num_rows // 2]] = True
    return chosen


def file_digest(predictions: Predictions) -> str:
    """SHA-256 of the predictions and labels of a file, with their types and shapes."""
    digest = hashlib.sha256()
    for name, values in predictions.arrays().items():
        if name in CONTENT:
            digest.update(f"{name} {values.dtype.str} {values.shape};".encode())
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def sketch_of(predictions: Predictions, rows: Positions) -> Sketch:
    """The sketch of some rows of a file."""
    contents, counts = np.unique(_row_hashes(predictions, rows), return_counts=True)
    once = contents[counts == 1]
    encoded = base64.b64encode(once[:SKETCH_SIZE].astype("<u8").tobytes()).decode()
    return Sketch(encoded, len(once), int(np.count_nonzero(counts == 2)), len(rows))


def shares_rows(sketch: Sketch, predictions: Predictions, rows: Positions) -> bool:
    """Whether these rows contain more of the sketched contents than chance explains.

    A content that occurs once among m rows has a probability of about 2 twice / (once m) (Good-Turing). Labels do not
    count, so that a file with corrected labels is recognised.
    """
    known = np.frombuffer(base64.b64decode(sketch.hashes), dtype="<u8").astype(np.uint64)
    if not len(known):
        return False
    common = int(np.isin(known, _row_hashes(predictions, rows)).sum())
    chance = 2 * (sketch.twice + 1) / (sketch.once + 1) * len(rows) / sketch.rows
    # P(Bin(k, chance) >= common)
    return bool(common and bdtrc(common - 1, len(known), min(1.0, chance)) < CHANCE)


def _row_hashes(predictions: Predictions, rows: Positions) -> Hashes:
    """A hash of each row's table, or of its confidence, in single precision: formats differ in the digits beyond."""
    values: Any = predictions.confidence if predictions.table is None else predictions.table
    with np.errstate(over="ignore"):
        numbers = np.asarray(values)[rows].reshape(len(rows), -1).astype("<f4") + np.float32(0)  # -0.0 becomes 0.0
    words = np.pad(numbers, ((0, 0), (0, numbers.shape[1] % 2))).view("<u8").astype(np.uint64)
    total = np.zeros(len(rows), dtype=np.uint64)
    for column in words.T:
        total = mixed(total ^ column)
    return total


def mixed(words: Hashes) -> Hashes:
    """SplitMix64 (Steele et al. 2014): 64-bit numbers -> 64-bit numbers without visible pattern."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))

"""Which rows of a file a decision used: seeded halves, a digest of the file, and the record of the rows.

A guarantee is void on rows that chose or fitted anything. Parts that are fitted or chosen use the design half of a
file, and guarantees its other half, called "promise" in files. Halves and digests must never change between
versions: policies store them.
"""

import hashlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from confrank.decisions.drift import Reference
from confrank.metrics.inputs import Flags
from confrank.predictions import Predictions

Half = Literal["all", "design", "promise"]
Hashes = NDArray[np.uint64]
# The arrays that make up the content of a file.
CONTENT = ("logits", "probabilities", "confidence", "prediction", "label", "correct")


@dataclass(frozen=True)
class Sample:
    """The smallest hashes of contents that occur once, in base64.

    `once` and `twice` count the contents that occur that often: from them follows how many contents another file
    shares by chance.
    """

    hashes: str
    once: int
    twice: int


@dataclass(frozen=True)
class Sketch:
    """What recognises `rows` different rows that a part used; `identity` makes and compares it.

    `total` is a hash of all rows of their file in any order. `content` samples what rows contain, and `rounded` the
    same with three decimals. `keys` are the smallest hashes of the rows' ids, and `confidences` those of these rows.
    """

    rows: int
    total: str
    content: Sample
    rounded: Sample | None = None
    keys: str = ""
    confidences: str = ""


@dataclass(frozen=True)
class UsedRows:
    """The rows that a part used: `used` of the `n` rows of a file, in the half that `seed` gives.

    `reference` holds quantiles of their confidences, with which the monitor compares new ones. `notes` are what a
    reader should know about these rows.
    """

    file: str
    digest: str
    n: int
    used: int
    half: Half
    seed: int
    sketch: Sketch | None = None
    reference: Reference | None = None
    notes: tuple[str, ...] = ()


def design_rows(num_rows: int, seed: int = 0) -> Flags:
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


def mixed(words: Hashes) -> Hashes:
    """SplitMix64 (Steele et al. 2014): 64-bit numbers -> 64-bit numbers without visible pattern."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))

"""Which rows of a file a new part of a policy may use."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from confrank.decisions.policy_parts import FEEDS, WORDS, Part
from confrank.decisions.rows import Half, Positions, Rows, design_rows, file_digest, shares_rows, sketch_of
from confrank.phrasing import InputError
from confrank.predictions import Predictions

Parts = Mapping[str, Part]


def usable_rows(
    parts: Parts,
    predictions: Predictions,
    kind: Literal["design", "promise"],
    *,
    file: str = "",
    seed: int = 0,
    every: bool = False,
) -> tuple[Positions, Rows]:
    """The positions of the rows that a new part may use, and the record of them; see `Policy.usable`."""
    digest, num_rows = file_digest(predictions), len(predictions)
    seen = [part.rows for part in parts.values() if part.rows is not None and part.rows.digest == digest]
    seed = next((rows.seed for rows in seen), seed)
    half: Half = "all" if every else "design"
    if kind == "promise":
        half = _promise_half(_upstream(parts), predictions, digest, file)
    chosen = design_rows(num_rows, seed)
    flags = chosen if half == "design" else ~chosen if half == "promise" else np.ones(num_rows, dtype=bool)
    if not flags.any():
        raise InputError(f"expected rows for both halves of {file or 'the file'}, but it has {num_rows}", "add rows")
    index = np.flatnonzero(flags)
    sketch = sketch_of(predictions, index) if kind == "design" else None
    return index, Rows(Path(file).name, digest, num_rows, len(index), half, seed, sketch)


def _upstream(parts: Parts) -> dict[str, Rows]:
    """The rows that calibrators and scores saw: these change what a guarantee is about."""
    return {slot: part.rows for slot, part in parts.items() if slot in FEEDS and part.rows is not None}


def _promise_half(upstream: Mapping[str, Rows], predictions: Predictions, digest: str, file: str) -> Half:
    """The rows that no part upstream saw; an error if there are none, or if nobody knows which they are."""
    half: Half = "all"
    for slot, rows in upstream.items():
        if rows.digest == digest and rows.half != "design":
            raise InputError(
                f"expected rows that no part of the policy saw, but {WORDS[slot]} used all rows of"
                f" {file or 'this file'}, and a guarantee is void on them",
                "use another file",
            )
        if rows.digest == digest:
            half = "promise"
        elif rows.sketch is not None and shares_rows(rows.sketch, predictions, np.arange(len(predictions))):
            raise InputError(
                f"expected rows that no part of the policy saw, but {file or 'this file'} shares rows with"
                f" {rows.file or 'the file'} that {WORDS[slot]} was fitted to or chosen on, and a guarantee is void"
                " on them",
                f"use other rows, or {rows.file or 'that file'} itself, whose unused half the policy knows",
            )
    return half


def check_rows(part: Part, parts: Parts) -> None:
    """Raise if a guarantee rests on rows that a calibrator or score saw."""
    rows = part.rows
    if not part.promise or rows is None:
        return
    for slot, seen in _upstream(parts).items():
        apart = (seen.half, rows.half, seen.seed) == ("design", "promise", rows.seed)
        if seen.digest == rows.digest and not apart:
            raise InputError(
                f"expected a guarantee on rows that no part saw, but {WORDS[slot]} saw some of them",
                "take the rows from policy.usable(predictions, 'promise')",
            )

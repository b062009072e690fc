"""Which rows of a file a new part of a policy may use."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from confrank.decisions.identity import (
    Identity,
    copied_from,
    identity_of,
    shares_rows,
    sketch_of,
    sketches_share,
    tells_rows_apart,
)
from confrank.decisions.policy_parts import FEEDS, WORDS, Part
from confrank.decisions.rows import Half, Sketch, UsedRows, design_rows, file_digest
from confrank.errors import InputError
from confrank.metrics.inputs import Ints
from confrank.predictions import Predictions

Parts = Mapping[str, Part]
# More copies than this share of the rows are worth a note.
MOST_COPIED = 0.01


def usable_rows(
    parts: Parts,
    predictions: Predictions,
    kind: Literal["design", "promise"],
    *,
    file: str = "",
    seed: int = 0,
    every: bool = False,
) -> tuple[Ints, UsedRows]:
    """The positions of the rows that a new part may use, and the record of them; see `Policy.usable`."""
    digest, num_rows, identity = file_digest(predictions), len(predictions), identity_of(predictions)
    seeds = [part.rows.seed for part in parts.values() if part.rows is not None and part.rows.digest == digest]
    used_seed, origin = next(iter(seeds), seed), copied_from(identity)
    half: Half = "all" if every else "design"
    if kind == "promise":
        half = _promise_half(_upstream(parts), identity, digest, file)
    chosen = design_rows(num_rows, used_seed)[origin]  # copies of a row are in the same half
    flags = chosen if half == "design" else ~chosen if half == "promise" else np.ones(num_rows, dtype=bool)
    if not flags.any():
        raise InputError(f"expected rows for both halves of {file or 'the file'}, but it has {num_rows}", "add rows")
    index = np.flatnonzero(flags)
    sketch = sketch_of(identity, index)
    notes = [*_seed_notes(seed, used_seed, half)]
    notes += copy_notes(origin, index) if kind == "promise" else _likeness_notes(sketch)
    rows = UsedRows(Path(file).name, digest, num_rows, len(index), half, used_seed, sketch, notes=tuple(notes))
    return index, rows


def _seed_notes(seed: int, used: int, half: Half) -> Iterator[str]:
    if seed != used and half != "all":
        yield f"the policy already splits this file with seed {used}, so seed {seed} was not used"


def copy_notes(origin: Ints, rows: Ints) -> Iterator[str]:
    """What voids a guarantee on these rows of a file without anybody noticing; `origin` [n] is `copied_from`."""
    num_copied = int(np.count_nonzero(origin[rows] != rows))
    if num_copied > MOST_COPIED * len(rows):
        yield (
            f"{num_copied:,} of {len(rows):,} rows repeat another row exactly; a guarantee assumes independent rows,"
            " so remove the copies"
        )


def _likeness_notes(sketch: Sketch) -> Iterator[str]:
    if not tells_rows_apart(sketch):
        yield (
            "many rows are alike and have no ids, so the policy recognises them only in a copy of the complete file;"
            " do not use them for a guarantee"
        )


def made_on(used: Iterable[UsedRows], predictions: Predictions) -> bool:
    """Whether a decision used rows of this file, in any order."""
    digest, identity = file_digest(predictions), identity_of(predictions)
    return any(
        rows.digest == digest or (rows.sketch is not None and shares_rows(rows.sketch, identity)) for rows in used
    )


def _upstream(parts: Parts) -> dict[str, UsedRows]:
    """The rows that calibrators and scores saw: these change what a guarantee is about."""
    return {slot: part.rows for slot, part in parts.items() if slot in FEEDS and part.rows is not None}


def _promise_half(upstream: Mapping[str, UsedRows], identity: Identity, digest: str, file: str) -> Half:
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
        elif rows.sketch is not None and shares_rows(rows.sketch, identity):
            raise _shared(slot, rows, file, len(identity.content))
    return half


def _shared(slot: str, rows: UsedRows, file: str, num_rows: int) -> InputError:
    """Why a guarantee cannot use a file with rows that a part saw."""
    if rows.file and rows.file == Path(file).name and rows.n == num_rows:
        return InputError(
            f"expected rows that no part of the policy saw, but {file} has changed since {WORDS[slot]} was fitted to"
            " or chosen on its rows, so its unused half is no longer known",
            "start a new policy with the changed file, or use other rows",
        )
    itself = f", or {rows.file or 'that file'} itself, whose unused half the policy knows"
    return InputError(
        f"expected rows that no part of the policy saw, but {file or 'this file'} shares rows with"
        f" {rows.file or 'the file'} that {WORDS[slot]} was fitted to or chosen on, and a guarantee is void"
        " on them",
        "use other rows" + (itself if rows.half == "design" else ""),
    )


def check_rows(part: Part, parts: Parts) -> None:
    """Raise if a guarantee rests on rows that a calibrator or score saw, or on rows that nobody knows."""
    upstream = _upstream(parts) if part.promise else {}
    for slot, seen in upstream.items():
        if part.rows is None:
            raise InputError(
                f"expected the rows that the guarantee was computed on, because {WORDS[slot]} was fitted to or chosen"
                " on rows, but got none",
                "take them from policy.usable(predictions, 'promise')",
            )
        if _overlap(seen, part.rows):
            raise InputError(
                f"expected a guarantee on rows that no part saw, but {WORDS[slot]} saw some of them",
                "take the rows from policy.usable(predictions, 'promise')",
            )


def _overlap(seen: UsedRows, rows: UsedRows) -> bool:
    if seen.digest == rows.digest:
        return (seen.half, rows.half, seen.seed) != ("design", "promise", rows.seed)
    return seen.sketch is not None and rows.sketch is not None and sketches_share(seen.sketch, rows.sketch)


def assumption_notes(predictions: Predictions, policy: object = None) -> list[str]:
    """What a guarantee on these rows assumes and they do not show; the notes of a policy say which are copies."""
    notes = predictions.dependence_notes("the guarantee does not hold: it takes rows as independent")
    if policy is None:
        copies = copy_notes(copied_from(identity_of(predictions)), np.arange(len(predictions)))
        notes += [f"note: {note}" for note in copies]
    return notes

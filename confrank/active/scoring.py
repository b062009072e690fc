"""A network on a whole pool, chunk by chunk: each finished chunk is a file, so that a stopped query can resume."""

import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from confrank.active.pool import SamplePool
from confrank.active.selection import values_of
from confrank.active.strategies import Rows, Strategy
from confrank.data import Split
from confrank.data.sets import Inputs
from confrank.files import write_atomically
from confrank.metrics.inputs import to_numpy
from confrank.predictions import Array
from confrank.runs.trained import Trained

CHUNK_ROWS = 4096
CHUNK_BYTES = 1 << 26
BATCH_SIZE = 500
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Scored:
    """The readable rows [n], their values (confidence [n] or features [n, d]), and why the others are unreadable."""

    rows: Rows
    values: Array
    unreadable: list[str]


def score_pool(
    pool: SamplePool,
    trained: Trained,
    strategy: Strategy,
    rows: Rows,
    folder: Path,
    key: dict[str, Any],
    *,
    on_progress: Progress | None = None,
) -> Scored:
    """Score ascending `rows` of a pool, chunk by chunk.

    `folder` holds the finished chunks; chunks with another `key` are removed.
    """
    size = chunk_size(trained.provenance.input_shape)
    _prepare(folder, {**key, "chunk": size})
    chunks = {number: rows[start : start + size] for number, start in enumerate(range(0, len(rows), size))}
    files = {number: folder / f"chunk-{number:06d}.npz" for number in chunks}
    missing = {number: chunk for number, chunk in chunks.items() if not files[number].exists()}
    done, report = len(rows) - sum(map(len, missing.values())), on_progress or (lambda done, total: None)
    report(done, len(rows))
    for number, content in _score(pool, trained, strategy, missing) if missing else ():
        write_atomically(files[number], content)
        done += len(chunks[number])
        report(done, len(rows))
    return _joined([*files.values()])


def _score(
    pool: SamplePool, trained: Trained, strategy: Strategy, chunks: Mapping[int, Rows]
) -> Iterator[tuple[int, bytes]]:
    """The number of each chunk (ascending rows) and the content of its file."""
    inputs = pool.inputs(np.concatenate([*chunks.values()]), trained.provenance)
    for number, rows in chunks.items():
        read, good, bad = _read_chunk(inputs, rows)
        unknown = np.zeros(len(read), dtype=np.int64)
        # The seed of a stochastic method is the number of the chunk: the order of the chunks does not matter.
        values = values_of(strategy, trained, Split(read, unknown, unknown), batch_size=BATCH_SIZE, seed=number)
        content = io.BytesIO()
        np.savez(content, rows=good, values=to_numpy(values), unreadable=np.array(bad, dtype=str))
        yield number, content.getvalue()


def chunk_size(input_shape: Sequence[int]) -> int:
    """How many samples are decoded at once: 4,096, or as many images as fit into 64 MB.

    >>> chunk_size([32, 32, 3]), chunk_size([512, 512, 3])
    (4096, 85)
    """
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // int(np.prod(input_shape))))


def _read_chunk(inputs: Iterator[Inputs | ValueError], rows: Rows) -> tuple[Inputs, Rows, list[str]]:
    """The readable samples of these rows as the network takes them, their rows, and why others are unreadable."""
    read: Inputs = np.empty((0, 1, 1, 1), dtype=np.uint8)
    good: list[int] = []
    bad: list[str] = []
    for row in rows.tolist():
        sample = next(inputs)
        if isinstance(sample, ValueError):
            bad.append(str(sample))
            continue
        if not good:
            read = np.empty((len(rows), *sample.shape), dtype=sample.dtype)
        read[len(good)] = sample  # a copy: the pool may share memory between samples
        good.append(row)
    return read[: len(good)], np.array(good, dtype=np.int64), bad


def _prepare(folder: Path, key: dict[str, Any]) -> None:
    """Reuse the folder's chunks if they have this key; otherwise remove them."""
    path, text = folder / "key.json", json.dumps(key, indent=1, sort_keys=True) + "\n"
    if not path.exists() or path.read_text() != text:
        if folder.exists() and any(
            not item.name.startswith(("chunk-", "key.json", ".")) for item in folder.iterdir()
        ):
            raise ValueError(f"expected a new folder or one with scores, but {folder} holds other files")
        shutil.rmtree(folder, ignore_errors=True)
        write_atomically(path, text)


def _joined(files: Sequence[Path]) -> Scored:
    rows, values, unreadable = [], [], list[str]()
    for file in files:
        with np.load(file) as part:
            if len(part["rows"]):
                rows.append(part["rows"])
                values.append(part["values"])
            unreadable += part["unreadable"].tolist()
    if not rows:
        raise ValueError(f"expected readable images, but none of {len(unreadable)} is readable: {unreadable[0]}")
    return Scored(np.concatenate(rows), np.concatenate(values), unreadable)

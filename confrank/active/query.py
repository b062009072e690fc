"""Which samples of a pool to label next, as a CSV for the people who label them."""

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from confrank.active import strategies
from confrank.active.centres import nearest
from confrank.active.image_pool import ImagePool
from confrank.active.labelled import Labelled, Note, check_replaceable
from confrank.active.pool import Pool, SamplePool, TablePool, check_texts, open_pool
from confrank.active.scoring import Progress, Scored, score_pool
from confrank.active.selection import checked_confidence, confidence_of, draw, select
from confrank.active.strategies import Rows, Strategy
from confrank.data.pictures import Picture
from confrank.errors import InputError, counted, named
from confrank.files import LOCK, HeldError, Lock, holder_path, write_atomically
from confrank.predictions import Array
from confrank.runs.checkpoint import saved
from confrank.runs.folder import RunFolder, load_config
from confrank.runs.trained import Trained, load_trained
from confrank.spreadsheet import csv_text, form_of


@dataclass(frozen=True)
class Question:
    """The rows of the samples to label, most useful first, and the value by which each was chosen, if any."""

    pool: Pool
    rows: Rows
    value: str
    values: Array | None

    @property
    def names(self) -> list[str]:
        return [self.pool.names[row] for row in self.rows.tolist()]

    def pictures(self, most: int, side: int) -> list[tuple[str, Picture]]:
        """Names and thumbnails (at most `side` wide and high) of the first `most` samples; none without images."""
        if not isinstance(self.pool, ImagePool):
            return []
        rows = np.sort(self.rows[:most])
        pictures = dict(zip(rows.tolist(), self.pool.thumbnails(rows, side), strict=True))
        pairs = [(self.pool.names[row], pictures[row]) for row in self.rows[:most].tolist()]
        return [(name, picture) for name, picture in pairs if not isinstance(picture, ValueError)]


@contextmanager
def asking(out: Path, labelled: Labelled | None) -> Iterator[Path]:
    """The folder for finished scores of the query that writes `out`, locked; it is removed when the block ends well.

    Raises if another process is asking for the same file, or if replacing it would lose labels.
    """
    scores, lock_path = out.with_name(f".{out.name}.scores"), out.with_name(f".{out.name}{LOCK}")
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = Lock(lock_path)
    except HeldError as error:
        problem = f"expected no other query to write {out}, but {error.holder} does"
        raise InputError(problem, "wait for it, or choose another {out}") from None
    try:
        check_replaceable(out, labelled)
        yield scores
        shutil.rmtree(scores, ignore_errors=True)
    finally:
        with suppress(OSError):  # Windows does not remove open files
            holder_path(lock_path).unlink()
            lock_path.unlink()
        lock.release()


def ask_pool(
    pool_path: Path,
    labelled: Labelled | None,
    strategy_name: str,
    count: int,
    *,
    run: Path | None,
    scores: Path,
    subset: int | None = None,
    seed: int = 0,
    image_size: int | None = None,
    device: torch.device | None = None,
    on_note: Note,
    on_progress: Progress | None = None,
) -> Question:
    """Choose `count` samples of a pool that are not in `labelled`, by the network of a run or a file of its outputs.

    The folder `scores` holds the finished part of a stopped call. `subset` is the number of random candidates.
    """
    strategy = strategies.get(strategy_name)
    if count < 1:
        raise ValueError(f"expected to ask for at least 1 sample, but got {count}")
    size = load_config(run).image_size if image_size is None and run is not None else image_size
    pool = open_pool(pool_path, size, prefer_texts=run is not None)
    if labelled is not None:
        check_texts(pool, labelled)
    candidates, known = _sides(pool, labelled, on_note)
    candidates = np.sort(draw(candidates, subset, seed))
    if strategy.needs == "nothing":
        rows, values, centres = candidates, np.zeros(len(candidates)), None
    elif isinstance(pool, TablePool):
        if run is not None:
            on_note(f"warning: {pool_path} holds {', '.join(pool.arrays)}, so {run} is not used")
        rows, values, centres = _from_table(pool, strategy, candidates, known)
    else:
        if run is None:
            raise InputError(
                f"expected a run whose network scores the samples for {strategy.name}, but got none",
                "give one, or set {strategy} to random",
            )
        needed = np.sort(np.concatenate([candidates, known])) if strategy.needs == "features" else candidates
        trained = _trained(run, pool, strategy, device)
        _note_new_classes(run, trained, labelled, on_note)
        key = _key(pool, strategy, needed, run, size)
        scored = score_pool(pool, trained, strategy, needed, scores, key, on_progress=on_progress)
        rows, values, centres = _from_scored(scored, strategy, known, on_note)
    if count > len(rows):
        on_note(f"warning: asked for {count} samples, but the pool has only {len(rows)}: all of them are chosen")
        count = len(rows)
    given = {"scores": values, "features": values, "labelled_features": centres}
    chosen = select(strategy.name, **given, count=count, seed=seed, device=device)
    return _question(strategy, pool, rows[chosen], values[chosen], centres)


def write_question(path: Path, question: Question, like: Path | None = None) -> None:
    """Write the CSV to fill in: name, an empty label, the value by which each sample was chosen, and its text.

    It has the separator of the CSV file `like`, to which people append its rows in the same spreadsheet.
    """
    columns = {question.pool.key: question.names, "label": [""] * len(question.names)}
    if question.values is not None:
        columns[question.value] = [f"{value:.9g}" for value in question.values]
    columns |= question.pool.columns(question.rows)
    mark, encoding = (",", "utf-8") if like is None else form_of(like)
    text = csv_text([[*columns], *zip(*columns.values(), strict=True)], mark)
    write_atomically(path, text.encode(encoding))


def _sides(pool: Pool, labelled: Labelled | None, note: Note) -> tuple[Rows, Rows]:
    """Rows that may be chosen, and rows with a label."""
    if labelled is None:
        return np.arange(len(pool.names)), np.arange(0)
    asked, row_of = labelled.asked, {name: row for row, name in enumerate(pool.names)}
    if unknown := [name for name in (*labelled.labels, *labelled.waiting) if name not in row_of]:
        note(f"warning: {labelled.path} has {counted(len(unknown), pool.key)} outside the pool: {named(unknown)}")
    if labelled.waiting:
        note(f"{counted(len(labelled.waiting), 'sample')} of {labelled.path} without a label yet, not chosen again")
    candidates = [row for name, row in row_of.items() if name not in asked]
    if not candidates:
        raise ValueError(f"expected unlabelled samples in the pool, but all {len(row_of)} are in {labelled.path}")
    known = sorted(row_of[name] for name in labelled.labels if name in row_of)
    return np.array(candidates, dtype=np.int64), np.array(known, dtype=np.int64)


def _from_table(
    pool: TablePool, strategy: Strategy, candidates: Rows, known: Rows
) -> tuple[Rows, Array, Array | None]:
    arrays = pool.arrays
    if strategy.needs == "features":
        if "features" not in arrays:
            raise ValueError(f"expected features in {pool.path} for {strategy.name}, but got {', '.join(arrays)}")
        features = arrays["features"]
        return candidates, features[candidates], features[known] if len(known) else None
    if "probabilities" in arrays:
        return candidates, checked_confidence(strategy, arrays["probabilities"][candidates]), None
    if "logits" in arrays:
        return candidates, confidence_of(strategy, logits=arrays["logits"][candidates]), None
    if "confidence" not in arrays:
        raise ValueError(
            f"expected probabilities, logits or confidence in {pool.path} for {strategy.name},"
            f" but got {', '.join(arrays)}"
        )
    return candidates, arrays["confidence"][candidates], None


def _trained(run: Path, pool: SamplePool, strategy: Strategy, device: torch.device | None) -> Trained:
    trained = load_trained(run, device)
    if (kind := trained.provenance.input_kind) != pool.kind:
        raise ValueError(f"expected a pool of {kind}s, as {run} was trained on, but {pool.path} holds {pool.kind}s")
    if strategy.name == "mc-entropy" and not trained.method.facts.stochastic:
        raise ValueError(f"expected a run of mcdropout for mc-entropy, but {run} is a run of {trained.config.method}")
    return trained


def _note_new_classes(run: Path, trained: Trained, labelled: Labelled | None, note: Note) -> None:
    known = trained.provenance.class_names
    new = sorted({*labelled.labels.values()} - {*known}) if labelled is not None and known else []
    if labelled is not None and new:
        note(f"warning: {labelled.path} has classes that {run} does not know: {named(new)}; train on the new labels")


def _from_scored(scored: Scored, strategy: Strategy, known: Rows, note: Note) -> tuple[Rows, Array, Array | None]:
    if scored.unreadable:
        note(f"warning: skipped {counted(len(scored.unreadable), 'unreadable image')}:")
        for why in scored.unreadable[:5]:
            note(f"  {why}")
    is_known = np.isin(scored.rows, known)
    if is_known.all():
        raise ValueError(f"expected readable unlabelled images, but none of {len(scored.unreadable)} is readable")
    centres = scored.values[is_known] if strategy.needs == "features" and is_known.any() else None
    return scored.rows[~is_known], scored.values[~is_known], centres


def _question(strategy: Strategy, pool: Pool, rows: Rows, values: Array, centres: Array | None) -> Question:
    if strategy.needs == "features":
        return Question(pool, rows, "distance", None if centres is None else nearest(values, centres))
    return Question(pool, rows, "confidence", None if strategy.needs == "nothing" else values)


def _key(pool: SamplePool, strategy: Strategy, rows: Rows, run: Path, size: int | None) -> dict[str, Any]:
    """What finished scores depend on: the network, the samples, and the values that the strategy needs."""
    newest = saved(RunFolder(run).checkpoint)[-1] / "manifest.json"
    samples = "".join(pool.identity(row) for row in rows.tolist())
    return {
        "version": 2,  # of how samples are read and predicted, and of the files of chunks
        "network": hashlib.sha256(newest.read_bytes()).hexdigest(),
        "samples": hashlib.sha256(samples.encode()).hexdigest(),
        "pool": str(pool.path),
        "image_size": size,
        "asks": strategy.confidence or strategy.needs,
    }

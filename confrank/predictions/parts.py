"""A folder with the parts of one file: what distributed jobs write, such as part-00000.parquet or preds_rank0.pt."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from os.path import commonprefix
from pathlib import Path

import numpy as np

from confrank.errors import InputError, about, counted, named
from confrank.predictions.cells import Column, Text
from confrank.predictions.content import Content, Opened
from confrank.predictions.keys import hashes, keys_or_reason
from confrank.predictions.layout import Layout
from confrank.predictions.names import KEY_NAMES
from confrank.predictions.schema import Array

# What `datasets` writes next to its parts.
OTHERS = {"dataset_info.json", "state.json"}
# A folder that Spark finished has this file; parts without rows may be absent.
FINISHED = "_SUCCESS"
NUMBER = re.compile(r"\d+")
# Names that only parts have; others may be those of several models, say by seed.
NAMED_PART = re.compile(r"(?<![a-z])(part|shard|chunk|rank)(?![a-z])|-of-\d|0{4}\d", re.IGNORECASE)
OF = re.compile(r"-of-(\d+)")
# Files that differ in the number after such a word are each complete, even with zeros in front of it.
VERSION = re.compile(
    r"(?<![a-z])(seed|epoch|step|iter|checkpoint|ckpt|model|run|trial|version|v)[ ._=-]*\d*$", re.IGNORECASE
)
REMEDY = "give one file, or a folder that has only the numbered parts of one, such as part-0.csv and part-1.csv"


def part_files(folder: Path) -> list[Path]:
    """The parts in a folder by their numbers; an error unless it holds nothing else, and all of them."""
    entries = [entry for entry in folder.iterdir() if entry.name[0] not in "._" and entry.name not in OTHERS]
    if not entries or any(entry.is_dir() for entry in entries):
        raise InputError("expected a predictions file, but it is a folder", REMEDY)
    parts = sorted((_numbers(entry.name), entry) for entry in entries)
    varying = {at for numbers, _ in parts for at, one in enumerate(numbers) if parts[0][0][at : at + 1] != [one]}
    if len({NUMBER.sub("0", entry.name) for entry in entries}) > 1 or len(varying) > 1:
        raise InputError(
            f"expected a predictions file, but it is a folder with {named(sorted(one.name for one in entries), 3)}",
            REMEDY,
        )
    _check_complete([numbers[at] for numbers, _ in parts for at in varying], parts, folder)
    return [path for _, path in parts]


def _are_named(names: Sequence[str]) -> bool:
    """Whether the names of two or more files say that they are parts.

    >>> [_are_named([f"{name}1.csv", f"{name}2.csv"]) for name in ("part-", "0000", "epoch_0000", "epoch_3_rank")]
    [True, True, False, True]
    """
    is_part = NAMED_PART.search(names[0])
    shared = commonprefix(names)  # noqa: RUF071 (names have no components)
    return bool(OF.search(names[0]) or (is_part and not VERSION.search(shared)))


def _numbers(name: str) -> list[int]:
    return [int(number) for number in NUMBER.findall(name)]


def _check_complete(found: Sequence[int], parts: Sequence[tuple[list[int], Path]], folder: Path) -> None:
    """Raise if parts are missing: the names say how many there are, or have a gap in their numbers."""
    if total := OF.search(parts[0][1].name):
        if int(total[1]) != len(parts):
            raise InputError(f"expected {counted(int(total[1]), 'part')}, but got {len(parts)}", "add the others")
    elif found and not (folder / FINISHED).exists():
        missing = sorted({*range(min(1, found[0]), found[-1])} - {*found})
        if missing:
            raise InputError(
                f"expected parts numbered without gaps, but number {named([*map(str, missing)])} is missing in"
                f" {parts[0][1].name} to {parts[-1][1].name}",
                "add it",
            )


def open_parts(files: Sequence[Path], open_file: Callable[[Path], Opened]) -> Opened:
    """The parts of a folder as one file; they must have the same columns."""
    opened = []
    for file in files:
        with about(file.name):
            opened.append(open_file(file))
    first = opened[0]
    for file, one in zip(files, opened, strict=True):
        if one.header != first.header:
            raise InputError(
                f"expected the same columns in each part, but {files[0].name} has {named(first.header)}, and"
                f" {file.name} {named(one.header)}",
                REMEDY,
            )
    if first.alone is not None and "correct" not in first.header:
        raise InputError(
            "expected labels in each part, but the parts are single arrays, whose rows may be in any order",
            "write logits, label and index of each part into one file",
        )
    lists = frozenset[str]().union(*(one.lists for one in opened))
    return replace(first, lists=lists, alone=None, load=lambda layout: _loaded(files, opened, layout))


def _loaded(files: Sequence[Path], opened: Sequence[Opened], layout: Layout) -> Content:
    contents = []
    for file, one in zip(files, opened, strict=True):
        with about(file.name):
            contents.append(one.load(layout))
    part = np.repeat(np.arange(len(contents)), [len(content) for content in contents])
    whole = _joined(contents)
    return _without_copies(whole, part, files)


def _joined(contents: Sequence[Content]) -> Content:
    """The rows of all parts."""
    first = contents[0]
    columns = {role: _column([content.columns[role] for content in contents], role) for role in first.columns}
    if any(content.class_names != first.class_names for content in contents):
        raise ValueError("expected the same class names in each part, but got others")
    tables = [content.table for content in contents if content.table is not None]
    shared = {
        key: value
        for key, value in first.metadata.items()
        if all(content.metadata.get(key) == value for content in contents)
    }
    table = np.concatenate(tables) if tables else None
    return replace(first, columns=columns, table=table, metadata=shared, notes=(counted(len(contents), "part"),))


def _column(parts: Sequence[Column], role: str) -> Column:
    """One column of all parts; words are numbered alike."""
    texts = [part for part in parts if isinstance(part, Text)]
    arrays = [part for part in parts if not isinstance(part, Text)]
    if texts and arrays:
        raise ValueError(f"expected {role} to be text in all parts, or numbers in all, but got both")
    if len({array.shape[1:] for array in arrays}) > 1:
        shapes = named([str(list(array.shape)) for array in arrays])
        raise ValueError(f"expected {role} to have as many columns in each part, but got shapes {shapes}")
    if arrays:
        return np.concatenate(arrays)
    known: dict[str, int] = {}
    codes = [
        np.array([known.setdefault(value, len(known)) for value in text.values], dtype=np.int64)[text.codes]
        for text in texts
    ]
    return Text(np.concatenate(codes), list(known))


def _without_copies(content: Content, part: Array, files: Sequence[Path]) -> Content:
    """The rows without those that a sampler repeated in another part so that all parts have as many.

    A copy has the index or key of a row of another part, and its label. Parts that look like files of several
    models, by such a column or by their names, are an error.
    """
    identities = [*_identities(content, part)]
    if not identities:
        is_named = _are_named([file.name for file in files]) or (files[0].parent / FINISHED).exists()
        if len(files) > 1 and not is_named:
            raise InputError(
                f"expected parts of one model's predictions, but {files[0].name} and {files[1].name} may be of two",
                "add a column index or id, or call the files part-0, part-1 and so on",
            )
        return content
    name, original = min(identities, key=lambda one: int((part[one[1]] != part).sum()))
    copies = part[original] != part
    if not copies.any():
        return content
    for column in content.columns.values() if content.table is None else (*content.columns.values(), content.table):
        values, rows = column.codes if isinstance(column, Text) else column, np.flatnonzero(copies)
        same = _are_same(values[rows], values[original[rows]])
        if not same.all():
            row = int(rows[same.argmin()])
            raise InputError(
                f"expected each sample in one part, but a value of {name} is in"
                f" {files[part[original[row]]].name} and, with other predictions, in {files[part[row]].name}",
                "give the files one by one if they are of several models, or leave out one of the two rows",
            )
    note = f"{counted(int(copies.sum()), 'row')} repeated in another part left out"
    return replace(content.select(~copies), notes=(*content.notes, note))


def _identities(content: Content, part: Array) -> Iterator[tuple[str, Array]]:
    """Columns that identify most samples within a part, and for each row [n] the first one with its value."""
    for role in ("index", *KEY_NAMES):
        column = content.columns.get(role)
        if isinstance(column, np.ndarray):
            keys = column if role == "index" else keys_or_reason(column)
            if isinstance(keys, np.ndarray) and keys.ndim == 1:
                numbers = keys if role == "index" else hashes(keys, keys.dtype.itemsize)
                _, first, number = np.unique(numbers, return_index=True, return_inverse=True)
                distinct = len(np.unique(number * np.int64(part.max(initial=0) + 1) + part))
                if 2 * distinct > len(part):
                    yield role, first[number]


def _are_same(values: Array, others: Array) -> Array:
    """Whether rows [n] have the same values; numbers may differ as much as a GPU rounds."""
    is_float = values.dtype.kind == "f"
    close = np.isclose(values, others, rtol=1e-2, atol=1e-2, equal_nan=True) if is_float else values == others
    return np.asarray(np.reshape(close, (len(values), -1)).all(axis=1))


def are_parts(paths: Sequence[Path]) -> bool:
    """Whether files are all parts in their folder, by their names."""
    folder = paths[0].parent
    if len(paths) < 2 or not _are_named([path.name for path in paths]) or {path.parent for path in paths} != {folder}:
        return False
    try:
        return {*part_files(folder)} == {*paths}
    except (ValueError, OSError):
        return False

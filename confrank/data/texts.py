"""Your own texts: a .csv, .tsv or .jsonl file with `text` and `label`, and optionally `split` and `id`.

Without test rows, those of `val` are the test split. Without `split`, a fifth of each class is, the same for every
run. The vocabulary comes from the training split alone. Without `id`, predictions name a text by its row, counted
from 0.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confrank.data.sets import (
    SPLIT_NAMES,
    DataSet,
    Split,
    UnlabelledError,
    class_note,
    class_order,
    repeated_note,
    stratified,
    untested_note,
)
from confrank.data.vocabulary import count_words, encode
from confrank.errors import about, named
from confrank.files import distinct_names
from confrank.predictions.roles import role_of
from confrank.recipes import holds_texts
from confrank.spreadsheet import csv_rows, decoded

COLUMNS = ("text", "label", "split", "id")
# Other names of the column text.
TEXT_NAMES = ("text", "sentence", "review")
# Names that often mean something else: they count only if no other column is named as one.
SUPPOSED = {
    **dict.fromkeys(("comment", "content", "message", "tweet"), "text"),
    **dict.fromkeys(("category", "sentiment"), "label"),
}
TEST_SHARE, SPLIT_SEED = 0.2, 0


class Texts(NamedTuple):
    """Texts [n] with the columns label and split, if the file has them, and the names of the texts."""

    texts: list[str]
    labels: list[str] | None
    splits: list[str] | None
    keys: list[str]


class LabelledTexts(NamedTuple):
    """A split before its words are numbered: texts, class numbers, positions and names [n]."""

    texts: Sequence[str]
    labels: NDArray[np.int64]
    positions: NDArray[np.int64]
    keys: Sequence[str]


def is_text_file(path: Path) -> bool:
    """Whether a path is a file that `read_texts` reads, by its ending."""
    return holds_texts(path.name) and path.is_file()


def load_texts(path: Path, length: int, vocabulary_size: int) -> DataSet:
    """The data set in a file of texts; `length` words of each are used."""
    content = read_texts(path, labelled=True)
    assert content.labels is not None
    class_names = class_order(content.labels)
    if len(class_names) < 2:
        raise ValueError(f"expected at least two classes in {path}, but got {', '.join(class_names)} alone")
    number_of = {name: number for number, name in enumerate(class_names)}
    labels = np.array([number_of[label] for label in content.labels], dtype=np.int64)
    is_train, is_test, note = _division(path, content, labels, len(class_names))
    _check_classes(path, class_names, labels, is_train, is_test)

    def part(rows: NDArray[np.int64]) -> LabelledTexts:
        texts, keys = ([values[row] for row in rows] for values in (content.texts, content.keys))
        return LabelledTexts(texts, labels[rows], np.arange(len(rows)), keys)

    parts = part(np.flatnonzero(is_train)), part(np.flatnonzero(is_test))
    return text_data_set(path, class_names, *parts, length=length, vocabulary_size=vocabulary_size, note=note)


def num_training_texts(path: Path) -> int:
    """How many texts of a file are trained on, if none are held out."""
    content = read_texts(path, labelled=False)
    if content.splits is None:
        return len(content.texts) - round(TEST_SHARE * len(content.texts))
    return sum(split.lower() in SPLIT_NAMES[0] for split in content.splits)


def text_data_set(
    path: Path,
    class_names: tuple[str, ...],
    train: LabelledTexts,
    test: LabelledTexts,
    *,
    length: int,
    vocabulary_size: int,
    note: str | None = None,
) -> DataSet:
    """Texts as numbers of the words in the training split; `length` words of each are used."""
    vocabulary = count_words(train.texts, length)

    def numbered(part: LabelledTexts) -> Split:
        keys = np.array([key.encode() for key in part.keys])
        return Split(encode(part.texts, vocabulary, length), part.labels, part.positions, keys)

    splits = numbered(train), numbered(test)
    repeated = repeated_note(train.texts, test.texts, "texts")
    untested = untested_note(class_names, test.labels)
    notes = tuple(filter(None, (note, class_note(class_names), untested, repeated, _cut_note(splits, length))))
    return DataSet(
        path.resolve().stem, *splits, class_names, (), (),
        notes=notes, vocabulary=vocabulary, vocabulary_size=vocabulary_size,
    )  # fmt: skip


def read_texts(path: Path, *, labelled: bool) -> Texts:
    """The rows of a .csv, .tsv or .jsonl file; with `labelled`, each must have a label."""
    is_csv = path.suffix.lower() != ".jsonl"
    with about(path):
        rows = [*(_csv_rows(path) if is_csv else _jsonl_rows(path))]
    if not rows:
        raise ValueError(f"expected texts in {path}, but there are none")
    columns = {name for row in rows for name in row}
    if missing := [name for name in ("text", *(["label"] if labelled else [])) if name not in columns]:
        raise (UnlabelledError if missing == ["label"] else ValueError)(
            f"expected the columns text{' and label' if labelled else ''} in {path},"
            f" but got {named(_given_names(path)) or 'none'}: {' and '.join(missing)} missing; rename the columns"
            f"{', or add a line with their names if the file has none' if is_csv else ''}"
        )
    texts = _filled(path, rows, "text")
    labels = _filled(path, rows, "label") if labelled else None
    splits = _filled(path, rows, "split") if "split" in columns else None
    keys = _filled(path, rows, "id") if "id" in columns else [str(row) for row in range(len(rows))]
    return Texts(texts, labels, splits, keys)


def _given_names(path: Path) -> list[str]:
    """The names of the columns as they are in a file that has been read."""
    if path.suffix.lower() != ".jsonl":
        return [name.strip() for name in next(csv_rows(path))[1]]
    return [*json.loads(next(line for line in decoded(path.read_bytes()).split("\n") if line.strip()))]


def _filled(path: Path, rows: list[Mapping[str, Any]], column: str) -> list[str]:
    """The values of a column as text; none may be empty, and no label may be nan."""
    values = []
    for number, row in enumerate(rows):
        value = row.get(column)
        if isinstance(value, str | int | float) and not (column == "text" and not isinstance(value, str)):
            value = str(value) if column == "text" else str(value).strip()
        else:
            value = "" if value is None else _wrong_kind(path, number, column, value)
        values.append(value)
    missing = ("", "nan") if column == "label" else ("",)  # nan is how other programs write an empty cell
    if empty := [str(number) for number, value in enumerate(values) if value.strip().lower() in missing]:
        raise ValueError(
            f"expected {'an id' if column == 'id' else f'a {column}'} in every row of {path}, but {len(empty):,} of"
            f" {len(rows):,} have none: row {named(empty)} (counted from 0); complete or remove them"
        )
    return values


def _wrong_kind(path: Path, number: int, column: str, value: object) -> str:
    raise ValueError(
        f"expected {column} to be a string in {path}, but row {number} (counted from 0) has {type(value).__name__}"
    )


def _csv_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    rows = csv_rows(path)
    header = _columns(next(rows, (0, []))[1])
    for line, cells in rows:
        if any(cells[len(header) :]):  # most often a text that is cut at its comma
            raise ValueError(
                f"expected {len(header)} values in line {line}, as in the header, but got {len(cells)};"
                " put texts with commas or semicolons into double quotes"
            )
        yield dict(zip(header, cells, strict=False))


def _columns(names: Iterable[str]) -> list[str]:
    """The names of columns; upper case does not count, and one other name of texts or labels stands for them.

    >>> _columns([" Text", "y_true", "Site"]), _columns(["text", "label", "target"]), _columns(["Review", "label"])
    (['text', 'label', 'Site'], ['text', 'label', 'target'], ['text', 'label'])
    >>> _columns(["tweet", "sentiment"]), _columns(["sentence", "comment", "target", "category"])
    (['text', 'label'], ['text', 'comment', 'label', 'category'])
    """
    plain = [name.strip().lower() if name.strip().lower() in COLUMNS else name.strip() for name in names]
    named_columns = [*filter(None, plain)]
    if len({*named_columns}) < len(named_columns):
        raise ValueError(f"expected a different name for each column, but got {named(plain)}")
    roles = ["text" if name.lower() in TEXT_NAMES else role_of(name) for name in plain]
    supposed = [SUPPOSED.get(name.lower()) for name in plain]
    roles = [role or (other if other not in roles else None) for role, other in zip(roles, supposed, strict=True)]
    return [
        role if role in ("text", "label") and roles.count(role) == 1 else name
        for name, role in zip(plain, roles, strict=True)
    ]


def _jsonl_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(decoded(path.read_bytes()).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=distinct_names)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"expected an object of JSON in line {number}, but: {error}") from None
        if not isinstance(row, dict):
            raise ValueError(f"expected an object of JSON in line {number}, but got {type(row).__name__}")
        yield dict(zip(_columns(row), row.values(), strict=True))


def _division(
    path: Path, content: Texts, labels: NDArray[np.int64], num_classes: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], str | None]:
    """Which rows are trained on, which are tested, and a note if the file does not say so itself."""
    if content.splits is None:
        is_test = stratified(labels, num_classes, TEST_SHARE, SPLIT_SEED, content.texts)
        drawn = f"{is_test.sum():,} of {len(is_test):,} texts, drawn from each class, are the test split"
        return ~is_test, is_test, f"no column split: {drawn}"
    splits = np.array([split.lower() for split in content.splits])
    if others := sorted({*splits.tolist()} - {name for names in SPLIT_NAMES for name in names}):
        raise ValueError(f"expected train or test in the column split of {path}, but got {', '.join(others[:3])}")
    train, test = (next((name for name in names if name in splits), names[0]) for names in SPLIT_NAMES)
    is_train, is_test = splits == train, splits == test
    unused = sorted({*splits.tolist()} - {train, test})
    notes = [f"no split test: the texts of {test} are tested"] if test not in ("test", "testing") else []
    notes += (
        [f"{(~is_train & ~is_test).sum():,} texts of the split {', '.join(unused)} are not used"] if unused else []
    )
    return is_train, is_test, "; ".join(notes) or None


def _check_classes(
    path: Path,
    class_names: tuple[str, ...],
    labels: NDArray[np.int64],
    is_train: NDArray[np.bool_],
    is_test: NDArray[np.bool_],
) -> None:
    for name, rows in (("training", is_train), ("test", is_test)):
        if not rows.any():
            raise ValueError(f"expected {name} texts in {path}, but there are none")
    counts = np.bincount(labels[is_train], minlength=len(class_names))
    if missing := [name for name, count in zip(class_names, counts, strict=True) if not count]:
        raise ValueError(f"expected training texts of every class in {path}, but got none of {', '.join(missing)}")


def _cut_note(splits: tuple[Split, Split], length: int) -> str | None:
    cut = sum(int((split.images[:, -1] != 0).sum()) for split in splits)
    total = sum(map(len, splits))
    return f"{cut:,} of {total:,} texts have {length} words or more; the rest of them is not used" if cut else None

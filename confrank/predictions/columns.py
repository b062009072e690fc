"""Predictions from the columns of a table: class names become numbers, words become booleans."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from confrank.predictions.layout import KEY_NAMES, Layout
from confrank.predictions.schema import Array, Predictions, as_keys

TRUTH = {"true": True, "false": False, "1": True, "0": False}
# No row of rounded probabilities may sum further from 1; `evaluate` derives the exact limit from their digits.
MOST_ROUNDING = 0.1 + 1e-6
# In bytes. The array of keys reserves the length of the longest for each.
LONGEST_KEY = 4096


@dataclass(frozen=True)
class Text:
    """A column of strings: the distinct values, and for each row the number of its value."""

    codes: Array
    values: list[str]

    def first_row(self, code: int) -> int:
        return int((self.codes == code).argmax())


Column = Array | Text


def codes_of(words: Any, known: dict[str, int]) -> Array:
    """The number of each row's word in an Arrow dictionary array; new words get the next numbers."""
    numbers = [known.setdefault(word, len(known)) for word in words.dictionary.to_pylist()]
    codes: Array = np.array(numbers, dtype=np.int32)[words.indices.to_numpy(zero_copy_only=False)]
    return codes


def predictions_of(
    columns: dict[str, Column], table: Array | None, layout: Layout, metadata: dict[str, str]
) -> Predictions:
    """Assemble the columns that a reader returns; `table` [n, K] holds the class columns in class order."""
    arrays: dict[str, Any] = {}
    kept = {name: raw_cells(columns.pop(f"extra:{name}")) for name in layout.extra}
    classes = {role: column for role, column in columns.items() if role in ("label", "prediction")}
    names = layout.class_names
    if table is None and any(isinstance(column, Text) for column in classes.values()):
        names = _all_names(classes)
    numbers, ambiguous = class_numbers(classes, names)
    keys, key_metadata, unused = distinct_keys({name: columns.pop(name) for name in KEY_NAMES if name in columns})
    for role, column in columns.items():
        if role in classes:
            arrays[role] = numbers[role]
        elif role == "correct":
            arrays[role] = _truth(column)
        elif role == "index":
            arrays[role] = whole_numbers(_numbers(column, role), role)
        else:
            arrays[role] = _numbers(column, role)
    extra = key_metadata | ({"class_names": json.dumps(names)} if names else {})
    if table is not None and table.shape[1] == 1:
        table = both_classes(table[:, 0])
        extra["binary"] = checked_binary(numbers["label"])
    if table is not None:
        kind, unnamed = (layout.kind, []) if layout.kind else bare_kind(table, numbers["label"], names)
        arrays[kind] = table
        check_prediction(arrays.pop("prediction", None), table, kind)
        if kind == "logits" and unnamed:
            extra["unnamed"] = _shown(unnamed)
    if ambiguous:
        extra["labels"] = "read as names of classes, not as their numbers"
    if ignored := [name.strip() or "a column without name" for name in layout.ignored] + unused:
        extra["ignored"] = _shown(ignored)
    return Predictions(**arrays, **keys, extra=kept, metadata={**metadata, **extra})


def raw_cells(column: Column) -> Array:
    """A column [n] as it is in the file: numbers, or text as an array of str objects.

    >>> raw_cells(Text(np.array([1, 0, 1]), ["a", "b"])).tolist()
    ['b', 'a', 'b']
    """
    if isinstance(column, Text):
        return np.array(column.values, dtype=object)[column.codes]
    if column.dtype.kind in "SO":
        cells = [cell.decode(errors="replace") if isinstance(cell, bytes) else str(cell) for cell in column.tolist()]
        return np.array(cells, dtype=object)
    return column.astype(object) if column.dtype.kind == "U" else column


def both_classes(single: Array) -> Array:
    """The probabilities [n, 2] of classes 0 and 1 from those of class 1 [n]."""
    second = single.astype(np.float64)
    return np.stack([1 - second, second], axis=1)


def checked_binary(label: Array) -> str:
    """A note on how `both_classes` reads the column; an error for labels other than 0 and 1."""
    wrong = (label != 0) & (label != 1)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            "expected labels 0 and 1 with a single column of probabilities, which is that of class 1,"
            f" but got {label[row]} in row {row}; give a column probability_NAME for each class,"
            " or name it confidence if it belongs to the predicted class"
        )
    return "a single column read as the probability of class 1"


def distinct_keys(columns: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, str], list[str]]:
    """Arrays and metadata for `Predictions` from columns [n] that identify each sample, and the ignored columns.

    >>> distinct_keys({"id": np.array(["b", "c"]), "file": np.array(["a", "a"])})
    ({'key': array([b'b', b'c'], dtype='|S1')}, {'key': 'id'}, ['file (not unique)'])
    """
    identifying: dict[str, Array] = {}
    ignored = []
    for name in sorted(columns, key=KEY_NAMES.index):
        keys = _keys_or_reason(columns[name])
        if isinstance(keys, str):
            ignored.append(name + keys)
        else:
            identifying[name] = keys
    if not identifying:
        return {}, {}, ignored
    name, *others = identifying
    arrays = {"key": identifying[name]}
    if others:
        arrays["other_keys"] = np.empty(
            len(identifying[name]), [(other, identifying[other].dtype) for other in others]
        )
        for other in others:
            arrays["other_keys"][other] = identifying[other]
    return arrays, {"key": name}, ignored


def _keys_or_reason(keys: Array) -> Array | str:
    """Names or integers as bytes if each occurs once; otherwise the reason why the column is ignored."""
    if keys.dtype == np.uint8 and keys.ndim == 2 and keys.shape[1]:  # as `save_predictions` writes them
        keys = np.ascontiguousarray(keys).view(f"S{keys.shape[1]}")[:, 0]
    if keys.dtype.kind == "f" and (np.abs(keys) < 2**53).all() and (keys == np.floor(keys)).all():
        keys = keys.astype(np.int64)
    if keys.ndim != 1 or keys.dtype.kind not in "iuUSO":
        return ""
    if keys.dtype.kind in "USO" and max(map(len, keys), default=0) > LONGEST_KEY:
        return f" (longer than {LONGEST_KEY:,} bytes)"
    keys = as_keys(np.array(keys.tolist()) if keys.dtype.kind == "O" else keys)
    ordered = np.sort(keys)
    return " (not unique)" if (ordered[1:] == ordered[:-1]).any() else keys


def bare_kind(table: Array, label: Array, names: list[str] | None) -> tuple[str, list[str]]:
    """Whether columns without a prefix [n, K] are probabilities or logits, and the columns that no label names.

    Such columns may be classes that never occur, or no classes at all; the latter is an error if the values show it.
    """
    occurring = np.isin(np.arange(table.shape[1]), label)
    if names is None or occurring.all() or not occurring.any():
        return kind_of(table), []
    unnamed = [name for name, there in zip(names, occurring, strict=True) if not there]
    reason = _against_unnamed(table, occurring)
    if reason:
        raise ValueError(
            f"expected only class columns besides label, but no label names {_shown(unnamed)}, and {reason};"
            " name all class columns probability_NAME or logit_NAME, so that others are ignored"
        )
    return kind_of(table), unnamed


def _against_unnamed(table: Array, occurring: Array) -> str | None:
    """Why the columns that no label names cannot be classes, if the values [n, K] show it."""
    named, unnamed = table[:, occurring], table[:, ~occurring]
    with np.errstate(over="ignore", invalid="ignore"):
        if _are_spoilt(named, table) or (_within(named, 1) and not _within(unnamed, 1 + 1e-6)):
            return "without them the other columns look like probabilities"
        if _are_spoilt(np.exp(named), np.exp(table)):
            return "without them the other columns are logarithms of probabilities"
    largest = np.bincount(table.argmax(axis=1), minlength=table.shape[1])
    if largest[~occurring].max() > len(table) / 2:
        return "one of them is the largest in most rows"
    return None


def _are_spoilt(named: Array, table: Array) -> bool:
    """Whether the named columns are distributions by themselves and the complete table is less so."""
    off, table_off = (np.abs(part.sum(axis=1) - 1) for part in (named, table))
    return bool(_within(named, np.inf) and (off <= MOST_ROUNDING).all() and table_off.mean() > off.mean() + 1e-5)


def _within(table: Array, limit: float) -> bool:
    return bool(((table >= 0) & (table <= limit)).all())


def kind_of(table: Array) -> str:
    """Whether values are probabilities or logits if no name says so; an error if unclear."""
    inside = ((table >= 0) & (table <= 1)).all(axis=1)
    fitting = (table >= 0).all(axis=1) & (np.abs(table.sum(axis=1) - 1) <= MOST_ROUNDING)
    if fitting.all() or inside.all():
        return "probabilities"
    if fitting.mean() <= 0.5:
        return "logits"
    raise ValueError(
        "expected probabilities that sum to 1 in each row, or logits, but got a mixture: see row"
        f" {int((~fitting).argmax())}; name the columns probability_NAME or logit_NAME to say which they are"
    )


def check_prediction(prediction: Array | None, table: Array, kind: str) -> None:
    """Raise if a prediction is not a class with the largest value of its row of the table [n, K]."""
    if prediction is None:
        return
    num_classes = table.shape[1]
    inside = (prediction >= 0) & (prediction < num_classes)
    predicted = table[np.arange(len(table)), np.where(inside, prediction, 0)]
    wrong = ~inside | (predicted < table.max(axis=1))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"expected the prediction to be the class with the largest of the {kind}, but row {row} predicts class"
            f" {prediction[row]} where class {table[row].argmax()} is largest; name class columns"
            " probability_NAME or logit_NAME"
        )


def class_numbers(columns: Mapping[str, Column], names: list[str] | None) -> tuple[dict[str, Array], bool]:
    """Class indices from names or integers, and whether both readings were possible (names win).

    All columns are read in the same way; a value that is neither raises an error with its row.
    """
    if not names:
        return {role: whole_numbers(_as_numbers(column, role), role) for role, column in columns.items()}, False
    index_of = {name: index for index, name in enumerate(names)}
    texts = {role: _as_text(column, index_of, role) for role, column in columns.items()}
    values = {value for text in texts.values() for value in text.values}
    are_names, are_indices = all(value in index_of for value in values), all(_is_index(value) for value in values)
    if not are_names and not are_indices:
        known = f"; the classes are {_shown(names)}"
        for role, text in texts.items():
            _refuse(
                text, [value not in index_of for value in text.values], "a class name or a class index", role, known
            )
    if are_names and len(index_of) < len(names):
        twice = [name for name in index_of if names.count(name) > 1]
        raise ValueError(
            f"expected a distinct name for each class of {' and '.join(columns)}, but got {_shown(twice)}"
            " more than once; give class numbers"
        )
    number_of = index_of.__getitem__ if are_names else int
    numbers = {
        role: np.array([number_of(value) for value in text.values], dtype=np.int64)[text.codes]
        for role, text in texts.items()
    }
    other = are_indices and any(index_of[value] != int(value) < len(names) for value in values if value in index_of)
    return numbers, are_names and other


def _as_text(column: Column, index_of: Mapping[str, int], role: str) -> Text:
    """A column as text: integers lose their decimals (1.0 becomes 1), unless that text is itself a class name."""
    if not isinstance(column, Text):
        distinct, codes = np.unique(whole_numbers(column, role), return_inverse=True)
        return Text(codes, [str(number) for number in distinct])
    numbers = {
        value: number for value in column.values if value not in index_of and (number := _whole(value)) is not None
    }
    return Text(column.codes, [str(numbers.get(value, value)) for value in column.values])


def _as_numbers(column: Column, role: str) -> Array:
    if not isinstance(column, Text):
        return column
    numbers = [TRUTH.get(value.strip().lower(), _whole(value)) for value in column.values]
    remedy = "; for names, add columns like probability_NAME or an array class_names in class order"
    _refuse(column, [number is None for number in numbers], "a class index", role, remedy)
    return np.array(numbers, dtype=np.int64)[column.codes]


def _refuse(column: Text, wrong: list[bool], expected: str, role: str, remedy: str = "") -> None:
    """Raise if one of the distinct values is wrong; the error has the first row with it."""
    for code, value in enumerate(column.values):
        if wrong[code]:
            row = column.first_row(code)
            raise ValueError(f"expected {expected} in {role}, but got {value[:80]!r} in row {row}{remedy}")


def _shown(names: list[str]) -> str:
    return ", ".join([*(name[:40] for name in names[:8]), *(["..."] if len(names) > 8 else [])])


def _whole(value: str) -> int | None:
    """
    >>> _whole(" 3.0"), _whole("01"), _whole("3.5"), _whole("cat")
    (3, 1, None, None)
    """
    try:
        number = float(value) if value.isascii() and "_" not in value else math.nan
    except ValueError:
        return None
    return int(number) if math.isfinite(number) and number == int(number) and abs(number) < 2**53 else None


def whole_numbers(column: Array, role: str) -> Array:
    if column.dtype.kind in "iu":
        return column
    if column.dtype.kind not in "fb":
        raise ValueError(f"expected whole numbers in {role}, but got values of type {column.dtype}")
    wrong = ~np.isfinite(column) | (column != np.floor(column)) | (np.abs(column) >= 2**53)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"expected whole numbers in {role}, but got {column[row]} in row {row}")
    return column.astype(np.int64)


def _is_index(value: str) -> bool:
    return value.isascii() and value.strip().isdigit() and len(value) < 16


def _all_names(columns: Mapping[str, Column]) -> list[str] | None:
    """The names in the columns label and prediction, sorted; None if all of them are numbers."""
    values_of = [{*_as_text(column, {}, role).values} for role, column in columns.items()]
    numeric = [all(_whole(value) is not None for value in values) for values in values_of]
    if any(numeric) and not all(numeric) and not set.intersection(*values_of):
        raise ValueError("expected names in both label and prediction, or numbers in both, but got one of each")
    return None if all(numeric) else sorted(set.union(*values_of))


def _truth(column: Column) -> Array:
    if not isinstance(column, Text):
        return column
    flags = [TRUTH.get(value.strip().lower()) for value in column.values]
    _refuse(column, [flag is None for flag in flags], "true or false (or 1 or 0)", "correct")
    return np.array(flags, dtype=bool)[column.codes]


def _numbers(column: Column, role: str) -> Array:
    if isinstance(column, Text):
        raise ValueError(f"expected numbers in {role}, but got {column.values[0][:80]!r} in row 0")
    return column

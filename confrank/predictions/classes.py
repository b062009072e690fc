"""Class numbers from the names or numbers in label and prediction."""

import math
from collections.abc import Mapping

import numpy as np

from confrank.errors import InputError
from confrank.predictions.cells import TRUTH, Column, Text, number
from confrank.predictions.schema import Array


def class_numbers(columns: Mapping[str, Column], names: list[str] | None) -> tuple[dict[str, Array], bool]:
    """Class indices from names or integers, and whether both readings were possible (names win).

    All columns are read in the same way; a value that is neither raises an error with its row.
    """
    if not names:
        return {role: whole_numbers(_as_numbers(column, role), role) for role, column in columns.items()}, False
    index_of = {name: index for index, name in enumerate(names)}
    texts = {role: as_text(column, index_of, role) for role, column in columns.items()}
    values = {value for text in texts.values() for value in text.values}
    are_names, are_indices = all(value in index_of for value in values), all(_is_index(value) for value in values)
    if not are_names and not are_indices:
        known = (
            f"the classes are {shown(names)}, unless you name them with {{columns}}, as in probability:NAME=COLUMN"
        )
        for role, text in texts.items():
            refuse_values(
                text, [value not in index_of for value in text.values], "a class name or a class index", role, known
            )
    if are_names and len(index_of) < len(names):
        twice = [name for name in index_of if names.count(name) > 1]
        raise ValueError(
            f"expected a distinct name for each class of {' and '.join(columns)}, but got {shown(twice)}"
            " more than once; give class numbers"
        )
    number_of = index_of.__getitem__ if are_names else int
    numbers = {
        role: np.array([number_of(value) for value in text.values], dtype=np.int64)[text.codes]
        for role, text in texts.items()
    }
    other = are_indices and any(index_of[value] != int(value) < len(names) for value in values if value in index_of)
    return numbers, are_names and other


def as_text(column: Column, index_of: Mapping[str, int], role: str) -> Text:
    """A column as text: integers lose their decimals (1.0 becomes 1), unless that text is itself a class name."""
    if not isinstance(column, Text):
        if column.dtype == bool and "True" in index_of:  # so does Python name these classes
            return Text(column.astype(np.int64), ["False", "True"])
        distinct, codes = np.unique(whole_numbers(column, role), return_inverse=True)
        return Text(codes, [str(whole) for whole in distinct])
    numbers = {
        value: whole
        for value in column.values
        if value not in index_of and (whole := whole_number(value)) is not None
    }
    return Text(column.codes, [str(numbers.get(value, value)) for value in column.values])


def _as_numbers(column: Column, role: str) -> Array:
    if not isinstance(column, Text):
        return column
    numbers = [TRUTH.get(value.strip().lower(), whole_number(value)) for value in column.values]
    remedy = (
        "for names, write a column probability_NAME of each class, an array class_names in class order, or in JSON"
        ' objects such as {"cat": 0.9, "dog": 0.1}'
    )
    refuse_values(column, [whole is None for whole in numbers], "a class index", role, remedy)
    return np.array(numbers, dtype=np.int64)[column.codes]


def refuse_values(column: Text, wrong: list[bool], expected: str, role: str, remedy: str = "") -> None:
    """Raise if one of the distinct values is wrong; the error has the first row with it."""
    for code, value in enumerate(column.values):
        if wrong[code]:
            row = column.first_row(code)
            raise InputError(f"expected {expected} in {role}, but got {value[:80]!r} in row {row}", remedy)


def shown(names: list[str]) -> str:
    return ", ".join([*(name[:40] for name in names[:8]), *(["..."] if len(names) > 8 else [])])


def whole_number(value: str) -> int | None:
    """
    >>> whole_number(" 3.0"), whole_number("01"), whole_number("3.5"), whole_number("cat")
    (3, 1, None, None)
    """
    read = number(value)
    if read is None or not math.isfinite(read) or read != int(read) or abs(read) >= 2**53:
        return None
    return int(read)


def whole_numbers(column: Array, role: str) -> Array:
    if column.dtype.kind == "u" and len(column) and column.max() > np.iinfo(np.int64).max:
        row = int(column.argmax())
        raise ValueError(
            f"expected whole numbers below 2**63 in {role}, but got {column[row]} in row {row},"
            " which may be a negative number written as an unsigned one"
        )
    if column.dtype.kind in "iu":
        return column.astype(np.int64) if column.dtype.kind == "u" else column
    if column.dtype.kind not in "fb":
        raise ValueError(f"expected whole numbers in {role}, but got values of type {column.dtype}")
    wrong = ~np.isfinite(column) | (column != np.floor(column)) | (np.abs(column) >= 2**53)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"expected whole numbers in {role}, but got {column[row]} in row {row}")
    return column.astype(np.int64)


def _is_index(value: str) -> bool:
    return value.isascii() and value.strip().isdigit() and len(value) < 16


def all_names(columns: Mapping[str, Column]) -> list[str] | None:
    """The names in the columns label and prediction, sorted; None if all of them are numbers."""
    values_of = [{*as_text(column, {}, role).values} for role, column in columns.items()]
    numeric = [all(whole_number(value) is not None for value in values) for values in values_of]
    if any(numeric) and not all(numeric) and not set.intersection(*values_of):
        raise ValueError("expected names in both label and prediction, or numbers in both, but got one of each")
    return None if all(numeric) else sorted(set.union(*values_of))


def numbered(
    columns: Mapping[str, Column], names: list[str] | None, *, typed: bool, has_table: bool
) -> tuple[dict[str, Array], list[str] | None, bool]:
    """Class numbers of label and prediction, the names of the classes, and whether names might also be numbers.

    Without a table, the names are those that occur. If `typed`, only text is taken as names.
    """
    if not has_table and names is None and any(isinstance(column, Text) for column in columns.values()):
        names = all_names(columns)
    if not typed:
        numbers, ambiguous = class_numbers(columns, names)
        return numbers, names, ambiguous
    numbers = {role: whole_numbers(column, role) for role, column in columns.items() if not isinstance(column, Text)}
    for role, column in columns.items():
        if isinstance(column, Text):
            numbers |= class_numbers({role: column}, names)[0]
    return numbers, names, False

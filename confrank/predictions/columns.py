"""Columns as read from a table -> predictions: names become class numbers, words become truth values."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from confrank.predictions.layout import Layout
from confrank.predictions.schema import Array, Predictions

TRUTH = {"true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True)
class Text:
    """A column of strings: the distinct ones, and for each row which of them it is."""

    codes: Array
    values: list[str]

    def first_row(self, code: int) -> int:
        return int((self.codes == code).argmax())


Column = Array | Text


def predictions_of(
    columns: dict[str, Column], table: Array | None, layout: Layout, metadata: dict[str, str]
) -> Predictions:
    """Assemble what a reader found; `table` [n, K] holds the classes' columns in class order."""
    arrays: dict[str, Any] = {}
    names = layout.class_names
    if table is None and any(isinstance(columns.get(role), Text) for role in ("label", "prediction")):
        names = _all_names(columns)
        if names and not all(isinstance(columns.get(role), Text) for role in ("label", "prediction")):
            raise ValueError("expected names in both label and prediction, or numbers in both, but got one of each")
    for role, column in columns.items():
        if role in ("label", "prediction"):
            arrays[role] = class_numbers(column, names, role)
        elif role == "correct":
            arrays[role] = _truth(column)
        elif role == "index":
            arrays[role] = whole_numbers(_numbers(column, role), role)
        else:
            arrays[role] = _numbers(column, role)
    if table is not None:
        kind = layout.kind or kind_of(table)
        arrays[kind] = table
        check_prediction(arrays.pop("prediction", None), table, kind)
    extra = {"class_names": json.dumps(names)} if names else {}
    if layout.ignored:
        extra["ignored"] = ", ".join(name.strip()[:40] or "a column without name" for name in layout.ignored[:8])
    return Predictions(**arrays, metadata={**metadata, **extra})


def kind_of(table: Array) -> str:
    """Whether values are probabilities or logits, when nothing says so; in doubt an error."""
    inside = (table >= 0).all(axis=1) & (table <= 1).all(axis=1)
    fitting = inside & (np.abs(table.sum(axis=1) - 1) <= 1e-3)
    if fitting.all() or inside.all():
        return "probabilities"
    if fitting.mean() <= 0.5:
        return "logits"
    raise ValueError(
        "expected probabilities that sum to 1 in each row, or logits, but got a mixture: see row"
        f" {int((~fitting).argmax())}; name the columns probability_NAME or logit_NAME to say which they are"
    )


def check_prediction(prediction: Array | None, table: Array, kind: str) -> None:
    """Raise where a file predicts otherwise than its table [n, K]; any of equally large classes will do."""
    if prediction is None:
        return
    num_classes = table.shape[1]
    inside = (prediction >= 0) & (prediction < num_classes)
    said = table[np.arange(len(table)), np.where(inside, prediction, 0)]
    wrong = ~inside | (said < table.max(axis=1))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"expected the prediction to be the class with the largest of the {kind}, but row {row} predicts class"
            f" {prediction[row]} where class {table[row].argmax()} has it; columns of classes are named"
            " probability_NAME or logit_NAME"
        )


def class_numbers(column: Column, names: list[str] | None, role: str) -> Array:
    """Class indices from names or from whole numbers; an unknown name is an error that names the row."""
    if not isinstance(column, Text):
        numbers = whole_numbers(column, role)
        if not names or not all(name.isdigit() for name in names):
            return numbers
        # Classes named by numbers that are not 0..K-1: the labels are those names.
        distinct, codes = np.unique(numbers, return_inverse=True)
        column = Text(codes, [str(number) for number in distinct])
    place = {name: number for number, name in enumerate(names or [])}
    if not all(value in place for value in column.values) and all(_is_index(value) for value in column.values):
        return np.array([int(value) for value in column.values], dtype=np.int64)[column.codes]
    for code, value in enumerate(column.values):
        if value not in place:
            raise ValueError(
                f"expected a class name or a class index in {role}, but got {value[:80]!r}"
                f" in row {column.first_row(code)}"
            )
    return np.array([place[value] for value in column.values], dtype=np.int64)[column.codes]


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


def _all_names(columns: dict[str, Column]) -> list[str] | None:
    """The names in the columns label and prediction, sorted; None if all of them are numbers."""
    texts = [column for role in ("label", "prediction") if isinstance(column := columns.get(role), Text)]
    names = sorted({value for text in texts for value in text.values})
    return None if all(_is_index(name) for name in names) else names


def _truth(column: Column) -> Array:
    if not isinstance(column, Text):
        return column
    for code, value in enumerate(column.values):
        if value.strip().lower() not in TRUTH:
            raise ValueError(
                f"expected true or false (or 1 or 0) in correct, but got {value[:80]!r}"
                f" in row {column.first_row(code)}"
            )
    return np.array([TRUTH[value.strip().lower()] for value in column.values], dtype=bool)[column.codes]


def _numbers(column: Column, role: str) -> Array:
    if isinstance(column, Text):
        raise ValueError(f"expected numbers in {role}, but got {column.values[0][:80]!r} in row 0")
    return column

"""Columns that group, weight or cluster the rows of several models, which may share them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from confrank.metrics.inputs import ArrayLike, Classes, Ints, cell_text, coded, column_names
from confrank.predictions import Array, Predictions

Columns = str | Sequence[str] | Mapping[str, Classes] | ArrayLike


def named_columns(given: Columns | None, name: str) -> tuple[list[str], dict[str, Classes]]:
    """What a caller gave, as names of columns in the predictions, or as arrays by name.

    A data frame is arrays by name; one array is called `name`, unless it is a series with a name of its own.

    >>> named_columns("site", "group"), named_columns({"age": [3, 4]}, "group")
    ((['site'], {}), ([], {'age': [3, 4]}))
    """
    if given is None:
        return [], {}
    if isinstance(given, str):
        return [given], {}
    if isinstance(given, Mapping):
        return [], dict(given)
    if isinstance(given, list | tuple) and all(isinstance(column, str) for column in given):
        return [str(column) for column in given], {}
    values: Any = given
    if (columns := column_names(values)) is not None:
        return [], {str(column): values[column] for column in columns}
    own = getattr(values, "name", None)
    return [], {own if isinstance(own, str) and own else name: values}


def shared_columns(
    names: Sequence[str], predictions: Sequence[Predictions], rows: Mapping[int, Array], columns: Sequence[str]
) -> list[dict[str, Array]]:
    """Each model's values of the named columns, in the order of its rows.

    A model without a column takes it from the first, if its rows were matched with those of the first: `rows` has
    them by the model's number. If it has the column, matched rows must agree.
    """
    first = {column: _column(names[0], predictions[0], column) for column in columns}
    shared = [first]
    for number in range(1, len(names)):
        one = names[number], predictions[number], rows.get(number)
        shared.append({column: _shared(*one, column, first[column]) for column in columns})
    return shared


def _column(name: str, predictions: Predictions, column: str) -> Array:
    if column in predictions.extra:
        return predictions.extra[column]
    values = predictions.arrays().get(column)
    if values is not None and values.ndim == 1:
        return values
    raise ValueError(
        f"expected a column {column!r} in {name}, but it has none; keep it when you read the file, or give an array"
    )


def _shared(name: str, model: Predictions, rows: Array | None, column: str, first: Array) -> Array:
    if rows is None:
        return _column(name, model, column)
    if column not in model.extra:
        values = np.empty_like(first)
        values[rows] = first
        return values
    differs = model.extra[column][rows].astype(str) != first.astype(str)
    if differs.any():
        row = int(differs.argmax())
        raise ValueError(
            f"expected the same {column!r} for the same samples, but got {model.extra[column][rows[row]]!r} in {name}"
            f" and {first[row]!r} in the first, for row {row} of the first"
        )
    return model.extra[column]


def weights_of(values: Array, column: str) -> Array:
    """The cells of a column as numbers."""
    if values.dtype.kind in "fiub":
        return values
    numbers = np.empty(len(values))
    for row, cell in enumerate(values.tolist()):
        try:
            numbers[row] = float(cell)
        except (ValueError, TypeError):
            raise ValueError(
                f"expected numbers in the column {column!r} of weights, but got {cell!r} in row {row}"
            ) from None
    return numbers


def clusters_of(values: Array, column: str) -> Ints:
    """The number of each row's cluster, in the order of their first rows; a row without one is an error."""
    names, numbers = coded(values.astype(object))
    missing = [number for number, name in enumerate(names) if not cell_text(name)]
    if missing:
        row = int(np.isin(numbers, missing).argmax())
        raise ValueError(f"expected a cluster for each row in the column {column!r}, but row {row} has none")
    return numbers

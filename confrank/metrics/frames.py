"""What columns of data frames (pandas, polars, Arrow) hold besides numbers: names of classes, gaps, and an index."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def column_names(table: object) -> list[Any] | None:
    """The names of a data frame's columns; None for anything else, and for columns that are just numbered from 0."""
    columns = getattr(table, "column_names", getattr(table, "columns", None))  # the former are those of Arrow
    if columns is None or callable(columns):
        return None
    names = [*columns]
    return None if names == [*range(len(names))] else names


def check_columns(table: object, expected: list[Any] | None) -> None:
    """Raise if the columns of a data frame are not those expected, in this order; where one has no names, nothing."""
    names = column_names(table)
    if names is not None and expected is not None and names != expected:
        raise ValueError(
            f"expected the classes {expected} as columns, in this order, but got {names};"
            f" select them by table[{expected}]"
        )


def same_rows(**given: Any) -> None:
    """Raise if the rows of two arguments do not belong together by their index, which only pandas has."""
    indexes = {name: values.index for name, values in given.items() if _is_indexed(values)}
    first = next(iter(indexes), "")
    for name, index in indexes.items():
        if len(index) == len(indexes[first]) and not index.equals(indexes[first]):  # others raise by their length
            one, other = (np.asarray(indexes[each], dtype=object) for each in (first, name))
            row = int((one != other).argmax())
            raise ValueError(
                f"expected {first} and {name} with their rows in the same order, but the index of row {row} is"
                f" {one[row]!r} in {first} and {other[row]!r} in {name}; select the rows by one index, as in"
                f" {name}.loc[{first}.index], or give {name}.to_numpy() if the rows belong together as they are"
            )


def _is_indexed(values: Any) -> bool:
    """Whether these are a series or data frame of pandas; lists and strings have a method `index`."""
    return hasattr(getattr(values, "index", None), "equals")


def row_numbers(*given: Any) -> NDArray[Any] | None:
    """The index of the first series or data frame of pandas, if its numbers identify the rows."""
    index = next((values.index for values in given if _is_indexed(values)), None)
    return None if index is None or not identifies(index) else np.asarray(index)


def identifies(index: Any) -> bool:
    """Whether an index without a name has distinct numbers that do not merely count the rows from 0."""
    if [*index.names] != [None] or index.dtype.kind not in "iu" or not index.is_unique:
        return False
    return not np.array_equal(np.asarray(index), np.arange(len(index)))


def coded(column: NDArray[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """The different values of a column [n], and the position of each row's value among them."""
    if column.dtype.kind in "fiub":
        names, codes = np.unique(column, return_inverse=True)
        return names.tolist(), codes
    # Hashing words is much faster than sorting them.
    words = column.tolist()
    position = {word: number for number, word in enumerate(dict.fromkeys(words))}
    return list(position), np.fromiter(map(position.__getitem__, words), dtype=np.int64, count=len(words))


def cell_text(value: object) -> str:
    """A cell of a column as text, whole numbers without decimals; empty if it is missing.

    >>> cell_text(2.0), cell_text(b" a "), cell_text(float("nan"))
    ('2', 'a', '')
    """
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, float):
        return "" if value != value else str(int(value)) if value.is_integer() else str(value)
    return "" if value is None or type(value).__name__ in ("NAType", "NaTType") else str(value).strip()

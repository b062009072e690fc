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
    """Raise if the rows of two arguments do not belong together by their index, which only pandas has.

    An index that numbers the rows from 0 says nothing about a part of other data, so it agrees with any other, unless
    that has the same numbers in another order.
    """
    indexes: dict[str, Any] = {name: values.index for name, values in given.items() if _is_indexed(values)}
    if len({*map(len, indexes.values())}) > 1:
        return  # an error about the lengths follows
    first = next((name for name, index in indexes.items() if not is_numbered(index)), None)
    for name, index in indexes.items():
        if first is not None and not _agree(indexes[first], index):
            pairs = enumerate(zip(indexes[first], index, strict=True))
            differing = next((pair for pair in pairs if str(pair[1][0]) != str(pair[1][1])), None)
            if differing is None:  # 7 and "7"
                continue
            row, (one, other) = differing
            raise ValueError(
                f"expected {first} and {name} with their rows in the same order, but the index of row {row} is {one}"
                f" in {first} and {other} in {name}; select the rows by one index, as in {name}.loc[{first}.index],"
                f" or give {name}.to_numpy() if the rows belong together as they are"
            )


def _is_indexed(values: Any) -> bool:
    """Whether these are a series or data frame of pandas; lists and strings have a method `index`."""
    return hasattr(getattr(values, "index", None), "equals")


def row_numbers(*given: Any) -> NDArray[Any] | None:
    """The index of the first series or data frame of pandas, if its numbers identify the rows."""
    index = next((values.index for values in given if _is_indexed(values)), None)
    return None if index is None or not identifies(index) else np.asarray(index)


def identifies(index: Any) -> bool:
    """Whether an index without a name has distinct numbers other than those of the rows."""
    return [*index.names] == [None] and index.dtype.kind in "iu" and index.is_unique and not is_numbered(index)


def is_numbered(index: Any) -> bool:
    """Whether an index numbers the rows from 0."""
    numbers = np.asarray(index)
    return numbers.dtype.kind in "iu" and bool((numbers == np.arange(len(numbers))).all())


def _agree(index: Any, other: Any) -> bool:
    if index.equals(other):
        return True
    numbers = np.asarray(index)
    is_shuffled = numbers.dtype.kind in "iu" and is_numbered(np.sort(numbers))
    return is_numbered(other) and not is_shuffled


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

"""Parquet: columns as in CSV, or a list column `probabilities` or `logits`. Importing it needs pyarrow."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute, parquet

from confrank.errors import InputError
from confrank.predictions.cells import Column, Text, class_values, codes_of, joined_parts, with_words
from confrank.predictions.content import Content, Opened, by_role, key_numbers
from confrank.predictions.layout import Layout
from confrank.predictions.schema import Array

BATCH_BYTES = 1 << 24


def open_parquet(path: Path) -> Opened:
    """Read the names of the columns; a `ValueError` gives the column and the row."""
    with readable("a Parquet file"), parquet.ParquetFile(path) as file:
        return opened_by(file.schema_arrow, lambda layout: _loaded(path, layout))


def _loaded(path: Path, layout: Layout) -> Content:
    with readable("a Parquet file"), parquet.ParquetFile(path) as file:
        header = list(file.schema_arrow.names)
        wanted = [header[number] for number in dict.fromkeys([*layout.numbers().values(), *layout.table])]
        batches = file.iter_batches(columns=wanted, batch_size=_batch_rows(file.metadata))
        return content_of(batches, header, layout)


def _batch_rows(metadata: Any) -> int:
    """So many rows that a batch of them takes about `BATCH_BYTES`, which its decoding takes several times."""
    size = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    return int(min(max(BATCH_BYTES * metadata.num_rows // max(1, size), 1024), 65_536))


def opened_by(schema: Any, load: Callable[[Layout], Content]) -> Opened:
    """A file with the columns of an Arrow schema."""
    return Opened(list(schema.names), load, frozenset(field.name for field in schema if _is_list(field.type)))


def content_of(batches: Iterator[Any], header: list[str], layout: Layout) -> Content:
    """The columns of a layout from Arrow record batches, which may lack others."""
    tables: list[Array] = []
    columns = _columns(batches, header, layout, tables)
    if layout.table and not tables:
        tables = [np.stack([_as_numbers(columns[number], header[number]) for number in layout.table], axis=1)]
    return Content(by_role(columns, layout), joined_parts(tables) if tables else None, {"parser": "by pyarrow"})


@contextmanager
def readable(kind: str) -> Iterator[None]:
    """Turn errors of Arrow into a `ValueError` that says what was expected."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError, OverflowError) as error:
        raise ValueError(f"expected {kind}, but it cannot be read: {error}") from None


def _columns(batches: Iterator[Any], header: list[str], layout: Layout, tables: list[Array]) -> dict[int, Column]:
    """The columns by number, words numbered alike in all batches; class columns of numbers go to `tables` [b, K]."""
    numbers = dict.fromkeys([*layout.numbers().values(), *layout.table])
    keys = key_numbers(layout)
    parts: dict[int, list[Array]] = {number: [] for number in numbers}
    words: dict[int, dict[str, int]] = {}
    for batch in batches:
        if layout.table and all(_is_number(batch.column(header[number]).type) for number in layout.table):
            tables.append(np.stack([_values(batch.column(header[n]), header[n], {}) for n in layout.table], axis=1))
            parts = {number: parts[number] for number in dict.fromkeys(layout.numbers().values())}
        for number, arrays in parts.items():
            column = batch.column(header[number])
            if number in keys:
                arrays.append(_keys(column))
            elif number in layout.extra.values():
                arrays.append(_extra(column))
            else:
                arrays.append(_values(column, header[number], words.setdefault(number, {})))
    if not sum(map(len, [*tables, *next(iter(parts.values()), [])])):
        raise ValueError("expected rows of predictions, but there are none")
    return with_words({number: joined_parts(arrays) for number, arrays in parts.items()}, words)


def _keys(column: Any) -> Array:
    """Names as bytes, or numbers; an array without values for what cannot identify samples."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_floating(kind):
        numbers: Array = column.to_numpy(zero_copy_only=False)
        return numbers
    if not (pa.types.is_integer(kind) or _is_text(kind)):
        return np.empty((len(column), 0))
    words = column.cast(pa.string()).fill_null("").cast(pa.binary())
    return np.array(words.to_pylist(), dtype=object)


def _extra(column: Any) -> Array:
    """Numbers as they are; anything else as text, with the empty text for what is missing."""
    if _is_number(column.type) and not column.null_count:
        numbers: Array = column.to_numpy(zero_copy_only=False)
        return numbers
    words = column.to_pylist()
    return np.array(["" if word is None else str(word) for word in words], dtype=object)


def _values(column: Any, name: str, words: dict[str, int]) -> Array:
    """Numbers (NaN where a value is missing), lists of them [n, K], or the numbers of words."""
    if _is_list(column.type):
        return _lists(column, name)
    if pa.types.is_dictionary(column.type):  # it may list words that do not occur
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_null(kind):
        column, kind = column.cast(pa.string()), pa.string()
    if _is_text(kind):
        column = column.cast(pa.large_string()) if str(kind) == "string_view" else column
        return codes_of(column.fill_null("").dictionary_encode(), words)
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_boolean(kind) and column.null_count:
        column = column.cast(pa.int8())
    elif not (_is_number(kind) or pa.types.is_boolean(kind)):
        vector = "write lists of numbers (in Spark: vector_to_array)" if pa.types.is_struct(kind) else ""
        raise InputError(f"expected numbers in column {name[:80]!r}, but got {kind}", vector)
    values: Array = column.to_numpy(zero_copy_only=False)
    return values


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _lists(column: Any, name: str) -> Array:
    kind = column.type
    if not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise ValueError(f"expected a list of numbers in column {name!r}, but got {kind}")
    lengths = compute.unique(compute.list_value_length(column)).to_pylist()
    flat = column.flatten()
    if flat.null_count or None in lengths:
        raise ValueError(f"expected numbers in the lists of column {name!r}, but some are missing (null)")
    if len(lengths) != 1:
        raise ValueError(f"expected lists of one length in column {name!r}, but got lengths {sorted(lengths)[:5]}")
    values: Array = flat.to_numpy(zero_copy_only=False).reshape(len(column), lengths[0]).copy()
    return values  # a copy, so that the batch can be freed


def _as_numbers(column: Column, name: str) -> Array:
    return class_values(column, name) if isinstance(column, Text) else column

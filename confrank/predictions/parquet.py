"""Parquet: columns as in CSV, or a list column `probabilities` or `logits`. Needs pyarrow."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from confrank.predictions.arrays import named_arrays
from confrank.predictions.columns import Column, Text, codes_of, predictions_of
from confrank.predictions.layout import KEY_NAMES, Layout, layout_of
from confrank.predictions.reading import Reading
from confrank.predictions.schema import Array, Predictions

TABLES = ("probabilities", "logits")


def read_parquet(path: Path, reading: Reading) -> Predictions:
    """Read a Parquet file batch by batch; a `ValueError` gives the column and the row."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise ValueError("expected pyarrow to read Parquet, but it is missing: pip install pyarrow") from None
    try:
        file = parquet.ParquetFile(path)
        header = list(file.schema_arrow.names)
        lists = [field.name for field in file.schema_arrow if _is_list(field.type)]
        layout = _without_odd_keys(layout_of(header, lists=lists, keep=reading.keep), file.schema_arrow)
        wanted = [header[number] for number in dict.fromkeys([*layout.numbers().values(), *layout.table])]
        columns = _columns(file.iter_batches(columns=wanted), header, layout)
    except (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError, OverflowError) as error:
        raise ValueError(f"expected a Parquet file, but it cannot be read: {error}") from None
    if {*TABLES} & {*columns}:
        extra = {name: _plain(columns.pop(f"extra:{name}")) for name in layout.extra}
        arrays = {role: _plain(column) for role, column in columns.items()}
        return named_arrays(arrays, {}, layout.ignored, extra)
    table = [columns.pop(str(number)) for number in layout.table]
    numbers = [column for column in table if not isinstance(column, Text)]
    if len(numbers) < len(table):
        raise ValueError("expected numbers in the class columns, but got text")
    return predictions_of(columns, np.stack(numbers, axis=1) if numbers else None, layout, {"parser": "by pyarrow"})


def _columns(batches: Iterator[Any], header: list[str], layout: Layout) -> dict[str, Column]:
    names = {key: header[number] for key, number in layout.numbers().items()}
    names |= {str(number): header[number] for number in layout.table}
    parts: dict[str, list[Array]] = {key: [] for key in names}
    words: dict[str, dict[str, int]] = {}
    row = 0
    for batch in batches:
        for key, name in names.items():
            column = batch.column(name)
            if key in KEY_NAMES:
                parts[key].append(_keys(column))
                continue
            if key.startswith("extra:"):
                parts[key].append(_extra(column))
                continue
            if column.null_count:
                empty = int(column.is_null().to_numpy(zero_copy_only=False).argmax())
                raise ValueError(f"expected a value in column {name[:80]!r}, but row {row + empty} has none")
            parts[key].append(_values(column, key, name, words))
        row += len(batch)
    if not row:
        raise ValueError("expected rows of predictions, but there are none")
    joined = {key: np.concatenate(arrays) for key, arrays in parts.items()}
    return {key: Text(values, list(words[key])) if key in words else values for key, values in joined.items()}


def _without_odd_keys(layout: Layout, schema: Any) -> Layout:
    """Ignore key columns that hold neither words nor numbers."""
    odd = [
        role
        for role, number in layout.roles.items()
        if role in KEY_NAMES and not _may_be_key(schema.field(number).type)
    ]
    roles = {role: number for role, number in layout.roles.items() if role not in odd}
    return replace(layout, roles=roles, ignored=[*layout.ignored, *odd])


def _may_be_key(kind: Any) -> bool:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(is_number or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _keys(column: Any) -> Array:
    import pyarrow as pa

    if pa.types.is_floating(column.type):
        numbers: Array = column.to_numpy(zero_copy_only=False)
        return numbers
    words = column.cast(pa.string()).fill_null("").cast(pa.binary())
    return np.array(words.to_pylist(), dtype=object)


def _extra(column: Any) -> Array:
    """Numbers as they are; anything else as text, with the empty text for what is missing."""
    import pyarrow as pa

    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if is_number and not column.null_count:
        numbers: Array = column.to_numpy(zero_copy_only=False)
        return numbers
    words = column.to_pylist()
    return np.array(["" if word is None else str(word) for word in words], dtype=object)


def _values(column: Any, key: str, name: str, words: dict[str, dict[str, int]]) -> Array:
    import pyarrow as pa

    kind = column.type
    if key in TABLES:
        return _lists(column, name)
    if pa.types.is_dictionary(kind):  # it may list words that do not occur
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return codes_of(column.dictionary_encode(), words.setdefault(key, {}))
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise ValueError(f"expected numbers in column {name[:80]!r}, but got {kind}")
    values: Array = column.to_numpy(zero_copy_only=False)
    return values


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _lists(column: Any, name: str) -> Array:
    import pyarrow as pa
    from pyarrow import compute

    kind = column.type
    if not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise ValueError(f"expected a list of numbers in column {name!r}, but got {kind}")
    lengths = compute.unique(compute.list_value_length(column)).to_pylist()
    flat = column.flatten()
    if flat.null_count or None in lengths:
        raise ValueError(f"expected numbers in the lists of column {name!r}, but some are missing (null)")
    if len(lengths) != 1:
        raise ValueError(f"expected lists of one length in column {name!r}, but got lengths {sorted(lengths)[:5]}")
    values: Array = flat.to_numpy(zero_copy_only=False).reshape(len(column), lengths[0])
    return values


def _plain(column: Column) -> Array:
    return np.array(column.values)[column.codes] if isinstance(column, Text) else column

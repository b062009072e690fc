"""CSV: a header, then rows of numbers (labels may be names). UTF-8, with or without a byte order mark.

The separator is the comma, semicolon, tab or bar that splits the header into the most columns; a tab in a .tsv.

If pyarrow is installed (`pip install pyarrow`), it parses the file, several times faster. A file that it rejects is
read again row by row, which either succeeds or reports the wrong line, so both ways accept the same files.
"""

import csv
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from confrank.predictions.columns import Column, Text, codes_of, predictions_of
from confrank.predictions.layout import KEY_NAMES, Layout, layout_of
from confrank.predictions.reading import Reading
from confrank.predictions.schema import Array, Predictions
from confrank.spreadsheet import unguarded

# Roles whose cells may be words.
WORDS = ("label", "prediction", "correct")
CHUNK_ROWS = 1 << 16
# Larger files are streamed: slower, but memory does not grow with the text.
STREAM_BYTES = 1 << 30


def read_csv(path: Path, reading: Reading) -> Predictions:
    """Read a CSV file; a `ValueError` gives the line and what was expected."""
    layout, columns, table, parser = read_columns(path, partial(layout_of, keep=reading.keep))
    return predictions_of(columns, table, layout, {"parser": parser})


def read_columns(
    path: Path, layout_of: Callable[[list[str]], Layout]
) -> tuple[Layout, dict[str, Column], Array | None, str]:
    """The layout of the header, the columns by role, the class columns as a table [n, K], and the parser used."""
    try:
        mark = separator(path)
        header, num_lines, first = _opening(path, mark)
        layout = layout_of(header)
        content = _read_with_pyarrow(path, mark, header, num_lines, first, layout)
        parser = "by pyarrow"
        if content is None:
            content, parser = _read_row_by_row(path, mark, header, layout), "row by row"
    except UnicodeDecodeError as error:
        raise ValueError(f"expected a CSV file in UTF-8, but it cannot be decoded: {error}") from None
    except csv.Error as error:
        raise ValueError(f"expected a CSV file, but it cannot be parsed: {error}") from None
    columns, table = content
    return layout, {key: _unguarded(columns[number]) for key, number in layout.numbers().items()}, table, parser


def separator(path: Path) -> str:
    """The separator that splits the header into the most columns; the comma wins ties, the tab wins in a .tsv."""
    counts = {mark: _num_columns(path, mark) for mark in ",;\t|"}
    if path.suffix.lower() == ".tsv" and counts["\t"] > 1:
        return "\t"
    return max(counts, key=counts.__getitem__)


def _num_columns(path: Path, mark: str) -> int:
    """The number of columns if `mark` separates them; 0 if the header cannot be read that way."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            return len(next(filled(csv.reader(file, delimiter=mark)), []))
        except csv.Error:  # a column name of more than 131,072 characters
            return 0


def _opening(path: Path, mark: str) -> tuple[list[str], int, list[str]]:
    """The header, the number of lines up to its end, and the first row."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=mark, strict=True)
        header = next(filled(reader), None)
        if header is None:
            raise ValueError("expected a header line, but there are only empty lines")
        num_lines, first = reader.line_num, next(filled(reader), None)
    if first is None:
        raise ValueError(f"expected rows of {len(header)} values under the header, but there are none")
    return list(map(unguarded, header)), num_lines, first


def _unguarded(column: Column) -> Column:
    """The column without the apostrophes that keep a spreadsheet from executing a cell."""
    if isinstance(column, Text):
        numbers: dict[str, int] = {}
        codes = [numbers.setdefault(unguarded(value), len(numbers)) for value in column.values]
        return column if list(numbers) == column.values else Text(np.array(codes)[column.codes], list(numbers))
    if column.dtype == object:  # keys, as bytes
        column = np.array([_unguarded_key(key) if key[:1] == b"'" else key for key in column], dtype=object)
    return column


def _unguarded_key(key: bytes) -> bytes:
    return unguarded(key.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def filled(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """The rows that are not empty lines."""
    return (row for row in rows if len(row) > 1 or (row and row[0].strip()))


# The columns by number, and the class columns as a table [n, K].
Content = tuple[dict[int, Column], Array | None]


def _read_with_pyarrow(
    path: Path, mark: str, header: list[str], num_lines: int, first: list[str], layout: Layout
) -> Content | None:
    """None if pyarrow is missing or rejects the file."""
    try:
        import pyarrow as pa
        from pyarrow import csv as pa_csv
    except ImportError:
        return None
    if len(first) != len(header):
        return None
    types: dict[str, Any] = {str(column): pa.float64() for column in [*layout.roles.values(), *layout.table]}
    for role in WORDS:
        if role in layout.roles and (_named(role, layout) or _number(first[layout.roles[role]]) is None):
            types[str(layout.roles[role])] = pa.dictionary(pa.int32(), pa.string())
    types |= {str(column): pa.dictionary(pa.int32(), pa.string()) for column in layout.extra.values()}
    types |= {str(column): pa.binary() for role, column in layout.roles.items() if role in KEY_NAMES}
    numbers = [str(column) for column in range(len(header))]
    options = {
        "read_options": pa_csv.ReadOptions(column_names=numbers, skip_rows=num_lines, block_size=1 << 22),
        "parse_options": pa_csv.ParseOptions(delimiter=mark),
        "convert_options": pa_csv.ConvertOptions(
            column_types=types, include_columns=list(types), null_values=[], strings_can_be_null=False
        ),
    }
    try:
        if path.stat().st_size > STREAM_BYTES:
            return _collected(iter(pa_csv.open_csv(path, **options)), layout)
        table = pa_csv.read_csv(path, **options)
        return _collected(iter(table.to_batches()), layout, len(table))
    except (pa.ArrowException, UnicodeDecodeError):
        return None


def _named(role: str, layout: Layout) -> bool:
    """Whether a column may hold names that look like numbers: 01 is not 1."""
    return layout.class_names is not None and role in ("label", "prediction")


def _collected(batches: Iterator[Any], layout: Layout, num_rows: int | None = None) -> Content:
    """Numpy columns from Arrow record batches; each batch is freed once it is copied."""
    whole = None if num_rows is None else np.empty((num_rows, len(layout.table)))
    row = 0
    parts: dict[int, list[Array]] = {number: [] for number in layout.numbers().values()}
    tables: list[Array] = []
    words: dict[int, dict[str, int]] = {}
    keys = {number for role, number in layout.roles.items() if role in KEY_NAMES}
    for batch in batches:
        for number in parts:
            column = batch.column(str(number))
            if hasattr(column, "dictionary"):
                values = codes_of(column, words.setdefault(number, {}))
            elif number in keys:
                values = np.array(column.to_pylist(), dtype=object)
            else:
                values = column.to_numpy(zero_copy_only=False)
            parts[number].append(values)
        if layout.table:
            shape = len(batch), len(layout.table)
            table = np.empty(shape) if whole is None else whole[row : row + len(batch)]
            for position, number in enumerate(layout.table):
                table[:, position] = batch.column(str(number)).to_numpy(zero_copy_only=False)
            tables.append(table)
        row += len(batch)
    columns: dict[int, Column] = {}
    for number, arrays in parts.items():
        joined = _joined(arrays)
        columns[number] = Text(joined, list(words[number])) if number in words else joined
    if not layout.table:
        return columns, None
    return columns, _joined(tables) if whole is None else whole


def _joined(parts: list[Array]) -> Array:
    """Concatenate the parts; each is freed as soon as it is copied."""
    whole: Array = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), dtype=np.result_type(*parts))
    start = len(whole)
    while parts:
        part = parts.pop()
        start -= len(part)
        whole[start : start + len(part)] = part
    return whole


def _read_row_by_row(path: Path, mark: str, header: list[str], layout: Layout) -> Content:
    text = {*layout.extra.values(), *(layout.roles[role] for role in WORDS if role in layout.roles)}
    keys = {number for role, number in layout.roles.items() if role in KEY_NAMES}
    words: dict[int, dict[str, int]] = {number: {} for number in text - keys}
    parts: dict[int, list[Array]] = {number: [] for number in layout.numbers().values()}
    tables: list[Array] = []
    row = 0
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=mark, strict=True)
        numbered = ((reader.line_num, cells) for cells in filled(reader))
        next(numbered)
        while chunk := list(islice(numbered, CHUNK_ROWS)):
            _check_lengths(chunk, header, row)
            cells = list(zip(*(cells for _, cells in chunk), strict=True))
            lines = [line for line, _ in chunk]
            for number, arrays in parts.items():
                if number in words:
                    known = words[number]
                    codes = [known.setdefault(cell, len(known)) for cell in cells[number]]
                    arrays.append(np.array(codes, dtype=np.int64))
                elif number in keys:
                    arrays.append(np.array([cell.encode() for cell in cells[number]], dtype=object))
                else:
                    arrays.append(_numbers(cells[number], header[number], row, lines))
            if layout.table:
                table = [_numbers(cells[number], header[number], row, lines) for number in layout.table]
                tables.append(np.stack(table, axis=1))
            row += len(chunk)
    columns: dict[int, Column] = {}
    for number, arrays in parts.items():
        joined = _joined(arrays)
        columns[number] = Text(joined, list(words[number])) if number in words else joined
    for role in WORDS:
        column = columns.get(layout.roles.get(role, -1))
        if isinstance(column, Text) and not _named(role, layout) and layout.roles[role] not in layout.extra.values():
            columns[layout.roles[role]] = _numbers_if_all(column)
    return columns, _joined(tables) if layout.table else None


def _check_lengths(chunk: list[tuple[int, list[str]]], header: list[str], row: int) -> None:
    for offset, (line, cells) in enumerate(chunk):
        if len(cells) != len(header):
            raise ValueError(
                f"expected {len(header)} values in each row, as in the header, but got {len(cells)}"
                f" in row {row + offset} (line {line})"
            )


def _numbers(cells: tuple[str, ...], name: str, row: int, lines: list[int]) -> Array:
    joined = "".join(cells)
    if joined.isascii() and "_" not in joined:
        try:
            return np.array(cells).astype(np.float64)
        except ValueError:
            pass
    for offset, cell in enumerate(cells):
        if _number(cell) is None:
            raise ValueError(
                f"expected a number in column {name[:80]!r}, but got {cell[:80]!r} in row {row + offset}"
                f" (line {lines[offset]}); name class columns probability_NAME or logit_NAME"
            )
    return np.array([_number(cell) for cell in cells], dtype=np.float64)


def _number(cell: str) -> float | None:
    """A number in ASCII digits; `float` would also accept 1_000 and digits of other scripts."""
    if not cell.isascii() or "_" in cell:
        return None
    try:
        return float(cell)
    except ValueError:
        return None


def _numbers_if_all(text: Text) -> Column:
    numbers = [_number(value) for value in text.values]
    if any(number is None for number in numbers):
        return text
    whole: Array = np.array(numbers, dtype=np.float64)[text.codes]
    return whole

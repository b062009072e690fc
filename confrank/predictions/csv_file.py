"""CSV: a header, then rows of numbers (labels may be names). UTF-8 or UTF-16, compressed or not.

The separator is the comma, semicolon, tab or bar that splits the header into the most columns; a tab in a .tsv.

If pyarrow is installed (`pip install pyarrow`), it parses the file, several times faster. A file that it rejects is
read again row by row, which either succeeds or reports the wrong line, so both ways accept the same files.
"""

import csv
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from confrank.errors import InputError
from confrank.predictions.cells import (
    MISSING,
    NAME_CLASSES,
    Column,
    Text,
    codes_of,
    joined_parts,
    number,
    numbers_of,
    renamed,
    with_words,
)
from confrank.predictions.content import WORDS, Content, Opened, by_role, key_numbers, may_be_named
from confrank.predictions.doubts import AS_NUMBERS
from confrank.predictions.layout import Layout
from confrank.predictions.names import role_of
from confrank.predictions.schema import Array
from confrank.predictions.text_file import encoding_of, open_bytes, open_text, readable, suffix_of
from confrank.spreadsheet import unguarded

CHUNK_ROWS = 1 << 16
# Larger files are streamed: slower, but memory does not grow with the text.
STREAM_BYTES = 1 << 30


@dataclass(frozen=True)
class CsvFile:
    """How a file is written, its header, the number of lines up to its end, and the first row."""

    path: Path
    encoding: str
    mark: str
    header: list[str]
    num_lines: int
    first: list[str]


def open_csv(path: Path) -> Opened:
    """Read the header of a CSV file; a `ValueError` gives the line and what was expected."""
    file = _opened(path)
    return Opened(file.header, lambda layout: _loaded(file, layout))


def _loaded(file: CsvFile, layout: Layout) -> Content:
    with readable("a CSV file"):
        content, parser = _read_with_pyarrow(file, layout), "by pyarrow"
        if content is None or any(map(_is_quoted_after_spaces, content[0].values())):
            content, parser = _read_row_by_row(file, layout), "row by row"
    columns, table = content
    plain = {number: _unguarded(column) for number, column in columns.items()}
    return Content(by_role(plain, layout), table, {"parser": parser})


def _opened(path: Path) -> CsvFile:
    with readable("a CSV file"):
        encoding = encoding_of(path)
        mark = separator(path, encoding)
        return CsvFile(path, encoding, mark, *_opening(path, encoding, mark))


def separator(path: Path, encoding: str) -> str:
    """The separator that splits the header into the most columns; the comma wins ties, the tab wins in a .tsv."""
    counts = {mark: _num_columns(path, encoding, mark) for mark in ",;\t|"}
    if suffix_of(path) == ".tsv" and counts["\t"] > 1:
        return "\t"
    return max(counts, key=counts.__getitem__)


def _num_columns(path: Path, encoding: str, mark: str) -> int:
    """The number of columns if `mark` separates them; 0 if the header cannot be read that way."""
    with open_text(path, encoding) as file:
        try:
            return len(next(filled(csv.reader(file, delimiter=mark, skipinitialspace=True)), []))
        except csv.Error:  # a column name of more than 131,072 characters
            return 0


def _opening(path: Path, encoding: str, mark: str) -> tuple[list[str], int, list[str]]:
    """The header, the number of lines up to its end, and the first row."""
    with open_text(path, encoding) as file:
        reader = csv.reader(file, delimiter=mark, skipinitialspace=True, strict=True)
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
        return renamed(column, [unguarded(value) for value in column.values])
    if column.dtype == object:  # keys, as bytes
        column = np.array([_unguarded_key(key) if key[:1] == b"'" else key for key in column], dtype=object)
    return column


def _unguarded_key(key: bytes) -> bytes:
    return unguarded(key.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def filled(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """The rows that are not empty lines, without a first line such as sep=; which Excel writes and reads."""
    for count, row in enumerate(row for row in rows if len(row) > 1 or (row and row[0].strip())):
        if count or not row[0].lower().startswith("sep=") or any(row[1:]):
            yield row


def _is_quoted_after_spaces(column: Column) -> bool:
    """Whether some cells are, which pyarrow reads as text with quotes."""
    cells = column.values if isinstance(column, Text) else column.tolist() if column.dtype == object else ()
    return any(cell[:1] in ('"', b'"') and cell[-1:] in ('"', b'"') for cell in cells if len(cell) > 1)


# The columns by number, and the class columns as a table [n, K].
Numbered = tuple[dict[int, Column], Array | None]


def _read_with_pyarrow(file: CsvFile, layout: Layout) -> Numbered | None:
    """None if pyarrow is missing or rejects the file."""
    try:
        import pyarrow as pa
        from pyarrow import csv as pa_csv
    except ImportError:
        return None
    if len(file.first) != len(file.header):
        return None
    types: dict[str, Any] = {str(column): pa.float64() for column in [*layout.roles.values(), *layout.table]}
    words = {column for role, column in layout.roles.items() if role in WORDS and _holds_words(role, file, layout)}
    types |= {str(column): pa.dictionary(pa.int32(), pa.string()) for column in words | {*layout.extra.values()}}
    types |= {str(column): pa.binary() for column in key_numbers(layout)}
    options = {
        "read_options": pa_csv.ReadOptions(
            column_names=[str(column) for column in range(len(file.header))],
            skip_rows=file.num_lines,
            block_size=1 << 22,
            encoding="utf8" if file.encoding == "utf-8-sig" else file.encoding,
        ),
        "parse_options": pa_csv.ParseOptions(delimiter=file.mark),
        "convert_options": pa_csv.ConvertOptions(
            column_types=types, include_columns=list(types), null_values=sorted(MISSING), strings_can_be_null=False
        ),
    }
    try:
        with _arrow_stream(file.path) as stream:
            if file.path.stat().st_size > STREAM_BYTES:
                return _collected(iter(pa_csv.open_csv(stream, **options)), layout)
            table = pa_csv.read_csv(stream, **options)
        return _collected(iter(table.to_batches()), layout, len(table))
    except (pa.ArrowException, UnicodeError, OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile):
        return None


def _arrow_stream(path: Path) -> Any:
    """A file as a stream of Arrow, which unpacks some formats itself."""
    import pyarrow as pa

    if path.suffix.lower() in (".xz", ".zip"):
        return pa.PythonFile(open_bytes(path), mode="r")
    return pa.input_stream(str(path), compression="detect")


def _holds_words(role: str, file: CsvFile, layout: Layout) -> bool:
    return may_be_named(role, layout) or number(file.first[layout.roles[role]]) is None


def _collected(batches: Iterator[Any], layout: Layout, num_rows: int | None = None) -> Numbered:
    """Numpy columns from Arrow record batches; each batch is freed once it is copied."""
    whole = None if num_rows is None else np.empty((num_rows, len(layout.table)))
    row = 0
    parts: dict[int, list[Array]] = {at: [] for at in layout.numbers().values()}
    tables: list[Array] = []
    words: dict[int, dict[str, int]] = {}
    keys = key_numbers(layout)
    for batch in batches:
        for at in parts:
            column = batch.column(str(at))
            if hasattr(column, "dictionary"):
                values = codes_of(column, words.setdefault(at, {}))
            elif at in keys:
                values = np.array(column.to_pylist(), dtype=object)
            else:
                values = column.to_numpy(zero_copy_only=False)
            parts[at].append(values)
        if layout.table:
            shape = len(batch), len(layout.table)
            table = np.empty(shape) if whole is None else whole[row : row + len(batch)]
            for position, at in enumerate(layout.table):
                table[:, position] = batch.column(str(at)).to_numpy(zero_copy_only=False)
            tables.append(table)
        row += len(batch)
    columns = with_words({at: joined_parts(arrays) for at, arrays in parts.items()}, words)
    if not layout.table:
        return columns, None
    return columns, joined_parts(tables) if whole is None else whole


def _read_row_by_row(file: CsvFile, layout: Layout) -> Numbered:
    keys = key_numbers(layout)
    text = {*layout.extra.values(), *(layout.roles[role] for role in WORDS if role in layout.roles)} - keys
    words: dict[int, dict[str, int]] = {column: {} for column in text}
    parts: dict[int, list[Array]] = {column: [] for column in [*layout.numbers().values(), *layout.table]}
    forms: dict[int, set[str]] = {column: set() for column in parts}
    for row, lines, cells in _chunks(file):
        for column, arrays in parts.items():
            if column in words:
                known = words[column]
                codes = [known.setdefault(cell, len(known)) for cell in cells[column]]
                arrays.append(np.array(codes, dtype=np.int64))
            elif column in keys:
                arrays.append(np.array([cell.encode() for cell in cells[column]], dtype=object))
            else:
                arrays.append(_numbers(cells[column], file.header[column], row, lines, forms[column]))
    joined = {column: joined_parts(arrays) for column, arrays in parts.items()}
    table = np.stack([joined[column] for column in layout.table], axis=1) if layout.table else None
    return with_words(joined, words), table


def _chunks(file: CsvFile) -> Iterator[tuple[int, list[int], list[tuple[str, ...]]]]:
    """Chunks of rows: the number of the first row, the lines, and the cells of each column."""
    row = 0
    with open_text(file.path, file.encoding) as stream:
        reader = csv.reader(stream, delimiter=file.mark, skipinitialspace=True, strict=True)
        numbered = ((reader.line_num, cells) for cells in filled(reader))
        next(numbered)
        while chunk := list(islice(numbered, CHUNK_ROWS)):
            _check_lengths(chunk, file.header, row)
            yield row, [line for line, _ in chunk], list(zip(*(cells for _, cells in chunk), strict=True))
            row += len(chunk)


def _check_lengths(chunk: list[tuple[int, list[str]]], header: list[str], row: int) -> None:
    for offset, (line, cells) in enumerate(chunk):
        if len(cells) != len(header):
            raise ValueError(
                f"expected {len(header)} values in each row, as in the header, but got {len(cells)}"
                f" in row {row + offset} (line {line})"
            )


def _numbers(cells: tuple[str, ...], name: str, row: int, lines: list[int], forms: set[str]) -> Array:
    def where(position: int, cell: str) -> str:
        return (
            f"expected a number in column {name[:80]!r}, but got {cell[:80]!r} in row {row + position}"
            f" (line {lines[position]})"
        )

    try:
        return numbers_of(cells, where, forms)
    except ValueError as error:
        if "thousands" in str(error):
            raise
        raise InputError(str(error), AS_NUMBERS if role_of(name) == "confidence" else NAME_CLASSES) from None

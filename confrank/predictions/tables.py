"""Any source as a table: columns by name, of which nothing is interpreted.

pyarrow reads CSV, TSV, Parquet, Arrow and data frames, `documents` JSON, and `arrays` what numpy, torch and
safetensors write. A source is a file, compressed or not, on this machine or at a URI such as s3://bucket/folder, or
several files that are the parts of one: a folder, or a pattern such as day-*.parquet. Only the columns that are asked
for are read.
"""

import csv
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confrank.errors import InputError, about, counted, named, similar_path
from confrank.files import check_unpacked
from confrank.metrics.inputs import identifies
from confrank.spreadsheet import CONVERT, decoded, filled, long_fields, mark_of, unguarded

Array = NDArray[Any]
# What programs write for a missing value; a class of such a name has to be renamed.
MISSING = frozenset(
    ["", *"nan NaN NAN none None NONE null Null NULL na NA N/A n/a <NA> #N/A NaT".split()]  # noqa: SIM905
)
PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
TEXTS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")
ARROW = (".arrow", ".feather", ".ipc")
ARRAYS = (".safetensors", ".npz", ".npy", ".pt", ".pth")
KINDS = (*ARRAYS, ".csv", ".tsv", ".parquet", *ARROW, ".json", ".jsonl", ".ndjson")
URI = re.compile(r"(s3|gs|gcs|hdfs|viewfs|abfss?|file):/+")
# What to do with files of other kinds; pickled objects are never opened.
_SHEET = "save the sheet as CSV UTF-8"
_SAVED = "and write its arrays with np.savez('predictions.npz', logits=logits, label=label)"
OTHER_KINDS = {
    **dict.fromkeys((".xlsx", ".xls", ".ods", ".numbers"), _SHEET),
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), "write tables with DataFrame.to_csv, and arrays with np.savez"),
    ".mat": f"read it with scipy.io.loadmat, {_SAVED}",
    **dict.fromkeys((".h5", ".hdf5"), f"read it with h5py, {_SAVED}"),
    **dict.fromkeys((".dta", ".sav", ".sas7bdat", ".orc"), "read it with pandas, and write it with DataFrame.to_csv"),
    **dict.fromkeys((".rds", ".rdata", ".rda"), "in R, run write.csv(predictions, 'predictions.csv')"),
    **dict.fromkeys((".db", ".sqlite", ".sqlite3"), "run sqlite3 -header -csv FILE 'SELECT * FROM NAME' > new.csv"),
    ".duckdb": "run duckdb FILE -c \"COPY TABLE_NAME TO 'predictions.parquet'\"",
    **dict.fromkeys((".zip", ".xz", ".tar", ".tgz", ".7z", ".rar"), "unpack it, or pack it with gzip"),
    **dict.fromkeys(PACKED, "name it after what it holds, as in predictions.csv.gz"),
    ".txt": "rename it to .csv if it has columns",
}
START_BYTES = 1 << 20
BATCH_BYTES = 1 << 24
VALUE_BYTES = 8
FOLDER = "give one file, or a folder that has only the parts of one, such as part-0.csv and part-1.csv"


@dataclass(frozen=True)
class Text:
    """A column of words: the distinct ones without spaces around them, and for each row the number of its word."""

    codes: Array
    values: list[str]

    def first_row(self, code: int) -> int:
        return int((self.codes == code).argmax())

    def __len__(self) -> int:
        return len(self.codes)


# Numbers or flags [n], lists of numbers [n, K], or words.
Column = Array | Text


@dataclass(frozen=True)
class Columns:
    """Columns by name, and those of the classes as one array [n, K]; `rows` [n] of the source, None if all."""

    named: dict[str, Column]
    classes: Array | None = None
    rows: Array | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.named.values()))) if self.classes is None else len(self.classes)

    def select(self, rows: Array) -> "Columns":
        """The rows of these numbers or flags."""
        numbers = np.arange(len(self)) if self.rows is None else self.rows
        named = {name: select(column, rows) for name, column in self.named.items()}
        return replace(
            self, named=named, classes=None if self.classes is None else self.classes[rows], rows=numbers[rows]
        )


@dataclass(frozen=True)
class Wanted:
    """Columns to read: where a source does not say what they hold, as numbers, as words, or as keys, of which few are
    equal. The columns of the classes become one array.
    """

    numbers: Sequence[str] = ()
    words: Collection[str] = ()
    keys: Collection[str] = ()
    classes: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        return [*dict.fromkeys([*self.numbers, *self.words, *self.keys])]

    @property
    def all(self) -> list[str]:
        return [*dict.fromkeys([*self.names, *self.classes])]


@dataclass(frozen=True)
class Table:
    """The names of a source's columns, and `load`, which reads some of them.

    Columns in `lists`
    have a list in each row; those in `never` are no classes unless somebody says so. In a `typed` table numbers are
    class numbers even if classes have numbers as names. One array without a name is `alone`. Rows of parts are not
    `ordered`. Another file gave the role `truth`.
    """

    names: list[str]
    load: Callable[[Wanted], Columns]
    lists: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()
    typed: bool = False
    alone: bool = False
    ordered: bool = True
    truth: str | None = None
    class_names: list[str] | None = None
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class File:
    """A file on this machine, or of a `system` of pyarrow; `counts` are the unpacked bytes of it and other parts."""

    name: str
    system: Any = None
    limit: float | None = None
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def packed(self) -> str | None:
        return PACKED.get(Path(self.name).suffix.lower())

    @property
    def kind(self) -> str:
        """The ending that says the format, in lower case and without that of a compression."""
        path = Path(self.name)
        return (path.with_suffix("") if self.packed else path).suffix.lower()

    @property
    def size(self) -> int:
        return int(
            Path(self.name).stat().st_size if self.system is None else self.system.get_file_info(self.name).size
        )

    def count(self, unpacked: int) -> None:
        """Raise if all parts unpack to more than the limit."""
        self.counts[self.name] = max(unpacked, self.counts.get(self.name, 0))
        check_unpacked(sum(self.counts.values()), self.size, self.limit)

    def stored(self) -> Any:
        """The file as it is stored."""
        import pyarrow as pa

        if self.system is not None:
            return self.system.open_input_file(self.name)
        return pa.OSFile(os.fsencode(self.name))  # a name in any encoding

    def unpacked(self) -> Any:
        """The file as a stream; an error when it unpacks to more than the limit."""
        import pyarrow as pa

        if self.packed is None:
            return self.stored()
        return pa.PythonFile(_Capped(pa.CompressedInputStream(self.stored(), self.packed), self), mode="r")

    def content(self) -> bytes:
        """All of it, unpacked."""
        parts = []
        with self.unpacked() as stream:
            while part := stream.read(START_BYTES):
                parts.append(part)
        return b"".join(parts)


class _Capped:
    """A stream that counts what it unpacks."""

    closed = False

    def tell(self) -> int:
        return self.count

    def readable(self) -> bool:
        return True

    def __init__(self, stream: Any, file: File) -> None:
        self.stream, self.file, self.count = stream, file, 0

    def read(self, size: int) -> bytes:
        content: bytes = self.stream.read(size)
        self.count += len(content)
        self.file.count(self.count)
        return content

    def close(self) -> None:
        self.stream.close()


def open_table(source: Any, max_gigabytes: float | None = None, wanted: Collection[str] = ()) -> Table:
    """The table of a path, a URI, or a data frame of pandas, polars or Arrow, with its index if that is `wanted`."""
    if not isinstance(source, str | Path):
        return _of_frame(source, wanted)
    files = _files_of(str(source), max_gigabytes)
    tables = []
    for file in files:
        with nullcontext() if file.name == str(source) else about(Path(file.name).name):
            _check_kind(file)
            tables.append(_of_file(file))
    return tables[0] if len(tables) == 1 else _of_parts(files, tables)


def _of_file(file: File) -> Table:
    if file.kind in ARRAYS:
        from confrank.predictions.arrays import of_arrays

        return of_arrays(Path(file.name), file.kind, file.limit)
    with readable(file):
        if file.kind in (".json", ".jsonl", ".ndjson"):
            from confrank.predictions.documents import of_json

            return of_json(decoded(file.content()), file.kind != ".json")
        if file.kind == ".parquet":
            return _of_parquet(file)
        return _of_arrow(file) if file.kind in ARROW else _of_csv(file)


# Where files are


def _files_of(source: str, limit: float | None) -> list[File]:
    """The files of a source: one, the parts in a folder, or what a pattern matches."""
    if found := URI.match(source):
        return _files_at(f"{found[1]}://{source[found.end() :]}", limit)
    path, counts = Path(source), {}  # type: Path, dict[str, int]
    if not path.exists() and set("*?[") & {*source}:
        pattern = path.relative_to(path.anchor)
        paths = sorted(Path(path.anchor or ".").glob(str(pattern)), key=lambda one: _order(one.name))
        if not paths:
            raise ValueError("expected files of predictions, but none has such a name")
        return [File(str(one), None, limit, counts) for one in paths]
    if not path.exists():
        raise ValueError(f"expected a predictions file, but it does not exist{similar_path(path)}")
    if not path.is_dir():
        return [File(source, None, limit)]
    run = next((item.parent for item in sorted(path.glob("*/config.yaml"))), None)
    if run is not None:
        raise ValueError(f"expected a predictions file, but it is a folder; give a run folder in it, such as {run}")
    entries = [(entry.name, entry.is_dir()) for entry in path.iterdir()]
    return [File(str(path / name), None, limit, counts) for name in parts_of(entries)]


def _files_at(uri: str, limit: float | None) -> list[File]:
    import pyarrow as pa
    from pyarrow import fs

    try:
        system, path = fs.FileSystem.from_uri(uri)
        info = system.get_file_info(path)
        if info.type == fs.FileType.File:
            return [File(path, system, limit)]
        if info.type == fs.FileType.NotFound:
            raise ValueError("expected a predictions file, but it does not exist")
        entries = system.get_file_info(fs.FileSelector(path))
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"expected a file that can be opened, but got: {reason}", "check the address and your credentials"
        ) from None
    folders = {entry.base_name: entry.type == fs.FileType.Directory for entry in entries}
    counts: dict[str, int] = {}
    return [File(f"{path}/{name}", system, limit, counts) for name in parts_of([*folders.items()])]


def parts_of(entries: Sequence[tuple[str, bool]]) -> list[str]:
    """The names of the parts in a folder, in their order; `entries` are names and whether they are folders."""
    others = {"dataset_info.json", "state.json"}  # of `datasets`; Spark has others that begin with a mark
    names = sorted((name for name, _ in entries if name[0] not in "._" and name not in others), key=_order)
    if not names or any(is_folder for name, is_folder in entries if name in names):
        raise InputError("expected a predictions file, but it is a folder", FOLDER)
    if len({re.sub(r"\d+", "0", name) for name in names}) > 1:
        raise InputError(f"expected a predictions file, but it is a folder with {named(names, 3)}", FOLDER)
    total = re.search(r"-of-(\d+)", names[0])
    if total and int(total[1]) != len(names):
        raise InputError(f"expected {counted(int(total[1]), 'part')}, but got {len(names)}", "add the others")
    finished = any(name == "_SUCCESS" for name, _ in entries)  # parts without rows may be absent
    varying = [numbers for numbers in zip(*map(_numbers, names), strict=True) if len({*numbers}) > 1]
    is_dated = re.search(r"20\d\d-?[01]\d", names[0])
    if not finished and not total and not is_dated and len(varying) == 1:
        missing = sorted({*range(min(1, varying[0][0]), varying[0][-1])} - {*varying[0]})
        if missing:
            raise InputError(
                f"expected parts numbered without gaps, but number {named([*map(str, missing)])} is missing in"
                f" {names[0]} to {names[-1]}",
                "add it",
            )
    return names


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def _order(name: str) -> tuple[list[int], str]:
    return _numbers(name), name


def _check_kind(file: File) -> None:
    """Raise if the ending of a file, or what it begins with, is of no kind that can be read."""
    ending = Path(file.name).suffix.lower()
    if file.kind not in KINDS or (file.packed and file.kind not in TEXTS):
        if remedy := OTHER_KINDS.get(file.kind if file.packed and file.kind else ending):
            raise ValueError(f"expected a predictions file, but got one ending in {Path(file.name).suffix}; {remedy}")
        packed = f"{', '.join(TEXTS)} with {', '.join(PACKED)}"
        raise ValueError(
            f"expected a file ending in {', '.join(KINDS)}, or {packed}, but got {ending or 'no ending'}"
        )
    if file.system is not None and file.kind in ARRAYS:
        raise ValueError(
            f"expected a table at this address, but got a file ending in {ending}; copy it to this machine"
        )
    if file.size == 0:
        raise ValueError("expected a predictions file, but it is empty")


@contextmanager
def readable(file: File) -> Iterator[None]:
    """Turn errors of pyarrow, of unpacking and of decoding into a `ValueError` that says what was expected."""
    import pyarrow as pa

    try:
        yield
    except (InputError, FileNotFoundError, PermissionError):
        raise
    except UnicodeError as error:
        raise ValueError(f"expected text in UTF-8, but it cannot be decoded: {error}; {CONVERT}") from None
    except (pa.ArrowException, OSError, EOFError, MemoryError, OverflowError) as error:
        what = "an intact compressed file" if file.packed else f"a {file.kind} file"
        raise ValueError(f"expected {what}, but it cannot be read: {error}") from None


# Tables of pyarrow


def _of_csv(file: File) -> Table:
    """A header, then rows; the mark that splits the header into the most columns separates them."""
    with file.unpacked() as stream:
        start = stream.read(START_BYTES)
    encoding = "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf8"
    text = decoded(start, cut=len(start) == START_BYTES)
    mark = mark_of(text, tabs=file.kind == ".tsv")
    with long_fields():
        reader = csv.reader(text.splitlines(keepends=True), delimiter=mark, skipinitialspace=True)
        try:
            rows = filled(reader)
            header = next(rows, None)
            skipped = reader.line_num
            first = next(rows, None)
        except csv.Error as error:
            raise ValueError(f"expected a CSV file, but it cannot be parsed: {error}") from None
    if header is None:
        raise ValueError("expected a header line, but there are only empty lines")
    if first is None:
        raise ValueError(f"expected rows of {len(header)} values under the header, but there are none")
    names = [unguarded(name) for name in header]

    def load(wanted: Wanted) -> Columns:
        import pyarrow as pa

        at = {name: str(names.index(name)) for name in wanted.all}
        texts = pa.dictionary(pa.int32(), pa.string())
        types = {at[name]: pa.float64() for name in at}
        types |= {at[name]: pa.string() for name in wanted.keys}
        types |= {at[name]: texts for name in wanted.words}
        with readable(file):
            found = _csv_table(file, types, len(names), skipped, mark, encoding)
            if found is None:  # numbers written in another way, or no numbers
                found = _csv_table(file, dict.fromkeys(types, texts), len(names), skipped, mark, encoding)
            batches = found.rename_columns([*at]).to_batches()
            del found
            return _gathered((batches.pop(0) for _ in range(len(batches))), wanted)

    return Table(names, load)


def _csv_table(file: File, types: dict[str, Any], width: int, skipped: int, mark: str, encoding: str) -> Any:
    """A table of pyarrow; None if a cell is no number of the usual form."""
    import pyarrow as pa
    from pyarrow import csv as pa_csv

    options = {
        "convert_options": pa_csv.ConvertOptions(
            column_types=types, include_columns=[*types], null_values=sorted(MISSING), strings_can_be_null=False
        )
    }
    for is_last in (False, True):
        options["read_options"] = pa_csv.ReadOptions(
            column_names=[str(number) for number in range(width)], skip_rows=skipped, block_size=1 << 22,
            encoding=encoding, use_threads=not is_last,
        )  # fmt: skip
        options["parse_options"] = pa_csv.ParseOptions(delimiter=mark, newlines_in_values=is_last)
        with file.unpacked() as stream:
            try:
                return pa_csv.read_csv(stream, **options)
            except pa.ArrowInvalid as error:
                message = " ".join(str(error).split())
        if "UTF" in message:
            raise ValueError(f"expected text in UTF-8, but got other bytes; {CONVERT}")
        if "conversion error" in message:
            return None
    if found := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message):
        raise ValueError(
            f"expected {found[2]} values in each row, as in the header, but got {found[3]} in line {found[1]}"
        )
    raise ValueError(f"expected a CSV file, but it cannot be parsed: {message}")


def _of_parquet(file: File) -> Table:
    from pyarrow import parquet

    with parquet.ParquetFile(file.stored()) as stream:
        schema, metadata = stream.schema_arrow, stream.metadata
        size = _parquet_size(metadata)
        file.count(size)
    # So many rows that a batch of them takes about BATCH_BYTES, which its decoding takes several times.
    rows = int(min(max(BATCH_BYTES * metadata.num_rows // max(1, size), 1024), 65_536))

    def load(wanted: Wanted) -> Columns:
        with readable(file), parquet.ParquetFile(file.stored()) as stream:
            return _gathered(stream.iter_batches(columns=wanted.all, batch_size=rows), wanted)

    return _of_schema(schema, load)


def _parquet_size(metadata: Any) -> int:
    """The bytes of all columns as numbers or, where that is more, as their text."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    width = range(metadata.num_columns)
    if not any(metadata.schema.column(number).max_repetition_level for number in width):
        values = metadata.num_rows * metadata.num_columns * VALUE_BYTES
        return int(max(sum(group.total_byte_size for group in groups), values))
    # Lists have any number of values, which only columns know; pyarrow aborts if those of a damaged file are asked.
    columns = [group.column(number) for group in groups for number in width]
    return sum(max(column.total_uncompressed_size, column.num_values * VALUE_BYTES) for column in columns)


def _of_arrow(file: File) -> Table:
    """What pandas calls Feather and Polars IPC, a file or a stream."""
    import pyarrow as pa

    @contextmanager
    def opened(options: Any = None) -> Iterator[Any]:
        with file.stored() as source:
            is_file = source.read(6) == b"ARROW1"
            source.seek(0)
            with (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source, options=options) as reader:
                yield reader

    with opened() as reader:
        schema = reader.schema

    def batches(reader: Any) -> Iterator[Any]:
        unpacked = 0
        is_file = hasattr(reader, "num_record_batches")
        for batch in map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader:
            unpacked += max(batch.nbytes, batch.num_rows * batch.num_columns * VALUE_BYTES)
            file.count(unpacked)
            batch.validate(full=True)  # a damaged one would end the process when it is read
            yield batch

    def load(wanted: Wanted) -> Columns:
        fields = sorted(map(schema.names.index, wanted.all))
        with readable(file), opened(pa.ipc.IpcReadOptions(included_fields=fields)) as reader:
            return _gathered(batches(reader), wanted)

    return _of_schema(schema, load)


def _of_frame(frame: Any, wanted: Collection[str]) -> Table:
    """A data frame, or a series as a single column, through the Arrow interface.

    The index of pandas is a column if its name is `wanted` or known, or if it has none but distinct numbers that do
    not count the rows.
    """
    import pyarrow as pa

    from confrank.predictions.roles import key_of, role_of

    frame = frame.to_frame() if hasattr(frame, "to_frame") else frame
    if not hasattr(frame, "__arrow_c_stream__"):
        raise ValueError(f"expected the path of a file or a data frame, but got {type(frame).__name__}")
    index: Any = getattr(frame, "index", None)
    if hasattr(index, "equals"):
        levels = [str(name) for name in index.names if name is not None]
        others = {*map(str, frame.columns)}
        is_known = any(key_of(name) or role_of(name) or name in wanted for name in levels) and not others & {*levels}
        if is_known or (not levels and identifies(index) and "index" not in others):
            frame = frame.reset_index()
    given = [*getattr(frame, "column_names", getattr(frame, "columns", ()))]
    names = [str(name) for name in given]

    def column(name: str, source: Any = frame) -> Any:
        part = source.select([name]) if hasattr(source, "select") else source[[given[names.index(name)]]]
        try:
            found = pa.table(part).column(0)
        except pa.ArrowException:  # objects of several kinds
            return pa.table(part.astype(str)).column(0)
        kind = found.type.value_type if pa.types.is_dictionary(found.type) else found.type
        is_odd = pa.types.is_struct(kind) or isinstance(kind, pa.BaseExtensionType)
        return pa.table(part.astype(str)).column(0) if is_odd and hasattr(part, "astype") else found

    def load(wanted: Wanted) -> Columns:
        table = pa.table([column(name) for name in wanted.all], names=wanted.all)
        return _gathered(table.to_batches(), wanted)

    check_distinct(names)
    first = frame.slice(0, 100) if hasattr(frame, "slice") else frame.iloc[:100]
    return Table(names, load, frozenset(name for name in names if is_list(column(name, first).type)))


def _of_schema(schema: Any, load: Any) -> Table:
    return Table(list(schema.names), load, frozenset(field.name for field in schema if is_list(field.type)))


def is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _gathered(batches: Any, wanted: Wanted) -> Columns:
    """The columns of record batches; each batch is freed once it is copied."""
    classes, keys = wanted.classes, {*wanted.keys} - {*wanted.words}
    parts: dict[str, list[Array]] = {name: [] for name in wanted.names}
    known: dict[str, dict[str, int]] = {name: {} for name in wanted.all}
    tables: list[Array] = []
    for batch in batches:
        for name, arrays in parts.items():
            cells = _keys(batch.column(name)) if name in keys else None
            arrays.append(_values(batch.column(name), name, known[name]) if cells is None else cells)
        if classes:
            table = [_values(batch.column(name), name, known[name]) for name in classes]
            for number, name in enumerate(classes):
                if known[name]:
                    table[number] = class_values(Text(table[number], [*known[name]]), name)
                    known[name] = {}
            tables.append(np.stack(table, axis=1))
    if not sum(map(len, tables or next(iter(parts.values()), []))):
        raise ValueError("expected rows of predictions, but there are none")
    named: dict[str, Column] = {}
    for name, arrays in parts.items():
        column = joined_arrays(arrays)
        if known[name]:
            occurring = np.zeros(len(known[name]), dtype=bool)
            occurring[column] = True
            text = as_words(column, [*known[name]])
            named[name] = text if occurring.all() else select(text, np.arange(len(column)))
        else:
            named[name] = column
    return Columns(named, joined_arrays(tables) if tables else None)


def _keys(column: Any) -> Array | None:
    """Words [n] as bytes, without a dictionary; None if these are others."""
    import pyarrow as pa

    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    words = np.array(column.cast(pa.large_binary()).to_pylist(), dtype=object)
    for row, word in enumerate(words.tolist()):
        if word is None or word[:1] == b"'" or word[:1] == b" ":
            words[row] = _plain_word((word or b"").decode()).encode()
    return words


def _values(column: Any, name: str, known: dict[str, int]) -> Array:
    """Numbers (NaN where a value is missing), lists of them [n, K], or the numbers of words."""
    import pyarrow as pa

    kind = column.type
    if is_list(kind):
        return _lists(column, name)
    if pa.types.is_dictionary(kind) and not pa.types.is_string(kind.value_type):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_boolean(kind) and column.null_count:
        column = column.cast(pa.int8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        if pa.types.is_struct(kind):
            raise InputError(
                f"expected numbers or words in column {name[:80]!r}, but got {kind}",
                "write lists of numbers (in Spark: vector_to_array)",
            )
        if not pa.types.is_dictionary(kind):
            column = column.cast(pa.large_string()).dictionary_encode()
        words = ["" if word is None else word for word in column.dictionary.to_pylist()]
        numbers = np.array([known.setdefault(word, len(known)) for word in words] or [0], dtype=np.int32)
        if column.null_count:
            numbers = np.append(numbers, np.int32(known.setdefault("", len(known))))
            column = column.indices.fill_null(len(numbers) - 1)
        else:
            column = column.indices
        codes: Array = numbers[np.from_dlpack(column)]
        return codes
    is_plain = not (column.null_count or pa.types.is_boolean(kind))
    # The other way imports pandas if it is there.
    values: Array = np.from_dlpack(column) if is_plain else column.to_numpy(zero_copy_only=False)
    return values


def _lists(column: Any, name: str) -> Array:
    import pyarrow as pa
    from pyarrow import compute

    kind = column.type.value_type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise ValueError(f"expected a list of numbers in column {name!r}, but got {column.type}")
    lengths = compute.unique(compute.list_value_length(column)).to_pylist()
    flat = column.flatten()
    if flat.null_count or None in lengths:
        raise ValueError(f"expected numbers in the lists of column {name!r}, but some are missing (null)")
    if len(lengths) != 1:
        raise ValueError(f"expected lists of one length in column {name!r}, but got lengths {sorted(lengths)[:5]}")
    values: Array = flat.to_numpy(zero_copy_only=False).reshape(len(column), lengths[0]).copy()
    return values  # a copy, so that the batch can be freed


# Parts


def _of_parts(files: Sequence[File], tables: Sequence[Table]) -> Table:
    """The parts of one table; they must have the same columns."""
    first, short = tables[0], [Path(file.name).name for file in files]
    for name, table in zip(short, tables, strict=True):
        if table.names != first.names or table.class_names != first.class_names:
            raise InputError(
                f"expected the same columns in each part, but {short[0]} has {named(first.names)}, and {name}"
                f" {named(table.names)}",
                FOLDER,
            )
    if first.alone:
        raise InputError(
            "expected labels in each part, but the parts are single arrays, whose rows may be in any order",
            "write logits, label and index of each part into one file",
        )

    def load(wanted: Wanted) -> Columns:
        parts = []
        for name, table in zip(short, tables, strict=True):
            with about(name):
                parts.append(table.load(wanted))
        tabled = [part.classes for part in parts if part.classes is not None]
        columns = {name: _column_of([part.named[name] for part in parts], name) for name in parts[0].named}
        whole = Columns(columns, np.concatenate(tabled) if tabled else None)
        numbers = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        from confrank.predictions.joining import without_copies

        return without_copies(whole, numbers, short)

    lists = frozenset[str]().union(*(table.lists for table in tables))
    metadata = {
        key: value for key, value in first.metadata.items() if all(one.metadata.get(key) == value for one in tables)
    }
    return replace(first, load=load, lists=lists, metadata=metadata, ordered=False)


def _column_of(parts: Sequence[Column], name: str) -> Column:
    """One column of all parts; words are numbered alike."""
    texts = [part for part in parts if isinstance(part, Text)]
    arrays = [part for part in parts if not isinstance(part, Text)]
    if texts and arrays:
        raise ValueError(f"expected {name} to be text in all parts, or numbers in all, but got both")
    if len({array.shape[1:] for array in arrays}) > 1:
        shapes = named([str(list(array.shape)) for array in arrays])
        raise ValueError(f"expected {name} to have as many columns in each part, but got shapes {shapes}")
    if arrays:
        return np.concatenate(arrays)
    known: dict[str, int] = {}
    codes = []
    for text in texts:
        numbers = np.array([known.setdefault(value, len(known)) for value in text.values], dtype=np.int64)
        codes.append(numbers[text.codes])
    return Text(np.concatenate(codes), [*known])


# Cells


def check_distinct(names: Sequence[str]) -> None:
    """Raise if two columns have the same name."""
    first: dict[str, int] = {}
    for column, name in enumerate(name.strip() for name in names):
        if name and name in first:
            raise InputError(
                f"expected distinct columns, but got {name[:80]!r} twice, as columns {first[name] + 1} and"
                f" {column + 1}",
                "rename one of them",
            )
        first[name] = column


def joined_arrays(parts: list[Array]) -> Array:
    """Concatenate the parts; each is freed as soon as it is copied."""
    whole: Array = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), dtype=np.result_type(*parts))
    start = len(whole)
    while parts:
        part = parts.pop()
        start -= len(part)
        whole[start : start + len(part)] = part
    return whole


def as_words(codes: Array, words: Sequence[str]) -> Text:
    """Words by their numbers, as they were before a program quoted, guarded or padded them.

    >>> as_words(np.array([0, 1, 2]), ["a", "b ", ' "b"'])
    Text(codes=array([0, 1, 1]), values=['a', 'b'])
    """
    plain = [_plain_word(word) for word in words]
    if plain == words:
        return Text(codes, plain)
    known: dict[str, int] = {}
    numbers = np.array([known.setdefault(word, len(known)) for word in plain], dtype=np.int64)
    return Text(numbers[codes], [*known])


def _plain_word(word: str) -> str:
    plain = word.strip()
    if word[:1] == " " and len(plain) > 1 and plain[0] == plain[-1] == '"':
        return plain[1:-1].replace('""', '"').strip()
    return unguarded(plain)


def words_of(cells: Sequence[str]) -> Text:
    known: dict[str, int] = {}
    codes = np.array([known.setdefault(cell, len(known)) for cell in cells], dtype=np.int64)
    return as_words(codes, [*known])


def select(column: Column, rows: Array) -> Column:
    """The cells in these rows (numbers or flags), in this order; text keeps only the values that occur."""
    if not isinstance(column, Text):
        return column[rows]
    occurring, codes = np.unique(column.codes[rows], return_inverse=True)
    return Text(codes, [column.values[code] for code in occurring.tolist()])


def is_missing(column: Column) -> Array:
    """Flags [n] of the cells without a value: empty ones, words such as None, and NaN."""
    if isinstance(column, Text):
        return np.array([value in MISSING for value in column.values], dtype=bool)[column.codes]
    with np.errstate(all="ignore"):  # a sum is NaN if a number is, or if it has both infinities
        if column.dtype.kind != "f" or not np.isnan(column.sum()):
            return np.zeros(len(column), dtype=bool)
    flags: Array = np.isnan(column).reshape(len(column), -1)
    return np.array(flags.any(axis=1))


_FORMS = (
    (re.compile(r"[^_]+"), lambda cell: cell),
    (re.compile(r"[-+]?[\d.,]+\s?%"), lambda cell: f"{cell[:-1].strip().replace(',', '.')}e-2"),
    (re.compile(r"[-+]?(\d*,)?\d+([eE][-+]?\d+)?"), lambda cell: cell.replace(",", ".")),
)
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+")


def number(cell: str, form: int = 0) -> float | None:
    """A number in ASCII digits: plain, a percentage, or with a decimal comma.

    >>> number(" 0.5"), number("1_000"), number("71,7 %", 1), number("0,83", 2)
    (0.5, None, 0.717, 0.83)
    """
    pattern, plain = _FORMS[form]
    cell = cell.strip()
    if not cell.isascii() or not pattern.fullmatch(cell):
        return None
    try:
        return float(plain(cell))
    except ValueError:
        return None


def numbers_if_all(column: Column) -> Column:
    """Words that are all plain numbers as numbers."""
    if isinstance(column, Text) and not all(value in MISSING for value in column.values):
        numbers = [np.nan if value in MISSING else number(value) for value in column.values]
        if None not in numbers:
            return np.array(numbers, dtype=np.float64)[column.codes]
    return column


def numbers_of(column: Column, name: str) -> Array:
    """Numbers [n], NaN for what is missing; all words of a column must write numbers in one of the forms."""
    if not isinstance(column, Text):
        return column
    given = [value for value in column.values if value not in MISSING]
    form = 0
    for tried in range(len(_FORMS)):
        if all(number(value, tried) is not None for value in given):
            form = tried
            break
    values = np.full(len(column.values), np.nan)
    for code, value in enumerate(column.values):
        if value not in MISSING:
            found = number(value, form)
            if found is None:
                row = column.first_row(code)
                raise ValueError(f"expected numbers in column {name[:80]!r}, but got {value[:80]!r} in row {row}")
            values[code] = found
    commas = [value for value in given if "," in value]
    if form == 2 and all(_THOUSANDS.fullmatch(value) for value in commas):
        raise ValueError(
            f"expected a decimal point, but got {commas[0][:80]!r}, which may be a decimal comma or separate"
            " thousands; write numbers with a point"
        )
    return values[column.codes]


def class_values(column: Column, name: str) -> Array:
    """Numbers [n] of a class column."""
    try:
        return numbers_of(column, name)
    except ValueError as error:
        raise InputError(
            str(error),
            "name all class columns probability_NAME or logit_NAME, so that others are ignored, or name them with"
            " {columns}, as in probability:NAME=COLUMN",
        ) from None

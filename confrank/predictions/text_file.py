"""Files of text: UTF-8 or UTF-16 with its mark, compressed or not."""

import bz2
import csv
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TextIO, cast

from confrank.errors import InputError, named

START = 4096
# Of encrypted archives, and of methods that are not there.
_ZIP_ERRORS = (RuntimeError, NotImplementedError)
CONVERT = "save it as UTF-8 (Excel: CSV UTF-8), or run iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW"


def _open_zip(path: Path) -> IO[bytes]:
    """The only file in an archive; archives of a Mac also have hidden ones."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.startswith("__MACOSX/") and not name.endswith("/")]
        if len(names) != 1:
            raise ValueError(f"expected one file in the zip archive, but got {len(names)}: {named(names)}; unpack it")
        return archive.open(names[0])


def _open_zst(path: Path) -> IO[bytes]:
    try:
        import pyarrow as pa
    except ImportError:
        raise ValueError("expected pyarrow to unpack .zst, but it is missing: pip install pyarrow") from None
    return cast(IO[bytes], pa.input_stream(str(path), compression="zstd"))


# How a compressed file is opened, by its ending.
PACKED: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.GzipFile,
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": _open_zst,
    ".zip": _open_zip,
}


def suffix_of(path: Path) -> str:
    """The ending that says the format, in lower case and without that of a compression.

    >>> suffix_of(Path("a.CSV.gz")), suffix_of(Path("a.json"))
    ('.csv', '.json')
    """
    inner = path.with_suffix("") if path.suffix.lower() in PACKED else path
    return inner.suffix.lower()


def open_bytes(path: Path) -> IO[bytes]:
    opened = PACKED.get(path.suffix.lower())
    return path.open("rb") if opened is None else cast(IO[bytes], opened(path))


def encoding_of(path: Path) -> str:
    """utf-16 if the file starts with its byte order mark, otherwise utf-8-sig."""
    with open_bytes(path) as file:
        start = file.read(START)
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if start.count(0) > len(start) // 4:
        raise ValueError(
            "expected text in UTF-8, but this looks like UTF-16 without a byte order mark; save it as UTF-8, or run"
            " iconv -f UTF-16LE -t UTF-8 FILE > NEW"
        )
    return "utf-8-sig"


def open_text(path: Path, encoding: str) -> TextIO:
    return io.TextIOWrapper(open_bytes(path), encoding=encoding, newline="")


def distinct_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The `object_pairs_hook` of what reads JSON: of two values with one name, the last alone would count."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(
            f"expected distinct names in each object, but got {twice[:80]!r} twice", "rename one of them"
        )
    return found


def decoded(path: Path) -> str:
    """The text of a file; an error names the line that cannot be decoded."""
    encoding = encoding_of(path)
    with open_bytes(path) as file:
        content = file.read()
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"expected text in UTF-8, but line {line} holds byte {content[error.start]:#04x}; {_remedy(content)}"
        ) from None


def _remedy(content: bytes) -> str:
    """What to do about bytes that are not UTF-8: no 8-bit encoding of text has zero bytes."""
    return "this looks like a binary file, so give a text file" if 0 in content else CONVERT


@contextmanager
def readable(kind: str) -> Iterator[None]:
    """Turn errors of decoding, unpacking and parsing CSV into a `ValueError` that says so."""
    try:
        yield
    except UnicodeError as error:
        remedy = _remedy(error.object) if isinstance(error, UnicodeDecodeError) else CONVERT
        raise ValueError(f"expected {kind} in UTF-8, but it cannot be decoded: {error}; {remedy}") from None
    except csv.Error as error:
        raise ValueError(f"expected {kind}, but it cannot be parsed: {error}") from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, *_ZIP_ERRORS) as error:
        if getattr(error, "errno", None) is not None:  # of the disk
            raise
        raise ValueError(f"expected an intact compressed file, but it cannot be unpacked: {error}") from None

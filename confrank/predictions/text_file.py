"""Files of text: UTF-8 or UTF-16 with its mark, compressed with gzip or not."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TextIO, cast

START = 4096
CONVERT = "save it as UTF-8 (Excel: CSV UTF-8), or run iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW"


def suffix_of(path: Path) -> str:
    """The ending that says the format, in lower case and without .gz.

    >>> suffix_of(Path("a.CSV.gz")), suffix_of(Path("a.json"))
    ('.csv', '.json')
    """
    inner = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return inner.suffix.lower()


def open_bytes(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")


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
            f"expected text in UTF-8, but line {line} holds byte {content[error.start]:#04x}; {CONVERT}"
        ) from None


@contextmanager
def readable(kind: str) -> Iterator[None]:
    """Turn errors of decoding, unpacking and parsing CSV into a `ValueError` that says so."""
    try:
        yield
    except UnicodeError as error:
        raise ValueError(f"expected {kind} in UTF-8, but it cannot be decoded: {error}; {CONVERT}") from None
    except csv.Error as error:
        raise ValueError(f"expected {kind}, but it cannot be parsed: {error}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"expected an intact .gz file, but it cannot be unpacked: {error}") from None

"""What a file of predictions takes when it is unpacked, known before it is read."""

import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from confrank.errors import InputError
from confrank.files import check_unpacked, gigabytes_allowed, npz_size
from confrank.predictions.arrow_size import arrow_size
from confrank.predictions.text_file import open_bytes

# Deflate packs at most this many bytes into one.
MOST_DEFLATED = 1032
CHUNK_BYTES = 1 << 20
NUMBER_BYTES = 8


def check_cost(paths: Sequence[Path], max_gigabytes: float | None = None) -> None:
    """Raise if compressed files unpack to more than the limit; damage is left to the reader, which describes it."""
    limit, packed = gigabytes_allowed(max_gigabytes), sum(path.stat().st_size for path in paths)
    if packed * MOST_DEFLATED <= limit * 1e9 and all(path.suffix.lower() == ".gz" for path in paths):
        return
    check_unpacked(sum(_size(path, limit) for path in paths), packed, limit)


def _size(path: Path, limit: float) -> int:
    measure = _SIZES.get(path.suffix.lower())
    try:
        return path.stat().st_size if measure is None else measure(path, limit)
    except InputError:
        raise
    except Exception:  # numpy, zipfile, gzip and pyarrow raise errors of many kinds for damaged files
        return 0


def _parquet_size(path: Path, limit: float) -> int:
    """The bytes of all columns as numbers or, where that is more, as their text."""
    try:
        from pyarrow import parquet
    except ImportError:
        return 0
    metadata = parquet.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if not any(metadata.schema.column(number).max_repetition_level for number in range(metadata.num_columns)):
        values = metadata.num_rows * metadata.num_columns * NUMBER_BYTES
        return int(max(sum(group.total_byte_size for group in groups), values))
    # Lists have any number of values, which only columns know; pyarrow aborts if those of a damaged file are asked.
    columns = [group.column(number) for group in groups for number in range(metadata.num_columns)]
    return sum(max(column.total_uncompressed_size, column.num_values * NUMBER_BYTES) for column in columns)


def _arrow_size(path: Path, limit: float) -> int:
    """An error where the sizes cannot be known: the Arrow library would unpack whatever the file claims."""
    try:
        return arrow_size(path)
    except (struct.error, ValueError, IndexError):
        raise InputError(
            "expected an Arrow file, but its headers cannot be read", "write it again, or write Parquet or CSV"
        ) from None


def _counted_size(path: Path, limit: float) -> int:
    """The unpacked size, or a number above the limit as soon as that is passed."""
    size = 0
    with open_bytes(path) as file:
        while size <= limit * 1e9 and (chunk := file.read(CHUNK_BYTES)):
            size += len(chunk)
    return size


def _zip_size(path: Path, limit: float) -> int:
    with zipfile.ZipFile(path) as archive:
        return sum(member.file_size for member in archive.infolist())


_SIZES: dict[str, Callable[[Path, float], int]] = {
    **dict.fromkeys((".xlsx", ".zip"), _zip_size),
    ".npz": lambda path, limit: npz_size(path),
    ".parquet": _parquet_size,
    **dict.fromkeys((".arrow", ".feather", ".ipc"), _arrow_size),
    **dict.fromkeys((".gz", ".bz2", ".xz", ".zst"), _counted_size),
}

"""What an Arrow file takes when its buffers are unpacked, from the headers of its record batches.

The Arrow library unpacks what a header claims, so the claims are added up first. The headers are flatbuffers: tables
whose fields are found through a list of offsets. Damage ends in an error of `struct`.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from struct import unpack_from

FILE_MARK, MESSAGE_MARK = b"ARROW1", b"\xff\xff\xff\xff"
# Fields of the tables Message, DictionaryBatch, RecordBatch and Footer that are needed here.
KIND, HEADER, BODY_LENGTH = 1, 2, 3
DICTIONARY_DATA = 1
NODES, BUFFERS, COMPRESSION = 1, 2, 3
DICTIONARIES, BATCHES = 2, 3
DICTIONARY_BATCH, RECORD_BATCH = 2, 3
# Without any buffer, a column may claim rows; each takes some bytes once it is an array.
ROW_BYTES = 4
Bytes = mmap.mmap


def arrow_size(path: Path) -> int:
    """The bytes of all buffers in a file or stream of Arrow record batches."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        starts = _in_footer(data) if data[: len(FILE_MARK)] == FILE_MARK else _in_sequence(data)
        return sum(_message_size(data, start) for start in starts)


def _in_footer(data: Bytes) -> Iterator[int]:
    """Where the messages of a file start: its last bytes have a table of them."""
    end = len(data) - len(FILE_MARK) - 4
    footer = _root(data, end - unpack_from("<i", data, end)[0])
    for field in (DICTIONARIES, BATCHES):
        start, length = _vector(data, _field(data, footer, field))
        for number in range(length):
            yield unpack_from("<q", data, start + 24 * number)[0]


def _in_sequence(data: Bytes) -> Iterator[int]:
    """Where the messages of a stream start: each after the body of the one before."""
    start = 0
    while start + 8 <= len(data) and (size := unpack_from("<i", data, start + 4)[0]) > 0:
        yield start
        length = _field(data, _root(data, start + 8), BODY_LENGTH)
        body = 0 if length is None else unpack_from("<q", data, length)[0]
        start += 8 + size + max(0, body)


def _message_size(data: Bytes, start: int) -> int:
    """The unpacked buffers of the message that starts with a mark and its length; its body follows."""
    if data[start : start + len(MESSAGE_MARK)] != MESSAGE_MARK:
        raise ValueError("expected the mark of a message, but there is none")
    message, body = _root(data, start + 8), start + 8 + unpack_from("<i", data, start + 4)[0]
    kind = _field(data, message, KIND)
    code = 0 if kind is None else data[kind]
    if code not in (DICTIONARY_BATCH, RECORD_BATCH):
        return 0
    batch = _table(data, _field(data, message, HEADER))
    if code == DICTIONARY_BATCH:
        batch = _table(data, _field(data, batch, DICTIONARY_DATA))
    is_packed = _field(data, batch, COMPRESSION) is not None
    first, count = _vector(data, _field(data, batch, BUFFERS))
    buffers = [unpack_from("<qq", data, first + 16 * number) for number in range(count)]
    first, count = _vector(data, _field(data, batch, NODES))
    rows = sum(max(0, unpack_from("<q", data, first + 16 * number)[0]) for number in range(count))
    # A packed buffer begins with its length; -1 says that it is stored as it is.
    claims = [unpack_from("<q", data, body + offset)[0] if is_packed and length else -1 for offset, length in buffers]
    sizes = [max(0, length if claim < 0 else claim) for (_, length), claim in zip(buffers, claims, strict=True)]
    return int(max(sum(sizes), rows * ROW_BYTES))


def _root(data: Bytes, start: int) -> int:
    return start + int(unpack_from("<I", data, start)[0])


def _field(data: Bytes, table: int, number: int) -> int | None:
    """Where a field of a table is; None if it has its default."""
    slots = table - unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= unpack_from("<H", data, slots)[0]:
        return None
    offset = int(unpack_from("<H", data, slots + 4 + 2 * number)[0])
    return table + offset if offset else None


def _table(data: Bytes, field: int | None) -> int:
    return _root(data, _required(field))


def _vector(data: Bytes, field: int | None) -> tuple[int, int]:
    """Where the items of a list start, and their number."""
    if field is None:
        return 0, 0
    start = _root(data, field)
    return start + 4, int(unpack_from("<I", data, start)[0])


def _required(field: int | None) -> int:
    if field is None:
        raise ValueError("expected a header in the message, but it has none")
    return field

"""Arrow files: what pandas calls Feather, Polars calls IPC, and `datasets` saves. Importing it needs pyarrow."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from confrank.predictions.arrow_size import FILE_MARK
from confrank.predictions.content import Content, Opened
from confrank.predictions.layout import Layout
from confrank.predictions.parquet import content_of, opened_by, readable


def open_arrow(path: Path) -> Opened:
    """Read the names of the columns of a file or a stream; a `ValueError` gives the column and the row."""
    with readable("an Arrow file"), _reader(path) as reader:
        return opened_by(reader.schema, lambda layout: _loaded(path, layout))


def _loaded(path: Path, layout: Layout) -> Content:
    wanted = sorted({*layout.numbers().values(), *layout.table})
    with readable("an Arrow file"), _reader(path) as reader:
        header = list(reader.schema.names)
    with readable("an Arrow file"), _reader(path, pa.ipc.IpcReadOptions(included_fields=wanted)) as reader:
        return content_of(_batches(reader), header, layout)


@contextmanager
def _reader(path: Path, options: Any = None) -> Iterator[Any]:
    with pa.memory_map(str(path)) as source:
        is_file = source.read(len(FILE_MARK)) == FILE_MARK
        source.seek(0)
        with (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source, options=options) as reader:
            yield reader


def _batches(reader: Any) -> Iterator[Any]:
    """The record batches; each is checked, since damaged ones would end the process when they are read."""
    whole = hasattr(reader, "num_record_batches")
    for batch in map(reader.get_batch, range(reader.num_record_batches)) if whole else reader:
        batch.validate(full=True)
        yield batch

"""Read named arrays: npz, safetensors, and npy with two columns or with named fields."""

import json
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from confrank.errors import InputError
from confrank.files import npy_header
from confrank.metrics.inputs import ROUNDING
from confrank.predictions.cells import Column, text_of
from confrank.predictions.content import Content, Opened
from confrank.predictions.doubts import kind_of
from confrank.predictions.layout import Layout
from confrank.predictions.names import KEY_NAMES, holds_class_names, key_of, role_of
from confrank.predictions.schema import ARRAYS, Array, check_shapes

CHUNK_BYTES = 1 << 24
Shapes = Mapping[str, tuple[int, ...]]


def open_safetensors(path: Path) -> Opened:
    """Arrays and the file's metadata."""

    kind = "a safetensors file"

    def load(names: Collection[str]) -> dict[str, Array]:
        with _readable(kind), safe_open(path, framework="numpy") as file:
            return {name: tensor(path, file, name) for name in names}

    with _readable(kind), safe_open(path, framework="numpy") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        return _opened(shapes, load, dict(file.metadata() or {}))


def tensor(path: Path, file: Any, name: str) -> Array:
    """An array of an open safetensors file; bfloat16, which numpy lacks, becomes float32."""
    if file.get_slice(name).get_dtype() != "BF16":
        values: Array = file.get_tensor(name)
        return values
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        stored = json.loads(stream.read(size))[name]
        start, end = stored["data_offsets"]
        stream.seek(8 + size + start)
        upper_halves = np.frombuffer(stream.read(end - start), dtype="<u2")
    return (upper_halves.astype("<u4") << 16).view("<f4").reshape(stored["shape"])


def open_npz(path: Path) -> Opened:
    """Arrays; `class_names` may be an array of strings. Pickles are not opened."""

    kind = "an npz archive of arrays"

    def load(names: Collection[str]) -> dict[str, Array]:
        with _readable(kind), path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: np.empty((0, 0)) if name in odd else file[name] for name in names}

    shapes: dict[str, tuple[int, ...]] = {}
    odd = set()  # Python objects, which are never opened, cannot identify samples
    with _readable(kind), zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            with archive.open(name) as stream:
                shape, _, dtype = npy_header(stream)
            shapes[name.removesuffix(".npy")] = shape
            if dtype.hasobject and key_of(name.removesuffix(".npy")):
                odd.add(name.removesuffix(".npy"))
    return _opened(shapes, load, {})


@contextmanager
def _readable(kind: str) -> Iterator[None]:
    """Turn errors of reading into a `ValueError` that says what was expected."""
    try:
        yield
    except Exception as error:  # numpy and safetensors raise errors of many types for broken and unsupported files
        objects = "; save text as np.array(names, dtype=str)" if "allow_pickle" in str(error) else ""
        raise ValueError(f"expected {kind}, but it cannot be read: {error}{objects}") from None


def open_npy(path: Path) -> Opened:
    """Rows of (confidence, correct), or a structured array with named fields; read in chunks."""
    with _readable("an npy file"), path.open("rb") as file:
        shape, fortran, dtype = npy_header(file)
        start = file.tell()
    expected = start + dtype.itemsize * int(np.prod(shape, dtype=object))
    if dtype.hasobject or path.stat().st_size != expected:
        raise ValueError(
            f"expected {expected:,} bytes for shape {shape} of {dtype}, but got {path.stat().st_size:,}"
            if not dtype.hasobject
            else "expected numbers, but got Python objects, which are never opened"
        )
    if dtype.names:
        if len(shape) != 1:
            raise ValueError(f"expected a structured array of one dimension, but got shape {shape}")
        shapes = {name: (shape[0], *dtype[name].shape) for name in dtype.names}
        return _opened(shapes, lambda names: _fields(path, start, shape[0], dtype, names), {})
    if len(shape) != 2 or not _holds_flags(np.load(path, mmap_mode="r")):
        return open_table(np.load(path))
    both = ("confidence", "correct")

    def load(names: Collection[str]) -> dict[str, Array]:
        if not fortran:
            return _fields(path, start, shape[0], np.dtype([(name, dtype) for name in both]), names)
        columns = np.fromfile(path, dtype, offset=start).reshape(2, shape[0])
        return {"confidence": columns[0], "correct": _flags(columns[1])}

    return replace(_opened(dict.fromkeys(both, shape[:1]), load, {}), alone=lambda: np.load(path))


def open_table(values: Array) -> Opened:
    """One array without a name: logits or probabilities [n, K], or rows of (confidence, correct) [n, 2]."""
    values = _single(values)
    arrays: dict[str, Array] = {}
    if values.ndim == 2 and _holds_flags(values):
        arrays = {"confidence": values[:, 0], "correct": _flags(values[:, 1])}
    elif values.ndim in (1, 2) and values.dtype.kind == "f":
        arrays = _table(values)
    return replace(open_arrays(arrays, {}), alone=lambda: values)


def refuse_alone(opened: Opened) -> None:
    """Raise if a file has no array but one of labels."""
    if opened.alone is not None and not opened.header:
        values = opened.alone()
        raise InputError(
            "expected logits or probabilities [n, K], or rows of (confidence, correct),"
            f" but got shape {list(values.shape)} of {values.dtype}",
            "give the labels of one array as {truth}, otherwise put all arrays into one npz file with their names",
        )


def _holds_flags(values: Array) -> bool:
    """Whether an array [n, 2] has only 0 and 1 in its second column: rows of (confidence, correct)."""
    return values.shape[1] == 2 and bool(np.isin(values[:, 1], (0, 1)).all())


def _table(values: Array) -> dict[str, Array]:
    """Values [n, K] by what they are; values [n] are the probability of class 1, or its logit if some are negative.

    Rounding may leave probabilities a little outside [0, 1], and percentages are never negative: neither is a logit.
    """
    if values.ndim == 1:
        return {"logits" if (values < -ROUNDING).any() else "probabilities": values}
    return {kind_of(values): values}


def _single(values: Array) -> Array:
    """Values [n, 1] as [n]."""
    return values[:, 0] if values.shape[1:] == (1,) else values


def with_label_rows(table: Array, label: Array, labels: str) -> Opened:
    """A table [n, K], or the probability of class 1 [n], with the labels [n] of another file, row by row."""
    table = _single(table)
    if table.ndim not in (1, 2) or label.ndim not in (1, 2) or len(label) != len(table):
        raise ValueError(
            f"expected labels [n] for a table [n, K], but {labels} has shape {list(label.shape)}, the table"
            f" {list(table.shape)}"
        )
    return open_arrays({**_table(table), "label": label}, {})


def open_arrays(arrays: Mapping[str, Array], metadata: dict[str, str]) -> Opened:
    """Arrays in memory, as if they had been read from a file."""
    shapes = {name: np.shape(values) for name, values in arrays.items()}
    return _opened(shapes, lambda names: {name: arrays[name] for name in names}, metadata)


def _opened(shapes: Shapes, load: Callable[[Collection[str]], dict[str, Array]], metadata: dict[str, str]) -> Opened:
    header = list(shapes)
    lists = frozenset(name for name, shape in shapes.items() if len(shape) > 1 and shape[1:] != (1,))

    def loaded(layout: Layout) -> Content:
        numbers = {*layout.numbers().values(), *layout.table}
        arrays = load([name for number, name in enumerate(header) if number in numbers or holds_class_names(name)])
        return _content(arrays, header, layout, metadata)

    return Opened(header, loaded, lists, bare=False)


def _content(arrays: dict[str, Array], header: list[str], layout: Layout, metadata: dict[str, str]) -> Content:
    """The arrays by role; shapes and lengths are checked, except of those that may identify samples."""
    columns = {role: arrays[header[number]] for role, number in layout.numbers().items()}
    columns |= {role: _single(values) for role, values in columns.items() if role not in KEY_NAMES}
    if "label" in columns and columns["label"].ndim == 2:
        columns["label"] = _of_one_hot(columns["label"])
        metadata = metadata | {"labels": "one-hot"}
    table = [arrays[header[number]].reshape(-1) for number in layout.table]
    given = {
        role: values for role, values in columns.items() if role in (*ARRAYS, "outputs") and role not in KEY_NAMES
    }
    single = {f"array {header[number]}": values for number, values in zip(layout.table, table, strict=True)}
    check_shapes(given | single, text=True)
    num_rows = len(next(iter([*table, *given.values()])))
    for role, values in columns.items():
        if role in KEY_NAMES and values.shape[:1] != (num_rows,):
            columns[role] = np.empty((num_rows, 0))
    names = next((_class_names(arrays[name]) for name in arrays if holds_class_names(name)), None)
    if names is None and "class_names" in metadata:
        names = _stored_names(metadata["class_names"])
    found = {role: _column(role, values) for role, values in columns.items()}
    return Content(found, np.stack(table, axis=1) if table else None, metadata, names, typed=True)


def _of_one_hot(label: Array) -> Array:
    """Class numbers [n] from rows [n, K] with a single 1 among zeros."""
    if label.dtype.kind not in "biuf" or not ((label == 0) | (label == 1)).all() or (label.sum(axis=1) != 1).any():
        raise ValueError(
            "expected label to be class numbers [n], or rows [n, K] with a single 1 among zeros, but got others of"
            f" shape {list(label.shape)}"
        )
    classes: Array = label.argmax(axis=1)
    return classes


def _column(role: str, values: Array) -> Column:
    if values.dtype.kind not in "US" or role in KEY_NAMES or role.startswith("extra:"):
        return values
    return text_of(values.astype(str).tolist())


def _fields(path: Path, start: int, num_rows: int, dtype: np.dtype[Any], wanted: Collection[str]) -> dict[str, Array]:
    """One array per field, filled while the file is read in chunks."""
    flags = {name for name in wanted if role_of(name) == "correct"}
    arrays = {
        name: np.empty((num_rows, *dtype[name].shape), bool if name in flags else dtype[name].base) for name in wanted
    }
    step = max(1, CHUNK_BYTES // max(1, dtype.itemsize))
    with path.open("rb") as file:
        file.seek(start)
        for row in range(0, num_rows, step):
            part = np.fromfile(file, dtype, min(step, num_rows - row))
            for name in wanted:
                arrays[name][row : row + len(part)] = _flags(part[name], row) if name in flags else part[name]
    return arrays


def _flags(values: Array, row: int = 0) -> Array:
    if values.dtype.kind not in "fiub":
        raise ValueError(f"expected only 0 and 1 in correct, but got values of type {values.dtype}")
    wrong = (values != 0) & (values != 1)
    if wrong.any():
        first = int(wrong.argmax())
        raise ValueError(f"expected only 0 and 1 in correct, but got {values[first]} in row {row + first}")
    return values.astype(bool)


def _class_names(values: Array) -> list[str]:
    if values.ndim != 1 or values.dtype.kind not in "USiu":
        raise ValueError(f"expected class_names to be a list of strings, but got {values.dtype} {values.shape}")
    return [str(name) for name in values.astype(str).tolist()]


def _stored_names(text: str) -> list[str]:
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"expected class_names in the metadata to be a JSON list of strings, but got {text[:80]!r}")
    return names

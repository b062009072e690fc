"""Arrays by name as a table: what numpy, torch and safetensors write. Only tensors and plain values are unpickled."""

import json
import math
import pickle
import sys
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from confrank.errors import InputError, named
from confrank.files import check_unpacked, npy_header, npz_size
from confrank.predictions.roles import holds_class_names, key_of
from confrank.predictions.tables import Array, Column, Columns, Table, Wanted, words_of

_EXAMPLE = "torch.save({'logits': logits, 'label': label}, 'predictions.pt')"
Shapes = Mapping[str, tuple[int, ...]]
Load = Callable[[Collection[str]], dict[str, Array]]


def of_arrays(path: Path, kind: str, max_gigabytes: float | None) -> Table:
    """The arrays of a file by their names."""
    if kind == ".safetensors":
        return _of_safetensors(path)
    if kind == ".npz":
        return _of_npz(path, max_gigabytes)
    if kind == ".npy":
        return _of_npy(path)
    found = _tensors(path)
    return of_memory(found, {}) if isinstance(found, dict) else of_single(found)


def of_memory(arrays: Mapping[str, Array], metadata: dict[str, str]) -> Table:
    """Arrays in memory, as if they had been read from a file."""
    shapes = {name: np.shape(values) for name, values in arrays.items()}
    return _table(shapes, lambda names: {name: arrays[name] for name in names}, metadata)


def of_single(values: Array) -> Table:
    """One array without a name: scores, labels, or rows of (confidence, correct)."""
    values = _single(values)
    if values.ndim == 2 and values.shape[1] == 2 and np.isin(values[:, 1], (0, 1)).all():
        return of_memory({"confidence": values[:, 0], "correct": values[:, 1]}, {})
    table = of_memory({"array": values}, {})
    return Table(table.names, table.load, table.lists, table.never, typed=True, alone=True)


@contextmanager
def _readable(kind: str) -> Iterator[None]:
    """Turn errors of reading into a `ValueError` that says what was expected."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # numpy and safetensors raise errors of many types for broken and unsupported files
        objects = "; save text as np.array(names, dtype=str)" if "allow_pickle" in str(error) else ""
        raise ValueError(f"expected {kind}, but it cannot be read: {error}{objects}") from None


def _of_safetensors(path: Path) -> Table:
    from safetensors import safe_open

    kind = "a safetensors file"

    def load(names: Collection[str]) -> dict[str, Array]:
        with _readable(kind), safe_open(path, framework="numpy") as file:
            return {name: tensor(path, file, name) for name in names}

    with _readable(kind), safe_open(path, framework="numpy") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        metadata = dict(file.metadata() or {})
    return _table(shapes, load, metadata)


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


def _of_npz(path: Path, max_gigabytes: float | None) -> Table:
    shapes: dict[str, tuple[int, ...]] = {}
    odd = set()  # Python objects, which are never opened, cannot identify samples
    with _readable("an npz archive of arrays"):
        check_unpacked(npz_size(path), path.stat().st_size, max_gigabytes)
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                name = member.removesuffix(".npy")
                with archive.open(member) as stream:
                    shapes[name], _, kind = npy_header(stream)
                if kind.hasobject and key_of(name):
                    odd.add(name)

    def load(names: Collection[str]) -> dict[str, Array]:
        with _readable("an npz archive of arrays"), np.load(path, allow_pickle=False) as file:
            return {name: np.empty((0, 0)) if name in odd else file[name] for name in names}

    return _table(shapes, load, {})


def _of_npy(path: Path) -> Table:
    """A structured array with named fields, or an array without a name."""
    with _readable("an npy file"), path.open("rb") as file:
        shape, _, kind = npy_header(file)
        expected = file.tell() + kind.itemsize * math.prod(shape)
        if not kind.hasobject and path.stat().st_size != expected:
            raise InputError(f"expected {expected:,} bytes for shape {shape} of {kind}", "save the file again")
        file.seek(0)
        values = np.load(file, allow_pickle=False)
    if not values.dtype.names:
        return of_single(np.asarray(values))
    if values.ndim != 1:
        raise ValueError(f"expected a structured array of one dimension, but got shape {values.shape}")
    return of_memory({name: values[name] for name in values.dtype.names}, {})


def _table(shapes: Shapes, load: Load, metadata: dict[str, str]) -> Table:
    lists = frozenset(name for name, shape in shapes.items() if len(shape) > 1 and shape[1:] != (1,))
    names = [*shapes]

    def loaded(wanted: Wanted) -> Columns:
        arrays, classes = load(wanted.all), wanted.classes
        columns = {name: _column(name, arrays[name]) for name in wanted.names}
        rows = [len(column) for name, column in columns.items() if not key_of(name)]
        for name in columns:  # whatever has other rows cannot identify samples
            if key_of(name) and rows and np.shape(arrays[name])[:1] != (rows[0],):
                columns[name] = np.empty((rows[0], 0))
        table = [arrays[name].reshape(-1) for name in classes]
        lengths = {name: len(column) for name, column in columns.items()} | {
            name: len(values) for name, values in zip(classes, table, strict=True)
        }
        if len({*lengths.values()}) > 1:
            shown = ", ".join(f"{length} in {name}" for name, length in lengths.items())
            raise ValueError(f"expected the same number of rows in each array, but got {shown}")
        return Columns(columns, np.stack(table, axis=1) if table else None)

    given = next((name for name in names if holds_class_names(name)), None)
    class_names = None
    if given is not None:
        values = load([given])[given]
        if values.ndim != 1 or values.dtype.kind not in "USiu":
            raise ValueError(f"expected class_names to be a list of strings, but got {values.dtype} {values.shape}")
        class_names = [str(name) for name in _texts(given, values)]
    elif "class_names" in metadata:
        class_names = _stored_names(metadata["class_names"])
    return Table(names, loaded, lists, frozenset(names), typed=True, class_names=class_names, metadata=metadata)


def _column(name: str, values: Array) -> Column:
    """An array as a column: text as words, keys that `save_predictions` wrote as bytes as they are."""
    if key_of(name) and values.dtype == np.uint8 and values.ndim == 2 and values.shape[1]:
        return np.ascontiguousarray(values).view(f"S{values.shape[1]}")[:, 0]
    values = _single(values)
    if values.dtype.kind in "US" and values.ndim == 1 and not (key_of(name) and values.dtype.kind == "S"):
        return words_of(_texts(name, values))
    if values.ndim not in (1, 2) or values.dtype.kind not in ("fiubS" if key_of(name) else "fiub"):
        if key_of(name):
            return np.empty((values.shape[0] if values.ndim else 0, 0))
        raise ValueError(f"expected {name} to be an array of numbers, but got shape {values.shape} of {values.dtype}")
    return values


def _texts(name: str, values: Array) -> list[str]:
    """The texts of an array [n]. numpy lets characters pass that are none, on which Python fails later."""
    if values.dtype.kind == "U" and values.size and values.itemsize:
        codes = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="))).view(np.uint32)
        if codes.max() > sys.maxunicode:
            raise InputError(f"expected text in {name}, but got characters that are none", "save the file again")
    texts: list[str] = values.astype(str).tolist()
    return texts


def _single(values: Array) -> Array:
    """Values [n, 1] as [n]."""
    return values[:, 0] if values.shape[1:] == (1,) else values


def _stored_names(text: str) -> list[str]:
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"expected class_names in the metadata to be a JSON list of strings, but got {text[:80]!r}")
    return names


def _tensors(path: Path) -> dict[str, Array] | Array:
    """What `torch.save` wrote: tensors by name, (logits, label), one tensor, or a list of these for the batches."""
    import torch

    try:
        # Indices beyond a sparse tensor would end the process.
        with torch.sparse.check_sparse_tensor_invariants():  # type: ignore[no-untyped-call]
            stored = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        what = "numpy arrays in a pickle" if "numpy" in str(error) else "other Python objects or a damaged file"
        raise ValueError(
            f"expected tensors, numbers and text, as torch.save writes them, but got {what}, which are never opened;"
            f" write {_EXAMPLE}, or arrays with np.savez"
        ) from None
    except Exception as error:  # torch raises errors of many types for broken files
        reason = str(error).partition("\n")[0]
        raise ValueError(f"expected a file that torch.save wrote, but it cannot be read: {reason}") from None
    try:
        return _plain(stored)
    except ValueError:
        raise
    except Exception:  # torch raises errors of many types for these
        raise ValueError(
            f"expected dense tensors of numbers, but got others, as meta, quantised or nested ones; write {_EXAMPLE}"
        ) from None


def _plain(stored: Any) -> dict[str, Array] | Array:
    from torch import Tensor

    if isinstance(stored, list | tuple) and len(stored) == 2 and all(isinstance(one, Tensor) for one in stored):
        first, second = map(_array, stored)
        if first.ndim == 2 and second.ndim == 1:
            if second.dtype.kind not in "iu":
                raise ValueError(f"expected class numbers after logits, but got {second.dtype}; write {_EXAMPLE}")
            return {"logits": first, "label": second}
    if isinstance(stored, list) and stored and all(isinstance(one, dict | list | tuple) for one in stored):
        parts = [_plain(one) for one in stored]
        tabled = [part for part in parts if isinstance(part, dict)]
        if len(tabled) < len(parts) or any(part.keys() != tabled[0].keys() for part in tabled):
            raise ValueError(f"expected the same names in each batch, but got others; write {_EXAMPLE}")
        return {name: _joined([part[name] for part in tabled]) for name in tabled[0]}
    if isinstance(stored, Mapping):
        arrays = {str(name): _array(value) for name, value in stored.items()}
        found = {name: values for name, values in arrays.items() if values.ndim}
        if found:
            return found
        raise ValueError(f"expected tensors by name, but {named([*arrays])} hold none; write {_EXAMPLE}")
    values = _array(stored)
    if not values.ndim or isinstance(stored, tuple):
        raise ValueError(f"expected tensors by name, but got {type(stored).__name__}; write {_EXAMPLE}")
    return values


def _array(value: Any) -> Array:
    """A tensor, or a list of one for each batch, of numbers or of strings; no dimensions for what is none of them."""
    from torch import Tensor, float64

    if isinstance(value, list) and value and all(isinstance(part, Tensor) for part in value):
        return _joined([_array(part) for part in value])
    if isinstance(value, Tensor):
        narrow = value.is_floating_point() and value.dtype != float64  # numpy lacks bfloat16 and float8
        return (value.float() if narrow else value).to_dense().numpy(force=True)
    if isinstance(value, list | tuple) and any(isinstance(part, Tensor) for part in value):
        return np.array(0)
    try:
        array = np.asarray(value)
    except ValueError:  # lists of several lengths
        return np.array(0)
    return array if array.dtype.kind in "biufU" else np.array(0)


def _joined(parts: Sequence[Array]) -> Array:
    if len({part.shape[1:] for part in parts}) > 1 or not all(part.ndim for part in parts):
        shapes = named([str(list(part.shape)) for part in parts])
        raise ValueError(f"expected batches of one shape, but got {shapes}; write {_EXAMPLE}")
    return np.concatenate(parts)

"""Read named arrays: npz, safetensors, and npy with two columns or with named fields."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from confrank.limits import npy_header
from confrank.predictions.columns import (
    Text,
    both_classes,
    check_prediction,
    checked_binary,
    class_numbers,
    distinct_keys,
    raw_cells,
    whole_numbers,
)
from confrank.predictions.layout import FORMS, is_complete, key_of, role_of
from confrank.predictions.reading import Reading
from confrank.predictions.schema import Array, Predictions, check_shapes

CHUNK_BYTES = 1 << 24


def read_safetensors(path: Path, reading: Reading) -> Predictions:
    """Arrays named as in `ROLES`, and the file's metadata."""
    try:
        with safe_open(path, framework="numpy") as file:
            wanted = _wanted(file.keys(), reading)
            arrays = {name: tensor(path, file, name) for name in wanted}
            ignored = [name for name in file.keys() if name not in wanted]  # noqa: SIM118
            metadata = dict(file.metadata() or {})
    except Exception as error:  # the reader raises type and attribute errors for what it cannot represent
        raise ValueError(f"expected a safetensors file, but it cannot be read: {error}") from None
    return _with_extra(arrays, metadata, ignored, reading)


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


def read_npz(path: Path, reading: Reading) -> Predictions:
    """Arrays named as in `ROLES`; `class_names` may be an array of strings. Pickles are not opened."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays: dict[str, Array] = {}
            for name in _wanted(file.files, reading):
                try:
                    arrays[name] = file[name]
                except ValueError:  # Python objects, which are never opened, cannot identify samples
                    if role_of(name):
                        raise
            ignored = [name for name in file.files if name not in arrays]
    except Exception as error:  # numpy raises zipfile, value, key, memory and OS errors for broken archives
        raise ValueError(f"expected an npz archive of arrays, but it cannot be read: {error}") from None
    return _with_extra(arrays, {}, ignored, reading)


def read_npy(path: Path, reading: Reading) -> Predictions:
    """Rows of (confidence, correct), or a structured array whose fields are named as in `ROLES`; in chunks."""
    try:
        with path.open("rb") as file:
            shape, fortran, dtype = npy_header(file)
            start = file.tell()
    except Exception as error:  # numpy parses the header as Python literals and raises many kinds of errors
        raise ValueError(f"expected an npy file, but it cannot be read: {error}") from None
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
        arrays = _fields(path, start, shape[0], dtype, reading)
        return _with_extra(arrays, {}, [name for name in dtype.names if name not in arrays], reading)
    if len(shape) != 2 or shape[1] != 2 or dtype.kind not in "fiub":
        raise ValueError(
            f"expected rows of (confidence, correct), i.e. shape [n, 2], but got shape {shape} of {dtype};"
            " put several arrays into an npz file with their names"
        )
    stored = np.dtype([("confidence", dtype), ("correct", dtype)])
    if fortran:
        both = np.fromfile(path, dtype, offset=start).reshape(2, shape[0])
        return named_arrays({"confidence": both[0], "correct": _flags(both[1])}, {}, [])
    return named_arrays(_fields(path, start, shape[0], stored, reading), {}, [])


def _wanted(names: Collection[str], reading: Reading) -> list[str]:
    """The names of arrays that have a role, may identify samples or are to be kept."""
    return [name for name in names if role_of(name) or key_of(name) or name in reading.keep]


def _with_extra(
    arrays: dict[str, Array], metadata: dict[str, str], ignored: list[str], reading: Reading
) -> Predictions:
    """Predictions from arrays, some of which are to be kept as they are."""
    missing = [name for name in reading.keep if name not in arrays]
    if missing:
        raise ValueError(f"expected an array {missing[0]!r}, but got {', '.join([*arrays, *ignored])[:200]}")
    extra = {name: raw_cells(arrays[name]) for name in reading.keep}
    roles = {name: values for name, values in arrays.items() if role_of(name) or key_of(name)}
    return named_arrays(roles, metadata, ignored, extra)


def _fields(path: Path, start: int, num_rows: int, dtype: np.dtype[Any], reading: Reading) -> dict[str, Array]:
    """One array per field, filled while the file is read in chunks."""
    assert dtype.names is not None
    wanted = _wanted(dtype.names, reading)
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


def named_arrays(
    given: dict[str, Array], metadata: dict[str, str], ignored: list[str], extra: dict[str, Array] | None = None
) -> Predictions:
    """Predictions from arrays under any of the names that `layout` knows; shapes and lengths are checked."""
    arrays: dict[str, Array] = {}
    keys: dict[str, Array] = {}
    for name, values in given.items():
        role = role_of(name)
        if key := key_of(name):
            keys[key] = values
            continue
        assert role is not None
        if role in arrays:
            raise ValueError(f"expected one array for {role}, but got {', '.join(given)}")
        arrays[role] = values
    names = _class_names(arrays.pop("class_names", None))
    if names is not None:
        metadata = {**metadata, "class_names": json.dumps(names)}
    elif "class_names" in metadata:
        names = _stored_names(metadata["class_names"])
    single = _single(arrays.get("probabilities"))
    if single is not None and is_complete({*arrays} - {"probabilities"}, has_table=False):
        del arrays["probabilities"]
        single, ignored = None, [*ignored, *(name for name in given if role_of(name) == "probabilities")]
    if single is not None:
        arrays["probabilities"] = both_classes(single)
    check_shapes(arrays, text=True)
    if {"probabilities", "logits"} <= {*arrays}:
        raise ValueError("expected probabilities or logits, but got both")
    if not is_complete({*arrays}, has_table=False):
        raise ValueError(f"expected {FORMS}, but got {', '.join([*given, *ignored][:20]) or 'no arrays'}")
    kind = next((kind for kind in ("probabilities", "logits") if kind in arrays), None)
    if kind is None and names is None:
        names = _names_in(arrays)
        metadata = {**metadata, "class_names": json.dumps(names)} if names else metadata
    if kind is not None and names and len(names) != arrays[kind].shape[1]:
        raise ValueError(f"expected {arrays[kind].shape[1]} class names, as many as classes, but got {len(names)}")
    for role in ("label", "prediction"):
        if role in arrays:
            arrays[role] = _classes(arrays[role], names, role)
    if single is not None:
        metadata = {**metadata, "binary": checked_binary(arrays["label"])}
    if kind is not None:
        check_prediction(arrays.pop("prediction", None), arrays[kind], kind)
    if "index" in arrays:
        arrays["index"] = whole_numbers(arrays["index"], "index")
    num_rows = len(next(iter(arrays.values())))
    others = [name for name, values in keys.items() if values.shape[:1] != (num_rows,)]  # not one per row
    key_arrays, key_metadata, unused = distinct_keys({name: keys[name] for name in keys if name not in others})
    if ignored := [*ignored, *others, *unused]:
        metadata = {**metadata, "ignored": ", ".join(ignored[:8])[:200]}
    return Predictions(**arrays, **key_arrays, extra=extra or {}, metadata={**metadata, **key_metadata})


def _single(values: Array | None) -> Array | None:
    """Probabilities of a single class, [n] or [n, 1], as [n]; None for other arrays."""
    if values is None or values.dtype.kind not in "fiu" or values.shape[1:] not in ((), (1,)) or not values.ndim:
        return None
    return values.reshape(-1)


def _classes(values: Array, names: list[str] | None, role: str) -> Array:
    """Class indices: numbers are taken as they are, text is taken as class names."""
    if values.dtype.kind not in "US":
        return whole_numbers(values, role)
    distinct, codes = np.unique(values.astype(str), return_inverse=True)
    return class_numbers({role: Text(codes, distinct.tolist())}, names)[0][role]


def _names_in(arrays: dict[str, Array]) -> list[str] | None:
    texts = [values for role in ("label", "prediction") if (values := arrays.get(role)) is not None]
    if not texts or any(values.dtype.kind not in "US" for values in texts):
        return None
    return sorted({*np.unique(np.concatenate([values.astype(str) for values in texts])).tolist()})


def _class_names(values: Array | None) -> list[str] | None:
    if values is None:
        return None
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

"""Columns that identify samples: file names and ids."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from confrank.errors import InputError
from confrank.predictions.names import KEY_NAMES
from confrank.predictions.schema import Array, as_keys

# In bytes. The array of keys reserves the length of the longest for each.
LONGEST_KEY = 4096
NOT_UNIQUE = " (not unique)"


def distinct_keys(columns: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, str], list[str]]:
    """Arrays and metadata for `Predictions` from columns [n] that identify each sample, and the ignored columns.

    >>> distinct_keys({"id": np.array(["b", "c"]), "file": np.array(["a", "a"])})
    ({'key': array([b'b', b'c'], dtype='|S1')}, {'key': 'id'}, ['file (not unique)'])
    """
    identifying: dict[str, Array] = {}
    ignored = []
    for name in sorted(columns, key=KEY_NAMES.index):
        keys = keys_or_reason(columns[name])
        if isinstance(keys, str):
            ignored.append(name + keys)
        elif repeated_rows(keys) is not None:
            ignored.append(name + NOT_UNIQUE)
        else:
            identifying[name] = keys
    if not identifying:
        return {}, {}, ignored
    name, *others = identifying
    arrays = {"key": identifying[name]}
    if others:
        arrays["other_keys"] = np.empty(
            len(identifying[name]), [(other, identifying[other].dtype) for other in others]
        )
        for other in others:
            arrays["other_keys"][other] = identifying[other]
    return arrays, {"key": name}, ignored


def keys_or_reason(keys: Array) -> Array | str:
    """Names or integers as bytes; otherwise the reason why the column is ignored."""
    if keys.dtype == np.uint8 and keys.ndim == 2 and keys.shape[1]:  # as `save_predictions` writes them
        keys = np.ascontiguousarray(keys).view(f"S{keys.shape[1]}")[:, 0]
    if keys.dtype.kind == "f" and (np.abs(keys) < 2**53).all() and (keys == np.floor(keys)).all():
        keys = keys.astype(np.int64)
    if keys.ndim != 1 or keys.dtype.kind not in "iuUSO":
        return ""
    is_fixed = keys.dtype.kind == "S" and keys.dtype.itemsize <= LONGEST_KEY
    if keys.dtype.kind in "USO" and not is_fixed and max(map(len, keys), default=0) > LONGEST_KEY:
        return f" (longer than {LONGEST_KEY:,} bytes)"
    return as_keys(np.array(keys.tolist()) if keys.dtype.kind == "O" else keys)


def repeated_rows(keys: Array) -> tuple[int, int] | None:
    """Two rows with the same key; None if all differ.

    >>> repeated_rows(np.array([b"a", b"b", b"a"]))
    (0, 2)
    """
    ordered = np.sort(hashes(keys, keys.dtype.itemsize))
    if not (ordered[1:] == ordered[:-1]).any():
        return None
    ordered = np.sort(keys)
    same = ordered[1:] == ordered[:-1]
    if not same.any():
        return None
    first, second = np.flatnonzero(keys == ordered[int(same.argmax())])[:2].tolist()
    return first, second


def refuse_repeats(columns: Mapping[str, Any], names: Mapping[str, str]) -> None:
    """Raise if a column nearly identifies the samples: more than half of its keys differ, but some occur twice."""
    for role, column in columns.items():
        keys = keys_or_reason(column)
        if isinstance(keys, str):
            continue
        keys = keys[keys != b""]
        rows = repeated_rows(keys)
        if rows is not None and 2 * len(np.unique(keys)) > len(column):
            name = names.get(role, role)
            key = bytes(keys[rows[0]]).decode(errors="replace")
            raise InputError(
                f"expected each sample once, but got {name} {key[:80]!r} in rows {rows[0]} and {rows[1]}",
                f"remove one of them, or use {{columns}} group={name} if several rows may share it",
            )


def hashes(keys: Array, width: int) -> Array:
    """A 64-bit number for each of the keys [n], padded to `width` bytes, and these to a multiple of 8."""
    padded = 8 * -(-max(1, width) // 8)
    words = np.ascontiguousarray(keys.astype(f"S{padded}")).view("<u8").reshape(len(keys), -1)
    total = np.zeros(len(keys), dtype=np.uint64)
    for column in words.T:
        total = (total ^ column) * np.uint64(0x9E3779B97F4A7C15)
        total ^= total >> np.uint64(29)
    return total

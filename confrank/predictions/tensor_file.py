"""Read what `torch.save` wrote: tensors by name, a pair (logits, label), or one tensor. Importing it needs torch."""

import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from confrank.errors import named
from confrank.predictions.schema import Array

_EXAMPLE = "torch.save({'logits': logits, 'label': label}, 'predictions.pt')"


def read_tensors(path: Path) -> dict[str, Array] | Array:
    """The arrays of a file by name, or its only tensor. Nothing is unpickled except tensors and plain values."""
    try:
        # Indices beyond a sparse tensor would end the process.
        with torch.sparse.check_sparse_tensor_invariants():  # type: ignore[no-untyped-call]
            stored = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "numpy" in str(error):
            raise ValueError(
                "expected tensors, but got numpy arrays in a pickle, which are never opened; write them with np.savez"
            ) from None
        raise ValueError(
            "expected tensors, numbers and text, as torch.save writes them, but got other Python objects, which are"
            f" never opened, or a damaged file; write {_EXAMPLE}"
        ) from None
    except Exception as error:  # torch raises errors of many types for broken files
        reason = str(error).partition("\n")[0]
        raise ValueError(f"expected a file that torch.save wrote, but it cannot be read: {reason}") from None
    try:
        return _arrays(stored)
    except ValueError:
        raise
    except Exception:  # torch raises errors of many types for these
        raise ValueError(
            f"expected dense tensors of numbers, but got others, as meta, quantised or nested ones; write {_EXAMPLE}"
        ) from None


def _arrays(stored: Any) -> dict[str, Array] | Array:
    if isinstance(stored, list) and stored:
        stored = _of_batches(stored)
    if isinstance(stored, Tensor):
        return _array(stored)
    if _is_pair(stored):
        return _pair(*stored)
    if not isinstance(stored, Mapping):
        raise ValueError(f"expected tensors by name, but got {type(stored).__name__}; write {_EXAMPLE}")
    arrays = {str(name): _array(value) for name, value in stored.items()}
    found = {name: values for name, values in arrays.items() if values.ndim}
    if not found:
        raise ValueError(f"expected tensors by name, but {named([*arrays])} hold none; write {_EXAMPLE}")
    return found


def _of_batches(stored: list[Any]) -> Any:
    """A tensor, a pair of tensors, or tensors by name from a list of one for each batch; anything else as it is."""
    if all(isinstance(batch, Mapping) for batch in stored):
        if any({*batch} != {*stored[0]} for batch in stored):
            raise ValueError(f"expected the same names in each batch, but got others; write {_EXAMPLE}")
        are_samples = _has_scalar(stored[0].values())
        return {name: _joined([batch[name] for batch in stored], are_samples) for name in stored[0]}
    if all(map(_is_pair, stored)):
        return tuple(_joined([*part], _has_scalar(stored[0])) for part in zip(*stored, strict=True))
    is_pair = _is_pair(stored) and stored[0].ndim == 2 and stored[1].ndim == 1
    return stored if is_pair else _joined(stored, _has_scalar(stored))


def _has_scalar(values: Iterable[Any]) -> bool:
    """Whether there is a tensor without dimensions: the label of a single sample, not of a batch."""
    return any(isinstance(value, Tensor) and not value.ndim for value in values)


def _joined(parts: list[Any], are_samples: bool) -> Any:
    """Tensors of batches [b, ...] or of samples as one; anything else as it is."""
    if not all(isinstance(part, Tensor) for part in parts):
        return parts
    start = 0 if are_samples else 1
    if len({part.shape[start:] for part in parts}) > 1 or len({part.ndim for part in parts}) > 1:
        shapes = named([str(list(part.shape)) for part in parts])
        raise ValueError(f"expected batches of one shape, but got {shapes}; write {_EXAMPLE}")
    return torch.stack(parts) if are_samples else torch.cat(parts)


def _is_pair(stored: Any) -> bool:
    return isinstance(stored, list | tuple) and len(stored) == 2 and all(isinstance(one, Tensor) for one in stored)


def _pair(logits: Tensor, label: Tensor) -> dict[str, Array]:
    if logits.ndim != 2 or label.ndim != 1 or label.is_floating_point():
        raise ValueError(
            "expected a pair of logits [n, K] and class numbers [n], but got shapes"
            f" {list(logits.shape)} and {list(label.shape)}; write {_EXAMPLE}"
        )
    return {"logits": _array(logits), "label": _array(label)}


def _array(value: Any) -> Array:
    """A tensor, or a list of one per batch, of numbers or of strings as an array; [] for what is none of them."""
    if isinstance(value, list) and value and all(isinstance(part, Tensor) for part in value):
        value = _joined(value, _has_scalar(value))
    if isinstance(value, Tensor):
        narrow = value.is_floating_point() and value.dtype != torch.float64  # numpy lacks bfloat16 and float8
        return (value.float() if narrow else value).to_dense().numpy(force=True)
    try:
        array = np.asarray(value)
    except ValueError:  # lists of several lengths
        return np.array(0)
    return array if array.dtype.kind in "biufU" else np.array(0)

"""Read what `torch.save` wrote: tensors by name, a pair (logits, label), or one tensor. Importing it needs torch."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from confrank.predictions.schema import Array

_EXAMPLE = "torch.save({'logits': logits, 'label': label}, 'predictions.pt')"


def read_tensors(path: Path) -> dict[str, Array] | Array:
    """The arrays of a file by name, or its only tensor. Nothing is unpickled except tensors and plain values."""
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(
            "expected tensors, numbers and text, as torch.save writes them, but got other Python objects, which are"
            f" never opened, or a damaged file; write {_EXAMPLE}"
        ) from None
    except Exception as error:  # torch raises errors of many types for broken files
        reason = str(error).partition("\n")[0]
        raise ValueError(f"expected a file that torch.save wrote, but it cannot be read: {reason}") from None
    if isinstance(stored, Tensor):
        return _array(stored)
    if isinstance(stored, list | tuple) and len(stored) == 2 and all(isinstance(value, Tensor) for value in stored):
        return _pair(*stored)
    if not isinstance(stored, Mapping):
        raise ValueError(f"expected tensors by name, but got {type(stored).__name__}; write {_EXAMPLE}")
    arrays = {str(name): _array(value) for name, value in stored.items()}
    return {name: values for name, values in arrays.items() if values.ndim}


def _pair(logits: Tensor, label: Tensor) -> dict[str, Array]:
    if logits.ndim != 2 or label.ndim != 1 or label.is_floating_point():
        raise ValueError(
            "expected a pair of logits [n, K] and class numbers [n], but got shapes"
            f" {list(logits.shape)} and {list(label.shape)}; write {_EXAMPLE}"
        )
    return {"logits": _array(logits), "label": _array(label)}


def _array(value: Any) -> Array:
    """A tensor, or a list of one per batch, of numbers or of strings as an array; [] for what is none of them."""
    if isinstance(value, list) and value and all(isinstance(part, Tensor) and part.ndim for part in value):
        return np.concatenate([_array(part) for part in value])
    if isinstance(value, Tensor):
        narrow = value.is_floating_point() and value.dtype != torch.float64  # numpy lacks bfloat16 and float8
        return (value.float() if narrow else value).to_dense().numpy(force=True)
    try:
        array = np.asarray(value)
    except ValueError:  # lists of several lengths
        return np.array(0)
    return array if array.dtype.kind in "biufU" else np.array(0)

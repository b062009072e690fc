"""Add each sample's index to a data set: all that the history needs to know about it."""

from collections.abc import Mapping, Sequence, Sized
from typing import Any, Protocol

import numpy as np
from torch.utils.data import Dataset, IterableDataset


class MapStyle(Protocol):
    """A data set that knows its length and returns an item for each index."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class IndexedDataset(Dataset[Any]):
    """Wraps a map-style data set and appends the index to each item: (image, label) -> (image, label, index).

    A dictionary gets the key "index"; a named tuple becomes a plain one, and any other item a pair (item, index). The
    index is the position in the wrapped data set, so wrap the data set that the history counts (outside of a
    `Subset`, not inside). Batches are read as a whole if the data set has
    `__getitems__`.

    >>> IndexedDataset([("first image", 3), ("second image", 1)])[1]
    ('second image', 1, 1)
    """

    def __init__(self, dataset: MapStyle) -> None:
        is_stream = isinstance(dataset, IterableDataset)
        if is_stream or not isinstance(dataset, Sized) or not hasattr(dataset, "__getitem__"):
            raise ValueError(
                "expected a map-style data set with __len__ and __getitem__, but got"
                f" {type(dataset).__name__}; a stream over a fixed set can yield (image, label, index) itself, with"
                " the position of each sample in that set"
            )
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        position = self._position(index)
        return _with_index(self.dataset[position], position)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        positions = [self._position(index) for index in indices]
        read_batch = getattr(self.dataset, "__getitems__", None)
        items = read_batch(positions) if read_batch else [self.dataset[position] for position in positions]
        return [_with_index(item, position) for item, position in zip(items, positions, strict=True)]

    def _position(self, index: int) -> int:
        if not isinstance(index, int | np.integer):
            return index
        if not -len(self) <= index < len(self):
            raise IndexError(f"expected an index within 0..{len(self) - 1}, but got {index}")
        return int(index) % len(self)  # -1 is the last sample: record its position


def _with_index(item: Any, index: int) -> Any:
    if isinstance(item, Mapping):
        if "index" in item:
            raise ValueError(
                "expected samples without the key 'index', which IndexedDataset adds, but got"
                f" {', '.join(map(repr, item))}; rename it, or omit IndexedDataset if it is the sample's position"
            )
        return {**item, "index": index}
    return (*item, index) if isinstance(item, tuple | list) else (item, index)

"""Add each sample's index to a data set: all that the history needs to know of it."""

from collections.abc import Mapping, Sized
from typing import Any, Protocol

import numpy as np
from torch.utils.data import Dataset


class MapStyle(Protocol):
    """A data set that knows its length and returns an item for each index."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class IndexedDataset(Dataset[Any]):
    """Wraps a map-style data set and appends the index to each item: (image, label) -> (image, label, index).

    A dictionary gets the key "index". The index is the position in the wrapped data set, so wrap the data set
    that the history counts (outside of a `Subset`, not inside).

    >>> IndexedDataset([("first image", 3), ("second image", 1)])[1]
    ('second image', 1, 1)
    """

    def __init__(self, dataset: MapStyle) -> None:
        if not isinstance(dataset, Sized) or not hasattr(dataset, "__getitem__"):
            raise ValueError(
                "expected a map-style data set with __len__ and __getitem__, but got"
                f" {type(dataset).__name__}; the history cannot count the samples of a stream"
            )
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        if isinstance(index, int | np.integer):
            if not -len(self) <= index < len(self):
                raise IndexError(f"expected an index within 0..{len(self) - 1}, but got {index}")
            index = int(index) % len(self)  # -1 is the last sample: record its position
        item = self.dataset[index]
        if isinstance(item, Mapping):
            return {**item, "index": index}
        return (*item, index) if isinstance(item, tuple | list) else (item, index)

"""Images as bytes, passed to a network batch by batch: normalised, on its device."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confrank.methods import normalised


@dataclass(frozen=True)
class Images:
    """Bytes [n, h, w, c], with the normalisation [c] that the network was trained with."""

    pixels: NDArray[np.uint8]
    mean: Sequence[float]
    std: Sequence[float]
    device: torch.device
    batch_size: int = 500

    def __len__(self) -> int:
        return len(self.pixels)

    def select(self, rows: NDArray[np.int64]) -> "Images":
        return replace(self, pixels=self.pixels[rows])

    def __iter__(self) -> Iterator[Tensor]:
        """Batches [b, c, h, w] in float32."""
        return normalised(self.pixels, self.mean, self.std, self.device, self.batch_size)


@dataclass(frozen=True)
class LabelledBatches:
    """Batches of (images, labels) for `fit`."""

    images: Images
    labels: NDArray[np.int64]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        start = 0
        for batch in self.images:
            yield batch, torch.from_numpy(np.array(self.labels[start : start + len(batch)]))
            start += len(batch)


def over(images: Images, values: Callable[[Tensor], Tensor], dim: int = 0) -> NDArray[np.float64]:
    """The result of `values` for each batch, joined along `dim`, on the host."""
    return torch.cat([values(batch).double().cpu() for batch in images], dim=dim).numpy()

"""Distance to the k-th nearest training feature (Sun et al. 2022)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from confrank.ood.features import check_layers, features_of, labelled_batches, penultimate_layer, repeatable

# Similarities held at once: QUERIES x STORED numbers, 32 MB in float32.
QUERIES = 1024
STORED = 8192


def kth_distance(queries: Tensor, stored: Tensor, k: int) -> Tensor:
    """Euclidean distance [n] of each query [n, d] to its k-th nearest stored point [m, d].

    Matrix products select the neighbour block by block, then its distance is computed directly. The distance is
    exact, but float32 may confuse neighbours whose distances differ by less than about 5e-4 of the points' length.

    >>> kth_distance(torch.tensor([[0.0]]), torch.tensor([[1.0], [-3.0], [2.0]]), k=2)
    tensor([2.])
    """
    if not 1 <= k <= len(stored):
        raise ValueError(f"expected k within 1..{len(stored)} (the training samples), but got {k}")
    halves = torch.einsum("nd,nd->n", stored, stored) / 2
    blocks = (queries[start : start + QUERIES] for start in range(0, len(queries), QUERIES))
    return torch.cat([queries[:0, 0], *(_kth(block, stored, halves, k) for block in blocks)])


def _kth(queries: Tensor, stored: Tensor, halves: Tensor, k: int) -> Tensor:
    """The same for one block of queries, by |q - s|^2 / 2 = |q|^2 / 2 + |s|^2 / 2 - q.s without the first term."""
    near = queries.new_empty(len(queries), 0)
    index = torch.empty(len(queries), 0, dtype=torch.long, device=queries.device)
    for start in range(0, len(stored), STORED):
        gap = torch.addmm(halves[start : start + STORED], queries, stored[start : start + STORED].T, alpha=-1)
        nearest = gap.topk(min(k, gap.shape[1]), largest=False)
        near, index = torch.cat([near, nearest.values], dim=1), torch.cat([index, nearest.indices + start], dim=1)
        best = near.topk(min(k, near.shape[1]), largest=False)
        near, index = best.values, index.gather(1, best.indices)
    distance: Tensor = torch.linalg.vector_norm(queries - stored[index[:, -1]], dim=1)
    return distance


@dataclass
class NearestNeighbours:
    """Minus the distance to the k-th nearest training feature, features scaled to length 1.

    `layer` is a name of `model.named_modules()`, by default the last before the head in confrank's networks.
    `fit` stores every training feature in the precision of the network, at least float32.
    """

    model: nn.Module
    layer: str = ""
    k: int = 50
    stored: Tensor | None = None

    def __post_init__(self) -> None:
        self.layer = self.layer or penultimate_layer(self.model)
        check_layers(self.model, [self.layer])

    def fit(self, loader: Iterable[Any]) -> Self:
        """Store the features of batches of (images, labels); the labels are ignored."""
        stored = torch.cat([self._features(images) for images, _ in labelled_batches(loader)])
        if not 1 <= self.k <= len(stored):
            raise ValueError(f"expected k within 1..{len(stored)} (the training samples), but got {self.k}")
        self.stored = stored
        return self

    def score(self, images: Tensor) -> Tensor:
        """Scores [n] in float64 for images in the form of the network's input."""
        if self.stored is None:
            raise ValueError("expected a fitted detector, but fit was not called; call fit(train_loader) first")
        return -kth_distance(self._features(images), self.stored, self.k).double()

    def _features(self, images: Tensor) -> Tensor:
        with torch.no_grad(), repeatable(self.model) as device:
            _, (features,) = features_of(self.model, images.to(device), [self.layer])
            # In half precision, the epsilon that guards against zero length would be zero.
            return nn.functional.normalize(features.to(torch.promote_types(features.dtype, torch.float32)), dim=1)

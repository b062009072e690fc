"""Distance to the k-th nearest training feature (Sun et al. 2022)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from confrank.ood.features import check_layers, evaluating, features_of, labelled_batches, penultimate_layer

# Similarities held at once: QUERIES x STORED numbers, 32 MB in float32.
QUERIES = 1024
STORED = 8192


def kth_distance(queries: Tensor, stored: Tensor, k: int) -> Tensor:
    """Euclidean distance [n] of each query [n, d] to its k-th nearest stored point [m, d].

    Found block by block from products of matrices, then measured directly: the distance is exact, but float32 may
    take one of two neighbours for the other whose distances differ by less than about 5e-4 of the points' length.

    >>> kth_distance(torch.tensor([[0.0]]), torch.tensor([[1.0], [-3.0], [2.0]]), k=2)
    tensor([2.])
    """
    if not 1 <= k <= len(stored):
        raise ValueError(f"expected k within 1..{len(stored)} (the training samples), but got {k}")
    halves = torch.einsum("nd,nd->n", stored, stored) / 2
    blocks = (queries[start : start + QUERIES] for start in range(0, len(queries), QUERIES))
    return torch.cat([queries[:0, 0], *(_kth(block, stored, halves, k) for block in blocks)])


def _kth(queries: Tensor, stored: Tensor, halves: Tensor, k: int) -> Tensor:
    """Of one block of queries, by |q - s|^2 / 2 = |q|^2 / 2 + |s|^2 / 2 - q.s, its first term left out."""
    near = queries.new_empty(len(queries), 0)
    place = torch.empty(len(queries), 0, dtype=torch.long, device=queries.device)
    for start in range(0, len(stored), STORED):
        gap = torch.addmm(halves[start : start + STORED], queries, stored[start : start + STORED].T, alpha=-1)
        found = gap.topk(min(k, gap.shape[1]), largest=False)
        near, place = torch.cat([near, found.values], dim=1), torch.cat([place, found.indices + start], dim=1)
        best = near.topk(min(k, near.shape[1]), largest=False)
        near, place = best.values, place.gather(1, best.indices)
    distance: Tensor = torch.linalg.vector_norm(queries - stored[place[:, -1]], dim=1)
    return distance


@dataclass
class NearestNeighbours:
    """Minus the distance to the k-th nearest training feature, features scaled to length 1.

    `layer` is a name of `model.named_modules()`, usually the last before the head; our own networks know theirs.
    `fit` keeps every training feature, in float32 or what finer precision the network gives.
    """

    model: nn.Module
    layer: str = ""
    k: int = 50
    stored: Tensor | None = None

    def __post_init__(self) -> None:
        self.layer = self.layer or penultimate_layer(self.model)
        check_layers(self.model, [self.layer])

    def fit(self, loader: Iterable[Any]) -> Self:
        """Store the features of batches of (images, labels); the labels are not looked at."""
        parts = [self._features(images) for images, _ in labelled_batches(loader)]
        if not parts:
            raise ValueError("expected batches of training samples to fit on, but the loader gave none")
        stored = torch.cat(parts)
        if not 1 <= self.k <= len(stored):
            raise ValueError(f"expected k within 1..{len(stored)} (the training samples), but got {self.k}")
        self.stored = stored
        return self

    def score(self, images: Tensor) -> Tensor:
        """Scores [n] in float64 for images as the network takes them."""
        if self.stored is None:
            raise ValueError("expected a fitted detector, but fit was not called; call fit(train_loader) first")
        return -kth_distance(self._features(images), self.stored, self.k).double()

    def _features(self, images: Tensor) -> Tensor:
        with torch.no_grad(), evaluating(self.model) as device:
            _, (features,) = features_of(self.model, images.to(device), [self.layer])
            # Half precision has no small number to guard a length of zero with.
            return nn.functional.normalize(features.to(torch.promote_types(features.dtype, torch.float32)), dim=1)

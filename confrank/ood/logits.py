"""Detectors that need only the logits: logits [n, K] -> score [n], higher = more in-distribution."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from confrank.confidence import max_probability, negative_entropy
from confrank.ood.features import forward_logits, repeatable


def max_logit(logits: Tensor) -> Tensor:
    """The largest logit (Hendrycks et al. 2022).

    >>> max_logit(torch.tensor([[1.0, 3.0]])).tolist()
    [3.0]
    """
    return logits.amax(dim=-1)


def energy(logits: Tensor) -> Tensor:
    """log sum exp z: the *negative* free energy, so that higher is more in-distribution (Liu et al. 2020).

    >>> round(energy(torch.tensor([[0.0, 0.0]])).item(), 4)
    0.6931
    """
    return torch.logsumexp(logits, dim=-1)


LOGIT_SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "max-probability": max_probability,
    "max-logit": max_logit,
    "energy": energy,
    "negative-entropy": negative_entropy,
}


@dataclass(frozen=True)
class LogitDetector:
    """One of `LOGIT_SCORES` on any classifier."""

    model: nn.Module
    name: str = "energy"

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name.replace("_", "-"))
        if self.name not in LOGIT_SCORES:
            raise ValueError(f"expected a score among {', '.join(LOGIT_SCORES)}, but got {self.name!r}")

    def fit(self, loader: Iterable[Any]) -> Self:
        """There is nothing to fit."""
        return self

    def score(self, images: Tensor) -> Tensor:
        """Scores [n] in float64 for images in the form of the network's input."""
        with torch.no_grad(), repeatable(self.model) as device:
            return LOGIT_SCORES[self.name](forward_logits(self.model, images.to(device)).double())

"""ODIN (Liang et al. 2018): a high temperature and a small step on the image that raises its largest probability."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from confrank.confidence import max_probability
from confrank.ood.features import forward_logits, repeatable
from confrank.ood.perturbation import direction
from confrank.ood.protocol import ODIN_EPS, ODIN_TEMPERATURE

# The paper's grid.
TEMPERATURES = (1.0, 10.0, 100.0, 1000.0)
EPS = (0.0, 0.0005, 0.001, 0.0014, 0.002, 0.0024, 0.005, 0.01, 0.05, 0.1, 0.2)


def odin_scores(
    model: nn.Module, images: Tensor, temperature: float, eps: Sequence[float], std: Sequence[float]
) -> Tensor:
    """Scores [len(eps), n] in float64 at each step size; one gradient serves all of them."""

    def log_probability(image: Tensor) -> Tensor:
        # In float32 the gradient on the winning logit, 1 - p, would be 0 for the surest images.
        return torch.log_softmax(forward_logits(model, image).double() / temperature, dim=1).amax(dim=1)

    step = direction(log_probability, images, std) if any(eps) else torch.zeros_like(images)
    with torch.no_grad():
        moved = (images + size * step if size else images for size in eps)
        return torch.stack([max_probability(forward_logits(model, image).double() / temperature) for image in moved])


@dataclass(frozen=True)
class Odin:
    """The largest probability at a temperature, after a step of `eps` (0-1 pixel scale) on the image.

    `std` is the divisor of the images' normalisation. temperature = 1 and eps = 0 give the maximum probability.
    """

    model: nn.Module
    temperature: float = ODIN_TEMPERATURE
    eps: float = ODIN_EPS
    std: Sequence[float] = (1.0,)

    def __post_init__(self) -> None:
        if not (self.temperature > 0 and self.eps >= 0):
            raise ValueError(
                f"expected a positive temperature and eps of 0 or more, but got {self.temperature} and {self.eps}"
            )

    def fit(self, loader: Iterable[Any]) -> Self:
        """There is nothing to fit."""
        return self

    def score(self, images: Tensor) -> Tensor:
        """Scores [n] in float64 for images in the form of the network's input."""
        with repeatable(self.model) as device:
            return odin_scores(self.model, images.to(device), self.temperature, [self.eps], self.std)[0]

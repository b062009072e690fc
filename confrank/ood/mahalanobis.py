"""Mahalanobis distances to the class means of several layers (Lee et al. 2018).

Training features give each layer its class means and one covariance. The image moves a small step that raises the
layer's score, which is minus the smallest squared distance. A weighted sum over the layers is the final score.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn

from confrank.ood.features import block_layers, check_layers, feature_of, features_of, labelled_batches, repeatable
from confrank.ood.gaussian import Gaussians, Moments
from confrank.ood.perturbation import direction

EPS = (0.0, 0.0005, 0.001, 0.0014, 0.002, 0.005, 0.01)


@torch.inference_mode(False)  # the gradient of the step flows through the fitted tensors
def fit_layers(model: nn.Module, loader: Iterable[Any], layers: Sequence[str]) -> dict[str, Gaussians]:
    """The Gaussians of each layer, from one pass over (images, labels)."""
    moments: list[Moments] = []
    with torch.no_grad(), repeatable(model) as device:
        for images, label in labelled_batches(loader):
            logits, features = features_of(model, images.to(device), layers)
            moments = moments or [Moments(logits.shape[1]) for _ in layers]
            for one, values in zip(moments, features, strict=True):
                one.add(values, _checked(label, logits).to(device))
    fitted = {}
    for name, one in zip(layers, moments, strict=True):
        try:
            fitted[name] = one.gaussians()
        except ValueError as error:
            raise ValueError(f"layer {name!r}: {error}") from None
    return fitted


def _checked(label: Tensor, logits: Tensor) -> Tensor:
    if label.shape != logits.shape[:1] or label.is_floating_point():
        raise ValueError(f"expected one class index per image, but got {label.dtype} of shape {list(label.shape)}")
    if len(label) and (int(label.min()) < 0 or int(label.max()) >= logits.shape[1]):
        raise ValueError(
            f"expected labels within 0..{logits.shape[1] - 1}, but got {int(label.min())} to {int(label.max())}"
        )
    return label.long()


def layer_scores(
    model: nn.Module, fitted: Mapping[str, Gaussians], images: Tensor, eps: Sequence[float], std: Sequence[float]
) -> Tensor:
    """Scores [len(eps), n, layers] in float64; each layer has its own step direction, used for all step sizes."""
    if not any(eps):
        with torch.no_grad():
            _, features = features_of(model, images, list(fitted))
            pairs = zip(fitted.values(), features, strict=True)
            scores = torch.stack([gaussians.score(values) for gaussians, values in pairs], dim=1)
        return scores.expand(len(eps), -1, -1)
    return torch.stack([_swept(model, name, fitted[name], images, eps, std) for name in fitted], dim=2)


def _swept(
    model: nn.Module, layer: str, gaussians: Gaussians, images: Tensor, eps: Sequence[float], std: Sequence[float]
) -> Tensor:
    def score(image: Tensor) -> Tensor:
        return gaussians.score(feature_of(model, image, layer))

    step = direction(score, images, std)
    with torch.no_grad():
        return torch.stack([score(images + size * step if size else images) for size in eps])


@dataclass(frozen=True)
class LayerWeights:
    """score = layer scores [n, L] x weight [L] + bias."""

    weight: tuple[float, ...]
    bias: float

    def combined(self, scores: Tensor) -> Tensor:
        return scores @ torch.tensor(self.weight, dtype=scores.dtype, device=scores.device) + self.bias


def equal_weights(ranks: Sequence[int]) -> LayerWeights:
    """The mean over layers of standardised scores, for use without out-of-distribution images.

    The squared distance of a Gaussian feature to its mean is chi-square with `rank` degrees of freedom: mean rank,
    variance 2 rank.

    >>> equal_weights([2, 8])
    LayerWeights(weight=(0.25, 0.125), bias=1.5)
    """
    spread = [(2 * rank) ** 0.5 * len(ranks) for rank in ranks]
    return LayerWeights(
        tuple(1 / value for value in spread), sum(rank / value for rank, value in zip(ranks, spread, strict=True))
    )


@dataclass
class Mahalanobis:
    """The detector on any classifier: `fit` on training batches, then `score`.

    `layers` are names of `model.named_modules()`; confrank's networks have defaults. `eps` is the step on the 0-1
    pixel scale, `std` the divisor of the images' normalisation. Without `weights`, all layers count equally.
    """

    model: nn.Module
    layers: Sequence[str] = ()
    eps: float = 0.0
    std: Sequence[float] = (1.0,)
    weights: LayerWeights | None = None
    fitted: dict[str, Gaussians] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.eps >= 0:
            raise ValueError(f"expected eps of 0 or more, but got {self.eps}")
        named = [self.layers] if isinstance(self.layers, str) else list(self.layers)
        self.layers = named or block_layers(self.model)
        check_layers(self.model, self.layers)

    def fit(self, loader: Iterable[Any]) -> Self:
        """Class means and covariances from batches of (images, labels), in constant memory."""
        self.fitted = fit_layers(self.model, loader, self.layers)
        return self

    @property
    def notes(self) -> list[str]:
        """Layers whose covariance has no inverse."""
        return [
            f"layer {name}: covariance of rank {one.rank} of {len(one.covariance)}, pseudo-inverse used"
            for name, one in self.fitted.items()
            if one.rank < len(one.covariance)
        ]

    def layer_scores(self, images: Tensor, eps: Sequence[float]) -> Tensor:
        """Scores [len(eps), n, layers] at several step sizes."""
        if not self.fitted:
            raise ValueError("expected a fitted detector, but fit was not called; call fit(train_loader) first")
        with repeatable(self.model) as device:
            return layer_scores(self.model, self.fitted, images.to(device), eps, self.std)

    def score(self, images: Tensor) -> Tensor:
        """Scores [n] in float64 for images in the form of the network's input."""
        scores = self.layer_scores(images, [self.eps])[0]
        weights = self.weights or equal_weights([one.rank for one in self.fitted.values()])
        return weights.combined(scores)

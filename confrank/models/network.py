"""What all networks share: blocks, a neck and a head, the layers in them, and how weights are loaded."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

HEADS = ("linear", "cosine")


@dataclass(frozen=True)
class Features:
    """`penultimate` [n, d] is the input of the head; `blocks` are the spatial means [n, c] of each block's output."""

    penultimate: Tensor
    blocks: list[Tensor]


class Network(nn.Module):
    """A sequence of blocks (image -> maps), a neck (maps -> vector) and a linear head (vector -> logits).

    With `variance_head`, `forward` returns (logits, log-variance), both [n, K]; else the logits [n, K].
    """

    def __init__(
        self, blocks: Iterable[nn.Module], neck: nn.Module, width: int, num_classes: int, variance_head: bool = False
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.neck = neck
        self.head = nn.Linear(width, num_classes)
        self.variance_head = nn.Linear(width, num_classes) if variance_head else None
        initialise(self)

    def forward(self, image: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        maps = image
        for block in self.blocks:
            maps = block(maps)
        return self.classify(self.neck(maps))

    def classify(self, vector: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """The output for penultimate features [n, d]."""
        logits: Tensor = self.head(vector)
        return logits if self.variance_head is None else (logits, self.variance_head(vector))

    def features(self, image: Tensor) -> Features:
        """The features that out-of-distribution detectors and core-set selection use."""
        maps, blocks = image, []
        for block in self.blocks:
            maps = block(maps)
            blocks.append(maps.mean(dim=(2, 3)))
        return Features(self.neck(maps), blocks)


@torch.no_grad()
def initialise(network: nn.Module) -> None:
    """He-normal (fan-out) convolutions with zero bias; everything else has torch's default."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def logits_of(output: Any) -> Any:
    """The logits in a network's output, which may also hold a log-variance."""
    return output[0] if isinstance(output, tuple) else output


class CosineHead(nn.Linear):
    """Temperature 8 x cosine of the angle between the features and each class's weights (Li et al. 2024, SURE).

    The logits are within ±8, so that no sample can become arbitrarily sure.
    """

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__(width, num_classes, bias=False)

    def forward(self, vector: Tensor) -> Tensor:
        """Logits [..., K] of features [..., width]."""
        return 8.0 * linear(normalize(vector, dim=-1), normalize(self.weight, dim=-1))


class SpatialMean(nn.Module):
    """Maps [n, c, h, w] -> [n, c]."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=(2, 3))


BatchNorm = TypeVar("BatchNorm", nn.BatchNorm1d, nn.BatchNorm2d)


def norm(width: int) -> nn.BatchNorm2d:
    """Batch norm of maps [n, width, h, w], without a batch counter."""
    return _uncounted(nn.BatchNorm2d(width))


def flat_norm(width: int) -> nn.BatchNorm1d:
    """Batch norm of vectors [n, width], without a batch counter."""
    return _uncounted(nn.BatchNorm1d(width))


def _uncounted(layer: BatchNorm) -> BatchNorm:
    """Drop the batch counter, which only a moving average without momentum needs; load state dicts with and without.

    torch adds a counter to any dictionary without version metadata, such as one read from a safetensors file.
    """
    layer.num_batches_tracked = None
    layer.register_load_state_dict_pre_hook(_drop_counter)  # type: ignore[no-untyped-call]
    return layer


def _drop_counter(layer: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    state.pop(f"{prefix}num_batches_tracked", None)


def conv(in_width: int, out_width: int, size: int = 3, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    """A convolution that keeps the image size (up to the stride)."""
    return nn.Conv2d(in_width, out_width, size, stride=stride, padding=size // 2, bias=bias)


def drop(rate: float) -> list[nn.Module]:
    """A dropout layer, or none at rate 0."""
    return [nn.Dropout(rate)] if rate else []


def dropped(layer: nn.Module, rate: float) -> nn.Module:
    """The layer followed by dropout, or the layer alone at rate 0."""
    return nn.Sequential(layer, nn.Dropout(rate)) if rate else layer


class OtherWeightsError(ValueError):
    """The weights belong to another network; the message says how they differ."""


def load_weights(network: nn.Module, weights: dict[str, Tensor]) -> None:
    """`network.load_state_dict(weights)`, with an `OtherWeightsError` in one line if they do not fit."""
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise OtherWeightsError(" ".join(str(error).split())[:200]) from None


def start_from(
    network: nn.Module, weights: dict[str, Tensor], num_classes: int, *, other_classes: bool = False
) -> list[str]:
    """Load weights of the same network; the names of those that keep their initial values.

    These are the ones with a row per class, if there are `other_classes` or another number of them. Any other
    difference is an `OtherWeightsError`.
    """
    here = network.state_dict()
    anew = [
        name for name in _per_class(network, weights, num_classes)
        if other_classes or name not in weights or here[name].shape != weights[name].shape
    ]  # fmt: skip
    load_weights(network, {**weights, **{name: here[name] for name in anew}})
    return anew


def _per_class(network: nn.Module, weights: dict[str, Tensor], num_classes: int) -> list[str]:
    """The names of the weights with a row per class.

    In a custom network these are the last parameters with as many rows, and all that differ in their rows alone.
    """
    here = network.state_dict()
    if isinstance(network, Network):
        return [name for name in here if name.startswith(("head.", "variance_head."))]
    sized = [name for name, values in here.items() if values.ndim and len(values) == num_classes]
    backwards = dropwhile(lambda name: name not in sized, reversed([name for name, _ in network.named_parameters()]))
    last = {*takewhile(lambda name: name in sized, backwards)}
    found = []
    for name in sized:
        shape, there = here[name].shape, weights.get(name)
        differs_in_rows = there is None or (shape != there.shape and shape[1:] == there.shape[1:])
        if name in last or differs_in_rows:
            found.append(name)
    return found

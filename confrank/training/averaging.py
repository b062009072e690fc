"""Averages of a network's weights over training: stochastic weight averaging (SWA) and moving averages (EMA).

The averaged network needs new batch norm statistics: `estimate_statistics`.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

# The share of the average that an EMA keeps per step: it reaches back about 1,000 steps.
EMA_DECAY = 0.999


class WeightAverage:
    """A running average of a network's parameters, in tensors that are never replaced.

    Call `add` at the end of each epoch for SWA (Izmailov et al. 2018), or `follow` after each step for an EMA; at the
    end, `apply` copies the average into the network. Neither waits for the device.
    """

    def __init__(self, model: nn.Module) -> None:
        self.parameters: list[Tensor] = list(model.parameters())
        self.mean = [values.detach().clone() for values in self.parameters]
        self.count = torch.zeros((), dtype=torch.int64, device=self.parameters[0].device)

    def add(self) -> None:
        """Count the current weights as one more member of the mean."""
        self.count += 1
        self.follow(1 / self.count)

    @torch.no_grad()
    def follow(self, share: Tensor) -> None:
        """Move the average towards the current weights by a share, a tensor with one value."""
        difference = torch._foreach_sub(self.parameters, self.mean)
        torch._foreach_mul_(difference, share)
        torch._foreach_add_(self.mean, difference)

    @torch.no_grad()
    def apply(self) -> None:
        """Copy the average into the network."""
        for values, mean in zip(self.parameters, self.mean, strict=True):
            values.copy_(mean)

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "count": self.count}

    def load_state(self, state: dict[str, Any]) -> None:
        """Return to a saved average, writing into the existing tensors."""
        for mine, saved in zip((*self.mean, self.count), (*state["mean"], state["count"]), strict=True):
            mine.copy_(saved)


@torch.no_grad()
def estimate_statistics(model: nn.Module, images: Iterable[Tensor]) -> None:
    """Replace the statistics of batch norm by the means over these batches, each weighted by its size.

    The network must be in training mode. One without batch norm is left alone, and no batch is read.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    if not layers:
        return
    with _momentum_restored(layers):
        num_seen = 0
        for image in images:
            num_seen += len(image)
            for layer in layers:
                layer.momentum = len(image) / num_seen  # 1 for the first batch, which replaces what was there
            model(image)


@contextmanager
def _momentum_restored(layers: list[_BatchNorm]) -> Iterator[None]:
    before = [layer.momentum for layer in layers]
    try:
        yield
    finally:
        for layer, momentum in zip(layers, before, strict=True):
            layer.momentum = momentum

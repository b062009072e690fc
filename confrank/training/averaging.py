"""Averages of a network's weights over training: stochastic weight averaging (SWA) and moving averages (EMA).

The averaged network needs new batch norm statistics: `estimate_statistics`.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from confrank.errors import InputError

# The share of the average that an EMA keeps per step: it reaches back about 1,000 steps.
EMA_DECAY = 0.999


class WeightAverage:
    """A running average of a network's parameters, in tensors that are never replaced.

    Call `add` at the end of each epoch for SWA (Izmailov et al. 2018), or `follow` after each step for an EMA; at the
    end, `apply` copies the average into the network. Nothing waits for the device. Create it after the network has
    been moved to its device.
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
    def follow(self, share: Tensor | float = 1 - EMA_DECAY) -> None:
        """Move the average towards the current weights by this share of the way: 1 minus the decay of an EMA.

        The average reaches back about 1 / share steps. A tensor with one value can change in a captured graph.
        """
        difference = torch._foreach_sub(self.parameters, self.mean)
        torch._foreach_mul_(difference, share)
        torch._foreach_add_(self.mean, difference)

    @torch.no_grad()
    def apply(self) -> None:
        """Copy the average into the network."""
        for values, mean in zip(self.parameters, self.mean, strict=True):
            values.copy_(mean)

    def state_dict(self) -> dict[str, Any]:
        """The tensors of the average itself, not copies, as in torch."""
        return {"mean": self.mean, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Return to a saved average, writing into the existing tensors."""
        if [values.shape for values in state["mean"]] != [values.shape for values in self.mean]:
            raise InputError(
                "expected the average of a network with weights of the same shapes, but got other shapes",
                "load the state of the same network",
            )
        for mine, saved in zip((*self.mean, self.count), (*state["mean"], state["count"]), strict=True):
            mine.copy_(saved)


@torch.no_grad()
def estimate_statistics(model: nn.Module, images: Iterable[Tensor | Sequence[Any]]) -> None:
    """Replace the statistics of batch norm by the means over these batches, each weighted by its size.

    A batch is a tensor of images, or a tuple or list that starts with one. The network must be in training mode;
    single layers in evaluation mode keep their statistics. Without batch norm, no batch is read.
    """
    norms = [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    if norms and not model.training:
        raise InputError("expected a network in training mode, but got evaluation mode", "call model.train() before")
    layers = [layer for layer in norms if layer.training]
    if not layers:
        return
    with _momentum_restored(layers):
        num_seen = 0
        for batch in images:
            image = batch if isinstance(batch, Tensor) else _first(batch)
            num_seen += len(image)
            for layer in layers:
                layer.momentum = len(image) / num_seen  # 1 for the first batch, which replaces what was there
            model(image)
    if not num_seen:
        raise InputError("expected at least one batch of images, but got none", "a generator can be read only once")


def _first(batch: Sequence[Any]) -> Tensor:
    if not isinstance(batch, tuple | list) or not batch or not isinstance(batch[0], Tensor):
        raise InputError(
            f"expected batches of images, or tuples or lists that start with one, but got {type(batch).__name__}",
            "pass a generator of images, e.g. (batch['image'] for batch in loader)",
        )
    return batch[0]


@contextmanager
def _momentum_restored(layers: list[_BatchNorm]) -> Iterator[None]:
    before = [layer.momentum for layer in layers]
    try:
        yield
    finally:
        for layer, momentum in zip(layers, before, strict=True):
            layer.momentum = momentum

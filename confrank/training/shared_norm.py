"""Batch norm over the samples of all processes; torch's SyncBatchNorm does this on GPUs only."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm


class SharedNorms:
    """The batch norm layers of a network: inside `over`, they take statistics from the batches of all processes."""

    def __init__(self, model: nn.Module) -> None:
        self.share = 1.0
        self.active = False
        for layer in model.modules():
            if isinstance(layer, _BatchNorm):
                layer.forward = partial(self._forward, layer, layer.forward)  # type: ignore[method-assign]

    @contextmanager
    def over(self, share: float) -> Iterator[None]:
        """The batch of this process is this share of the complete one."""
        self.active, self.share = True, share
        try:
            yield
        finally:
            self.active = False

    def _forward(self, layer: _BatchNorm, plain: Any, values: Tensor) -> Tensor:
        if not (self.active and layer.training):
            output: Tensor = plain(values)
            return output
        count = round(values.numel() / values.shape[1] / self.share)
        output, mean, variance = _normalise(values, layer.weight, layer.bias, layer.eps, count)
        _follow(layer, mean, variance * (count / max(count - 1, 1)))
        return output


def _follow(layer: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics of a layer, as torch does."""
    if layer.running_mean is None or layer.running_var is None:
        return
    if layer.num_batches_tracked is not None:
        layer.num_batches_tracked += 1
    momentum = 1 / float(layer.num_batches_tracked or 1) if layer.momentum is None else layer.momentum
    layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), momentum)
    layer.running_var.lerp_(variance.to(layer.running_var.dtype), momentum)


def _normalise(
    values: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Values [b, c, ...] normalised over all processes, scaled and shifted; their mean and biased variance [c]."""
    normalised, mean, variance = _Normalised.apply(values, eps, count)  # type: ignore[no-untyped-call]
    if weight is not None:
        normalised = normalised * _per_channel(weight, values)
    if bias is not None:
        normalised = normalised + _per_channel(bias, values)
    return normalised, mean, variance


class _Normalised(torch.autograd.Function):
    """(x - mean) / sqrt(variance + eps), with mean and variance over all `count` values of each channel."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, eps: float, count: int) -> tuple[Tensor, Tensor, Tensor]:
        over = [0, *range(2, values.ndim)]
        mean = _total(values.sum(over)) / count
        centred = values - _per_channel(mean, values)
        variance = _total(centred.square().sum(over)) / count
        scale = (variance + eps).rsqrt()
        normalised = centred * _per_channel(scale, values)
        ctx.save_for_backward(normalised, scale)
        ctx.count = count
        ctx.mark_non_differentiable(mean, variance)
        return normalised, mean, variance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        gradient, (normalised, scale) = gradients[0], ctx.saved_tensors
        over = [0, *range(2, gradient.ndim)]
        sums = _total(torch.stack((gradient.sum(over), (gradient * normalised).sum(over)))) / ctx.count
        inner = gradient - _per_channel(sums[0], gradient) - normalised * _per_channel(sums[1], gradient)
        return inner * _per_channel(scale, gradient), None, None


def _total(values: Tensor) -> Tensor:
    """The sum over all processes."""
    distributed.all_reduce(values)
    return values


def _per_channel(values: Tensor, like: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (like.ndim - 2))

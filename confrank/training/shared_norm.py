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
        weight = values.new_ones(values.shape[1]) if layer.weight is None else layer.weight
        bias = torch.zeros_like(weight) if layer.bias is None else layer.bias
        output, mean, variance = _Normalised.apply(values, weight, bias, layer.eps, count)  # type: ignore[no-untyped-call]
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


class _Normalised(torch.autograd.Function):
    """weight (x - mean) / sqrt(variance + eps) + bias, where each channel has `count` values in all processes.

    x is [b, c, ...], the others are [c]. Mean and biased variance are returned too, without a gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, weight: Tensor, bias: Tensor, eps: float, count: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        over = [0, *range(2, values.ndim)]
        mean = _total(values.sum(over)) / count
        centred = values - _per_channel(mean, values)
        variance = _total(centred.square().sum(over)) / count
        scale = (variance + eps).rsqrt()
        ctx.save_for_backward(values, weight, mean, scale)
        ctx.count = count
        ctx.mark_non_differentiable(mean, variance)
        return centred * _per_channel(scale * weight, values) + _per_channel(bias, values), mean, variance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        gradient, (values, weight, mean, scale) = gradients[0], ctx.saved_tensors
        over = [0, *range(2, gradient.ndim)]
        normalised = (values - _per_channel(mean, values)) * _per_channel(scale, values)
        of_bias, of_weight = gradient.sum(over), (gradient * normalised).sum(over)
        shift, tilt = _total(torch.stack((of_bias, of_weight))) / ctx.count
        inner = gradient - _per_channel(shift, values) - normalised * _per_channel(tilt, values)
        return inner * _per_channel(scale * weight, values), of_weight, of_bias, None, None


def _total(values: Tensor) -> Tensor:
    """The sum over all processes."""
    distributed.all_reduce(values)
    return values


def _per_channel(values: Tensor, like: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (like.ndim - 2))

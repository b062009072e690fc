"""Triton kernels for narrow convolutional networks on a GPU, used by the captured path where they apply.

Triton comes with torch for CUDA. It is imported only if a network can use it.
"""

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor, nn

Infer = Callable[[nn.Module, Tensor, bool], Tensor | tuple[Tensor, Tensor]]


def fused(network: nn.Module, height: int, width: int) -> Infer | None:
    """The function that computes the network's output in fused kernels, or None if they do not apply to it.

    They are for small images, those of DenseNet-BC for 32 pixels a side.
    """
    small = all(8 <= side <= 64 and side % 4 == 0 for side in (height, width))
    if not small or find_spec("triton") is None or not _is_trained_as_usual(network):
        return None
    from confrank.training.kernels import densenet, resnet

    if height == width == 32 and densenet.layers_of(network) is not None:
        return densenet.infer
    return resnet.infer if resnet.layers_of(network) is not None else None


def _is_trained_as_usual(network: nn.Module) -> bool:
    """Whether all weights are trained, in float32, and no layer has a hook: the kernels do not call layers."""
    weights = list(network.parameters())
    trained = all(each.requires_grad and each.dtype == torch.float32 and can_run(each.device) for each in weights)
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return trained and not any(getattr(module, name) for module in network.modules() for name in hooks)


def can_run(device: torch.device) -> bool:
    """Whether the device multiplies matrices of bfloat16; a CPU can interpret the kernels."""
    return device.type == "cpu" or (not torch.version.hip and torch.cuda.get_device_capability(device) >= (8, 0))

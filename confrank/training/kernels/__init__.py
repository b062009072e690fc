"""Triton kernels for narrow convolutional networks on a GPU, used by the captured path where they apply.

Triton comes with torch for CUDA and is imported only if a network can use it; nothing else depends on it.
"""

from collections.abc import Callable
from importlib.util import find_spec

from torch import Tensor, nn

Infer = Callable[[nn.Module, Tensor, bool], Tensor | tuple[Tensor, Tensor]]


def fused(network: nn.Module, height: int, width: int) -> Infer | None:
    """The function that computes the network's output in fused kernels, or None if they do not apply to it.

    They are for small images; those of DenseNet-BC have been tested with 32 pixels a side.
    """
    small = all(8 <= side <= 64 and side % 4 == 0 for side in (height, width))
    if not small or find_spec("triton") is None:
        return None
    from confrank.training.kernels import densenet, resnet

    if height == width == 32 and densenet.layers_of(network) is not None:
        return densenet.infer
    return resnet.infer if resnet.layers_of(network) is not None else None

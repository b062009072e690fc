"""The small step on the image that makes out-of-distribution images easier to detect (Liang et al. 2018).

Step sizes are on the 0-1 pixel scale. The network's input is (x - mean) / std, where a step of eps is eps / std.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def direction(score: Callable[[Tensor], Tensor], images: Tensor, std: Sequence[float]) -> Tensor:
    """sign(gradient of the score) / std, shaped like `images`: images + eps x direction raises the score.

    `score` returns one value per image, which depends on this image only; one backward pass serves the batch.

    >>> direction(lambda x: -x.pow(2).sum(dim=1), torch.tensor([[3.0, -1.0]]), std=(0.5,))
    tensor([[-2.,  2.]])
    """
    if not images.is_floating_point():
        raise ValueError(
            f"expected network inputs in floating point, but got {images.dtype}; convert and normalise them first"
        )
    scale = _as_channels(std, images)
    with torch.inference_mode(False), torch.enable_grad():
        leaf = images.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(score(leaf).sum(), leaf)
    return gradient.sign() / scale


def _as_channels(std: Sequence[float] | float, images: Tensor) -> Tensor:
    scale = torch.as_tensor(std, dtype=images.dtype, device=images.device).flatten()
    if images.ndim < 2 or len(scale) not in (1, images.shape[1]) or not bool((scale > 0).all()):
        raise ValueError(
            f"expected a positive std for each channel of images {list(images.shape)} (or one for all),"
            f" but got {tuple(scale.tolist())}"
        )
    return scale.view(1, -1, *[1] * (images.ndim - 2))

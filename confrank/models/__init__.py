"""Networks by name: image [n, c, h, w] -> logits [n, K]."""

from collections.abc import Callable

from torch import nn

from confrank.models.small import SmallConvNet

MODELS: dict[str, Callable[..., nn.Module]] = {"small": SmallConvNet}


def create(name: str, num_classes: int, *, in_channels: int = 3) -> nn.Module:
    """The network of that name, freshly initialised from torch's random state.

    >>> sum(p.numel() for p in create("small", 10, in_channels=1).parameters())
    18538
    """
    if name not in MODELS:
        raise ValueError(f"expected a model among {', '.join(MODELS)}, but got {name!r}")
    return MODELS[name](num_classes, in_channels=in_channels)


__all__ = ["MODELS", "create"]

"""A small convolutional network for small images."""

from torch import nn

from confrank.models.network import Network, conv, drop, norm


def small(
    num_classes: int, *, in_channels: int = 3, dropout: bool = False, variance_head: bool = False, width: int = 16
) -> Network:
    """Two 3x3 convolutions with batch norm, means over 2x2 regions, one hidden layer; `dropout`: 0.2 after each."""
    rate = 0.2 if dropout else 0.0
    blocks = [
        nn.Sequential(conv(before, width), norm(width), nn.ReLU(), *drop(rate)) for before in (in_channels, width)
    ]
    neck = nn.Sequential(
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 2 * width), nn.ReLU(), *drop(rate)
    )
    return Network(blocks, neck, 2 * width, num_classes, variance_head)

"""A convolutional network for a few hundred images of about 32x32 pixels, fast on a CPU."""

from torch import nn

from confrank.models.network import Network, SpatialMean, conv, drop, norm


def convnet(num_classes: int, *, in_channels: int = 3, dropout: bool = False, variance_head: bool = False) -> Network:
    """Two 3x3 convolutions with batch norm at each of three sizes, with 16, 32 and 64 maps.

    The means of the last maps go to the head. `dropout`: 0.2 after each convolution.
    """
    rate = 0.2 if dropout else 0.0
    blocks: list[nn.Module] = []
    before = in_channels
    for width in (16, 32, 64):
        layers: list[nn.Module] = [nn.MaxPool2d(2)] if blocks else []
        for _ in range(2):
            layers += [conv(before, width), norm(width), nn.ReLU(), *drop(rate)]
            before = width
        blocks.append(nn.Sequential(*layers))
    return Network(blocks, SpatialMean(), before, num_classes, variance_head)

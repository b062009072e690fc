"""A multilayer perceptron for small images."""

from torch import nn

from confrank.models.network import Network, drop

SIZE = 8


def mlp(
    num_classes: int, *, in_channels: int = 3, dropout: bool = False, variance_head: bool = False, width: int = 128
) -> Network:
    """Three linear layers with ReLU between them, on the image averaged to 8x8 pixels; dropout 0.2 if asked."""
    rate = 0.2 if dropout else 0.0
    first = nn.Sequential(nn.AdaptiveAvgPool2d(SIZE), _hidden(SIZE * SIZE * in_channels, width, rate))
    return Network([first, _hidden(width, width, rate)], nn.Flatten(), width, num_classes, variance_head)


def _hidden(in_width: int, width: int, rate: float) -> nn.Sequential:
    """A hidden layer as a block: its output is a map of one pixel."""
    layers = (nn.Flatten(), nn.Linear(in_width, width), nn.ReLU(), *drop(rate))
    return nn.Sequential(*layers, nn.Unflatten(1, (width, 1, 1)))

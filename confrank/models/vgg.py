"""VGG-16 for 32x32 images (Simonyan & Zisserman 2014), with batch norm after each convolution.

The dropout methods train another form of it, the one that the paper takes from Geifman et al. (2018): the order is
convolution, ReLU, batch norm, dropout, and one hidden layer of 512 with batch norm precedes the head.
"""

from torch import nn

from confrank.models.network import Network, conv, drop, flat_norm, norm

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg16(num_classes: int, *, in_channels: int = 3, dropout: bool = False, variance_head: bool = False) -> Network:
    """Five stages of convolutions and pooling, then 512-512-K with dropout 0.5 before the first two linear layers.

    `dropout` gives the form of Geifman et al.: dropout 0.3 after the first convolution and 0.4 after each other one
    that no pooling follows, then dropout 0.5, 512, dropout 0.5, K.
    """
    stages = []
    before = in_channels
    for number, widths in enumerate(STAGES):
        rates = [0.3 if number == 0 else 0.4, *[0.4] * (len(widths) - 2), 0.0] if dropout else [0.0] * len(widths)
        stages.append(_stage(before, widths, rates, norm_last=dropout))
        before = widths[-1]
    return Network(stages, _hidden_layer() if dropout else _two_hidden_layers(), 512, num_classes, variance_head)


def _stage(before: int, widths: tuple[int, ...], rates: list[float], norm_last: bool) -> nn.Module:
    layers: list[nn.Module] = []
    for width, rate in zip(widths, rates, strict=True):
        activation = [nn.ReLU(), norm(width)] if norm_last else [norm(width), nn.ReLU()]
        layers += [conv(before, width, bias=True), *activation, *drop(rate)]
        before = width
    return nn.Sequential(*layers, nn.MaxPool2d(2))


def _two_hidden_layers() -> nn.Module:
    hidden = [nn.Dropout(0.5), nn.Linear(512, 512), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Dropout(0.5), nn.Linear(512, 512), nn.ReLU())


def _hidden_layer() -> nn.Module:
    hidden = [nn.Dropout(0.5), nn.Linear(512, 512), nn.ReLU(), flat_norm(512)]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Dropout(0.5))

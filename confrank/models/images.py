"""Networks for images of about 32x32 pixels, [n, c, h, w] -> logits [n, K].

`dropout` is the form that the dropout methods train; `variance_head` adds a log-variance of each logit.
"""

import torch
from torch import Tensor, nn

from confrank.models.network import Network, SpatialMean, conv, drop, dropped, flat_norm, norm


def vgg16(num_classes: int, *, in_channels: int = 3, dropout: bool = False, variance_head: bool = False) -> Network:
    """VGG-16 (Simonyan & Zisserman 2014) with batch norm after each convolution.

    Five stages of convolutions and pooling, then 512-512-K with dropout 0.5 before the first two linear layers.

    `dropout` gives another form, the one that the paper takes from Geifman et al. (2018): the order is convolution,
    ReLU, batch norm, dropout, with dropout 0.3 after the first convolution and 0.4 after each other one that no
    pooling follows; then dropout 0.5, 512 with batch norm, dropout 0.5, K.
    """
    stages: list[nn.Module] = []
    before = in_channels
    for widths in ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512)):
        layers: list[nn.Module] = []
        for position, width in enumerate(widths, 1):
            activation = [nn.ReLU(), norm(width)] if dropout else [norm(width), nn.ReLU()]
            layers += [conv(before, width, bias=True), *activation]
            if dropout and position < len(widths):  # no pooling follows
                layers.append(nn.Dropout(0.4 if stages else 0.3))
            before = width
        stages.append(nn.Sequential(*layers, nn.MaxPool2d(2)))
    hidden = [nn.Flatten(), nn.Dropout(0.5), nn.Linear(512, 512), nn.ReLU()]
    if dropout:
        neck = nn.Sequential(*hidden, flat_norm(512), nn.Dropout(0.5))
    else:
        neck = nn.Sequential(*hidden, nn.Dropout(0.5), nn.Linear(512, 512), nn.ReLU())
    return Network(stages, neck, 512, num_classes, variance_head)


def resnet110(
    num_classes: int, *, in_channels: int = 3, dropout: bool = False, variance_head: bool = False
) -> Network:
    """Pre-activation ResNet (He et al. 2016), 3 stages of 18 blocks.

    `dropout`: 0.2 after each convolution, 0.1 before the head.
    """
    rate = 0.2 if dropout else 0.0
    stem = dropped(conv(in_channels, 16), rate)
    stages = residual_stages(PreActivationBlock, 16, (16, 32, 64), 18, rate)
    neck = nn.Sequential(norm(64), nn.ReLU(), SpatialMean(), *drop(0.1 if dropout else 0.0))
    return Network([stem, *stages], neck, 64, num_classes, variance_head)


def resnet18(
    num_classes: int, *, in_channels: int = 3, dropout: bool = False, variance_head: bool = False
) -> Network:
    """The form for 32x32 images (3x3 stem, no pooling); dropout as in `resnet110`, since the paper does not say."""
    rate = 0.2 if dropout else 0.0
    stem = nn.Sequential(conv(in_channels, 64), norm(64), nn.ReLU(), *drop(rate))
    stages = residual_stages(PostActivationBlock, 64, (64, 128, 256, 512), 2, rate)
    neck = nn.Sequential(SpatialMean(), *drop(0.1 if dropout else 0.0))
    return Network([stem, *stages], neck, 512, num_classes, variance_head)


class PreActivationBlock(nn.Module):
    """x + conv(relu(norm(conv(relu(norm(x)))))); a wider or smaller output projects the activated input."""

    def __init__(self, before: int, width: int, stride: int, rate: float) -> None:
        super().__init__()
        self.activate = nn.Sequential(norm(before), nn.ReLU())
        self.residual = nn.Sequential(
            conv(before, width, stride=stride),
            *drop(rate),
            norm(width),
            nn.ReLU(),
            conv(width, width),
            *drop(rate),
        )
        changes = stride > 1 or before != width
        self.projection = dropped(conv(before, width, 1, stride), rate) if changes else None

    def forward(self, maps: Tensor) -> Tensor:
        active = self.activate(maps)
        shortcut = maps if self.projection is None else self.projection(active)
        total: Tensor = shortcut + self.residual(active)
        return total


class PostActivationBlock(nn.Module):
    """relu(x + norm(conv(relu(norm(conv(x)))))); a wider or smaller output projects the input."""

    def __init__(self, before: int, width: int, stride: int, rate: float) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            conv(before, width, stride=stride),
            norm(width),
            nn.ReLU(),
            *drop(rate),
            conv(width, width),
            norm(width),
            *drop(rate),
        )
        changes = stride > 1 or before != width
        projection = [conv(before, width, 1, stride), norm(width), *drop(rate)] if changes else []
        self.projection = nn.Sequential(*projection)
        self.activate = nn.ReLU()

    def forward(self, maps: Tensor) -> Tensor:
        total: Tensor = self.activate(self.projection(maps) + self.residual(maps))
        return total


def residual_stages(
    block: type[PreActivationBlock] | type[PostActivationBlock],
    before: int,
    widths: tuple[int, ...],
    depth: int,
    rate: float,
) -> list[nn.Module]:
    """A stage of `depth` blocks for each width; each but the first halves the image."""
    stages: list[nn.Module] = []
    for stage, width in enumerate(widths):
        first = block(before, width, 2 if stage else 1, rate)
        stages.append(nn.Sequential(first, *(block(width, width, 1, rate) for _ in range(depth - 1))))
        before = width
    return stages


def densenet_bc(
    num_classes: int,
    *,
    in_channels: int = 3,
    dropout: bool = False,
    variance_head: bool = False,
    growth: int = 12,
    depth: int = 100,
) -> Network:
    """DenseNet-BC (Huang et al. 2017): three dense blocks with halving transitions.

    `dropout`: 0.2 after each convolution except the stem.
    """
    rate = 0.2 if dropout else 0.0
    width = 2 * growth
    blocks: list[nn.Module] = [conv(in_channels, width)]
    for stage in range(3):
        layers: list[nn.Module] = []
        for _ in range((depth - 4) // 6):
            layers.append(DenseLayer(width, growth, rate))
            width += growth
        if stage < 2:
            layers += [norm(width), nn.ReLU(), conv(width, width // 2, 1), *drop(rate), nn.AvgPool2d(2)]
            width //= 2
        blocks.append(nn.Sequential(*layers))
    neck = nn.Sequential(norm(width), nn.ReLU(), SpatialMean())
    network = Network(blocks, neck, width, num_classes, variance_head)
    for head in filter(None, (network.head, network.variance_head)):
        nn.init.zeros_(head.bias)  # as in the published code, which does this for DenseNet alone
    return network


class DenseLayer(nn.Module):
    """Appends `growth` maps computed through a bottleneck of 4 x growth maps."""

    def __init__(self, before: int, growth: int, rate: float) -> None:
        super().__init__()
        self.grow = nn.Sequential(
            norm(before),
            nn.ReLU(),
            conv(before, 4 * growth, 1),
            *drop(rate),
            norm(4 * growth),
            nn.ReLU(),
            conv(4 * growth, growth),
            *drop(rate),
        )

    def forward(self, maps: Tensor) -> Tensor:
        return torch.cat((maps, self.grow(maps)), dim=1)


def convnet(num_classes: int, *, in_channels: int = 3, dropout: bool = False, variance_head: bool = False) -> Network:
    """For a few hundred images, fast on a CPU: two 3x3 convolutions with batch norm at each of three sizes.

    They have 16, 32 and 64 maps; the means of the last maps go to the head. `dropout`: 0.2 after each convolution.
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


def small(
    num_classes: int, *, in_channels: int = 3, dropout: bool = False, variance_head: bool = False, width: int = 16
) -> Network:
    """For images of about 8x8 pixels: two 3x3 convolutions with batch norm, means over 2x2 regions, one hidden layer.

    `dropout`: 0.2 after each.
    """
    rate = 0.2 if dropout else 0.0
    blocks = [
        nn.Sequential(conv(before, width), norm(width), nn.ReLU(), *drop(rate)) for before in (in_channels, width)
    ]
    neck = nn.Sequential(
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 2 * width), nn.ReLU(), *drop(rate)
    )
    return Network(blocks, neck, 2 * width, num_classes, variance_head)


def mlp(
    num_classes: int, *, in_channels: int = 3, dropout: bool = False, variance_head: bool = False, width: int = 128
) -> Network:
    """Three linear layers with ReLU between them, on the image averaged to 8x8 pixels; dropout 0.2 if asked."""
    rate = 0.2 if dropout else 0.0
    first = nn.Sequential(nn.AdaptiveAvgPool2d(8), _hidden(8 * 8 * in_channels, width, rate))
    return Network([first, _hidden(width, width, rate)], nn.Flatten(), width, num_classes, variance_head)


def _hidden(in_width: int, width: int, rate: float) -> nn.Sequential:
    """A hidden layer as a block: its output is a map of one pixel."""
    layers = (nn.Flatten(), nn.Linear(in_width, width), nn.ReLU(), *drop(rate))
    return nn.Sequential(*layers, nn.Unflatten(1, (width, 1, 1)))

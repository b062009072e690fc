"""Residual networks for 32x32 images: pre-activation ResNet-110 and ResNet-18 (He et al. 2016)."""

from torch import Tensor, nn

from confrank.models.network import Network, SpatialMean, conv, drop, dropped, norm


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


def resnet110(
    num_classes: int, *, in_channels: int = 3, dropout: bool = False, variance_head: bool = False
) -> Network:
    """Pre-activation, 3 stages of 18 blocks; `dropout`: 0.2 after each convolution, 0.1 before the head."""
    rate = 0.2 if dropout else 0.0
    stem = dropped(conv(in_channels, 16), rate)
    stages = _stages(PreActivationBlock, 16, (16, 32, 64), 18, rate)
    neck = nn.Sequential(norm(64), nn.ReLU(), SpatialMean(), *drop(0.1 if dropout else 0.0))
    return Network([stem, *stages], neck, 64, num_classes, variance_head)


def resnet18(
    num_classes: int, *, in_channels: int = 3, dropout: bool = False, variance_head: bool = False
) -> Network:
    """The form for 32x32 images (3x3 stem, no pooling); dropout as in `resnet110`, since the paper does not say."""
    rate = 0.2 if dropout else 0.0
    stem = nn.Sequential(conv(in_channels, 64), norm(64), nn.ReLU(), *drop(rate))
    stages = _stages(PostActivationBlock, 64, (64, 128, 256, 512), 2, rate)
    neck = nn.Sequential(SpatialMean(), *drop(0.1 if dropout else 0.0))
    return Network([stem, *stages], neck, 512, num_classes, variance_head)


def _stages(
    block: type[PreActivationBlock] | type[PostActivationBlock],
    before: int,
    widths: tuple[int, ...],
    depth: int,
    rate: float,
) -> list[nn.Module]:
    stages: list[nn.Module] = []
    for stage, width in enumerate(widths):
        first = block(before, width, 2 if stage else 1, rate)
        stages.append(nn.Sequential(first, *(block(width, width, 1, rate) for _ in range(depth - 1))))
        before = width
    return stages

"""DenseNet-BC for 32x32 images (Huang et al. 2017): growth 12, depth 100."""

import torch
from torch import Tensor, nn

from confrank.models.network import Network, SpatialMean, conv, drop, norm


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


def densenet_bc(
    num_classes: int,
    *,
    in_channels: int = 3,
    dropout: bool = False,
    variance_head: bool = False,
    growth: int = 12,
    depth: int = 100,
) -> Network:
    """Three dense blocks with halving transitions; `dropout`: 0.2 after each convolution except the stem."""
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

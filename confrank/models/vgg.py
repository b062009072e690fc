"""VGG-16 for 32x32 images (Simonyan & Zisserman 2014), with batch norm after each convolution."""

from torch import nn

from confrank.models.network import Network, conv, drop, norm

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg16(num_classes: int, *, in_channels: int = 3, dropout: bool = False, variance_head: bool = False) -> Network:
    """Five stages of convolutions and pooling, then 512-512-K with dropout 0.5 before the first two linear layers.

    `dropout` adds 0.3 after the first convolution and 0.4 after each other one that no pooling follows.
    """
    blocks: list[nn.Module] = []
    before = in_channels
    for stage, widths in enumerate(STAGES):
        layers: list[nn.Module] = []
        for place, width in enumerate(widths):
            layers += [conv(before, width, bias=True), norm(width), nn.ReLU()]
            if dropout and place < len(widths) - 1:
                layers += drop(0.3 if stage == place == 0 else 0.4)
            before = width
        blocks.append(nn.Sequential(*layers, nn.MaxPool2d(2)))
    neck = nn.Sequential(
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 512), nn.ReLU()
    )
    return Network(blocks, neck, 512, num_classes, variance_head)

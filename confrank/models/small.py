"""A small convolutional network for small images."""

from torch import Tensor, nn


class SmallConvNet(nn.Module):
    """Two 3x3 convolutions with batch norm, global average over 2x2 regions, one hidden layer."""

    def __init__(self, num_classes: int, in_channels: int = 3, width: int = 32, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(4 * width, 2 * width),
            nn.ReLU(),
        )
        self.head = nn.Linear(2 * width, num_classes)

    def forward(self, image: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(image))
        return logits

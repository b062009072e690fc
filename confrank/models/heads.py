"""Last layers in place of the linear one."""

from torch import Tensor, nn
from torch.nn.functional import linear, normalize

HEADS = ("linear", "cosine")
TEMPERATURE = 8.0


class CosineHead(nn.Linear):
    """Temperature x cosine of the angle between the features and each class's weights (Li et al. 2024, SURE).

    The logits are within ±8, so that no sample can become arbitrarily sure.
    """

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__(width, num_classes, bias=False)

    def forward(self, vector: Tensor) -> Tensor:
        """Logits [..., K] of features [..., width]."""
        return TEMPERATURE * linear(normalize(vector, dim=-1), normalize(self.weight, dim=-1))

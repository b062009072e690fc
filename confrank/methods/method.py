"""What a method is: how its loss is made, and how a trained network of it predicts."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from confrank import models
from confrank.history import CorrectnessHistory


@dataclass(frozen=True)
class Output:
    """Predictions for a batch: logits or probabilities [b, K] in float32, the method's confidence [b] in float64."""

    confidence: Tensor
    logits: Tensor | None = None
    probabilities: Tensor | None = None


@dataclass(frozen=True)
class Method:
    """One method in one place.

    criterion: (history, weight) -> module called as (network output, label, index) -> loss.
    predict: (network in evaluation mode, images [b, c, h, w]) -> Output; without gradients, unless it enables them.
    dropout, variance_head: the form of the network it trains.
    stochastic: whether `predict` draws random numbers, which `predict_split` then seeds.
    confidence: the name of its confidence, where that is one of `confrank.confidence` of the logits of one pass.
    """

    name: str
    criterion: Callable[[CorrectnessHistory, float], nn.Module]
    predict: Callable[[nn.Module, Tensor], Output]
    dropout: bool = False
    variance_head: bool = False
    stochastic: bool = False
    confidence: str | None = None

    def network(self, model: str, num_classes: int, in_channels: int) -> nn.Module:
        """The network of that name, in the form that this method trains."""
        return models.create(model, num_classes, self.dropout, self.variance_head, in_channels=in_channels)

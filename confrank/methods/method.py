"""A method: how its loss is built, and how a network trained with it predicts."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from confrank import models
from confrank.history import CorrectnessHistory
from confrank.method_facts import MethodFacts


@dataclass(frozen=True)
class Output:
    """Predictions for a batch: logits or probabilities [b, K] in float32, the method's confidence [b] in float64."""

    confidence: Tensor
    logits: Tensor | None = None
    probabilities: Tensor | None = None


@dataclass(frozen=True)
class Method:
    """The facts about a method, with the functions that carry it out.

    criterion: (history, weight) -> module called as (network output, label, index) -> loss.
    predict: (network in evaluation mode, images [b, c, h, w]) -> Output. Gradients are off unless it enables them.
    """

    facts: MethodFacts
    criterion: Callable[[CorrectnessHistory, float], nn.Module]
    predict: Callable[[nn.Module, Tensor], Output]

    def network(self, model: str, num_classes: int, in_channels: int, *, head: str = "linear") -> nn.Module:
        """The network of that name, in the form that this method trains."""
        facts = self.facts
        form = facts.dropout, facts.variance_head
        return models.create(model, num_classes, *form, in_channels=in_channels, head=head)

"""Methods that train one network and predict in one pass: the baseline and the correctness ranking loss."""

from torch import Tensor, nn

from confrank import confidence
from confrank.history import CorrectnessHistory
from confrank.loss import CorrectnessRankingLoss
from confrank.method_facts import MethodFacts
from confrank.methods.method import Method, Output


def single_pass(facts: MethodFacts) -> Method:
    """The method with these facts; its loss ranks the confidence that it predicts with."""
    assert facts.confidence is not None
    name, confidence_of = facts.confidence, confidence.get(facts.confidence)

    def criterion(history: CorrectnessHistory, weight: float) -> nn.Module:
        # The baseline records correctness too: this costs almost nothing and shows which samples are hard.
        used = weight if facts.weighted else 0.0
        return CorrectnessRankingLoss(history, name, used, ignore_index=None, stretched=facts.stretched)

    def predict(model: nn.Module, image: Tensor) -> Output:
        logits = model(image).float()
        return Output(logits=logits, confidence=confidence_of(logits.double()))

    return Method(facts, criterion, predict)

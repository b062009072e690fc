"""Methods that train one network and predict with one pass: the baseline and the correctness ranking loss."""

from torch import Tensor, nn

from confrank import confidence
from confrank.history import CorrectnessHistory
from confrank.loss import CorrectnessRankingLoss
from confrank.methods.method import Method, Output


def one_pass(model: nn.Module, image: Tensor, confidence_name: str) -> Output:
    """Logits in float32, and their confidence in float64, of a batch."""
    logits = model(image).float()
    return Output(logits=logits, confidence=confidence.get(confidence_name)(logits.double()))


def _single_pass(name: str, confidence_name: str, *, weighted: bool = True, stretched: bool = False) -> Method:
    def criterion(history: CorrectnessHistory, weight: float) -> nn.Module:
        # The baseline records the events too: it costs next to nothing and shows which samples are hard.
        loss_weight = weight if weighted else 0.0
        return CorrectnessRankingLoss(history, confidence_name, loss_weight, ignore_index=None, stretched=stretched)

    def predict(model: nn.Module, image: Tensor) -> Output:
        return one_pass(model, image, confidence_name)

    return Method(name, criterion, predict, confidence=confidence_name)


BASELINE = _single_pass("baseline", "max_probability", weighted=False)
CRL_SOFTMAX = _single_pass("crl-softmax", "max_probability")
CRL_ENTROPY = _single_pass("crl-entropy", "negative_entropy")
CRL_MARGIN = _single_pass("crl-margin", "margin")
# With the rates of the code published with the paper; the others have those of its text.
CRL_SOFTMAX_STRETCHED = _single_pass("crl-softmax-stretched", "max_probability", stretched=True)

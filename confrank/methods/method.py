"""The methods by name: how the loss of each is built, how its network predicts, and averages of several networks.

To add one, add its facts in `confrank.method_facts` and, if needed, a line to `METHODS`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from confrank import confidence, models
from confrank.confidence import negative_entropy
from confrank.forms import are_correct
from confrank.history import CorrectnessHistory
from confrank.loss import CorrectnessRankingLoss
from confrank.method_facts import FACTS, MethodFacts, facts_of
from confrank.metrics.inputs import as_probabilities, as_table
from confrank.models import logits_of
from confrank.predictions import Array, Predictions

DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
PASSES = 50
LOGIT_SAMPLES = 50
MAX_LOG_VARIANCE = 10.0  # a standard deviation of 148: the noise alone decides


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


def single_pass(facts: MethodFacts) -> Method:
    """A method that predicts in one pass of one network; its loss ranks the confidence that it predicts with."""
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


@torch.no_grad()
def mc_predict(model: nn.Module, image: Tensor, passes: int = PASSES) -> Output:
    """MC-dropout (Gal & Ghahramani 2016): mean probability over passes with active dropout, and its negative entropy.

    The dropout is drawn from torch's random state; batch norm stays in evaluation mode.
    """
    layers = [module for module in model.modules() if isinstance(module, DROPOUT)]
    if not layers:
        raise ValueError("expected a network with dropout layers for MC-dropout, but got one without")
    total = torch.zeros((), device="cpu")  # combines with any device
    try:
        for layer in layers:
            layer.train()
        for _ in range(passes):
            total = total + torch.softmax(logits_of(model(image)).double(), dim=1)
    finally:
        for layer in layers:
            layer.eval()
    mean = total / passes
    return Output(probabilities=mean.float(), confidence=negative_entropy(mean.log()))


def aleatoric_loss(
    logits: Tensor, log_variance: Tensor, label: Tensor, noise: Tensor, *, mean_logits: bool = False
) -> Tensor:
    """-log of the mean over t of softmax(z + exp(s / 2) eps_t)_y, averaged over the batch (Kendall & Gal 2017).

    logits z and log_variance s are [b, K], label is [b], noise eps is [t, b, K]. The mean is a log-mean-exp, so that
    no softmax underflows. s is clipped at MAX_LOG_VARIANCE. Without a bound it diverges: loss and gradient grow with
    exp(s / 2) where all draws miss the label. With `mean_logits`, the cross-entropy of the mean of the drawn logits,
    which is how the paper's text reads.
    """
    sampled = logits + (log_variance.clamp_max(MAX_LOG_VARIANCE) / 2).exp() * noise
    if mean_logits:
        return cross_entropy(sampled.mean(dim=0), label)
    log_probability = torch.log_softmax(sampled, dim=-1)
    picked = log_probability.gather(2, label.expand(len(noise), -1).unsqueeze(2)).squeeze(2)
    return (math.log(len(noise)) - torch.logsumexp(picked, dim=0)).mean()


class AleatoricLoss(nn.Module):
    """`aleatoric_loss` with 50 new draws per call; the history records whether the logits were correct."""

    def __init__(self, history: CorrectnessHistory, *, mean_logits: bool = False) -> None:
        super().__init__()
        self.history = history
        self.mean_logits = mean_logits

    def forward(self, output: tuple[Tensor, Tensor], label: Tensor, index: Tensor) -> Tensor:
        logits, log_variance = (part.float() for part in output)
        self.history.update(index, are_correct(logits.detach(), label), label)
        noise = torch.randn((LOGIT_SAMPLES, *logits.shape), device=logits.device)
        return aleatoric_loss(logits, log_variance, label, noise, mean_logits=self.mean_logits)


METHODS: dict[str, Method] = {
    **{name: single_pass(facts) for name, facts in FACTS.items() if facts.confidence is not None},
    "mcdropout": Method(
        FACTS["mcdropout"],
        lambda history, weight: CorrectnessRankingLoss(history, weight=0.0, ignore_index=None),
        mc_predict,
    ),
    "aleatoric-mc": Method(FACTS["aleatoric-mc"], lambda history, weight: AleatoricLoss(history), mc_predict),
    "aleatoric-mc-mean-logits": Method(
        FACTS["aleatoric-mc-mean-logits"],
        lambda history, weight: AleatoricLoss(history, mean_logits=True),
        mc_predict,
    ),
}


def get(name: str) -> Method:
    """The method of that name, or an error that lists the names."""
    if name not in METHODS:
        raise ValueError(f"expected a method among {', '.join(METHODS)}, but got {name!r}")
    return METHODS[name]


def average(members: Sequence[Predictions]) -> Predictions:
    """Mean probability of AES snapshots or an ensemble's networks (in float64); one member is returned as is.

    Its confidence is the one that ranks a single member: entropy for crl-entropy, margin for crl-margin, else the
    maximum. The members must have predicted the same samples in the same order.
    """
    if not members:
        raise ValueError("expected at least one member to average, but got none")
    first = members[0]
    if len(members) == 1:
        return first
    for number, member in enumerate(members):
        other_keys = member.key is not None and first.key is not None and not _same(member.key, first.key)
        if other_keys or not _same(member.index, first.index) or not _same(member.label, first.label):
            raise ValueError(
                f"expected members that predict the same samples in the same order, but member {number} differs"
            )
        names, other = first.class_names, member.class_names
        if names and other and names != other:
            raise ValueError(
                "expected members with the same classes in the same order, but member"
                f" {number} has {', '.join(other[:5])}, and the first {', '.join(names[:5])}"
            )
    mean = _probabilities(first)
    for member in members[1:]:
        probabilities = _probabilities(member)
        if probabilities.shape != mean.shape:
            shapes = " and ".join(f"{rows} of {width} classes" for rows, width in (mean.shape, probabilities.shape))
            raise ValueError(f"expected members with equal numbers of predictions and classes, but got {shapes}")
        mean += probabilities
    mean /= len(members)
    confidence_of = confidence.get(facts_of(first.metadata.get("method", "")).confidence or "max_probability")
    return Predictions(
        probabilities=mean,
        confidence=confidence_of(torch.from_numpy(mean).log()).numpy(),
        label=first.label,
        index=first.index,
        key=first.key,
        other_keys=first.other_keys,
        metadata={**first.metadata, "members": str(len(members))},
    )


def _probabilities(member: Predictions) -> Array:
    """A new table in float64."""
    if member.logits is not None:
        # A copy: torch rejects negative strides and other byte orders.
        logits = torch.from_numpy(as_table(member.logits, "logits").astype(np.float64))
        return torch.softmax(logits, dim=1).numpy()
    if member.probabilities is None:
        raise ValueError("expected members with logits or probabilities, but got one without")
    return as_probabilities(member.probabilities.astype(np.float64))


def _same(one: Array | None, other: Array | None) -> bool:
    return (one is None and other is None) or (one is not None and other is not None and np.array_equal(one, other))

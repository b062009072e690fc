"""MC-dropout (Gal & Ghahramani 2016), alone and with aleatoric uncertainty (Kendall & Gal 2017).

To predict, both average the probabilities of 50 passes with active dropout and batch norm in evaluation mode. The
confidence is the negative entropy of that mean.
"""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from confrank.confidence import negative_entropy
from confrank.forms import are_correct
from confrank.history import CorrectnessHistory
from confrank.loss import CorrectnessRankingLoss
from confrank.method_facts import FACTS
from confrank.methods.method import Method, Output
from confrank.models import logits_of

DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
PASSES = 50
LOGIT_SAMPLES = 50
MAX_LOG_VARIANCE = 10.0  # a standard deviation of 148: the noise alone decides


@torch.no_grad()
def mc_predict(model: nn.Module, image: Tensor, passes: int = PASSES) -> Output:
    """Mean probability over passes with active dropout, drawn from torch's random state."""
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
    """-log of the mean over t of softmax(z + exp(s / 2) eps_t)_y, averaged over the batch.

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


def _cross_entropy(history: CorrectnessHistory, weight: float) -> nn.Module:
    return CorrectnessRankingLoss(history, weight=0.0, ignore_index=None)


def _aleatoric(history: CorrectnessHistory, weight: float, *, mean_logits: bool = False) -> nn.Module:
    return AleatoricLoss(history, mean_logits=mean_logits)


MC_DROPOUT = Method(FACTS["mcdropout"], _cross_entropy, mc_predict)
ALEATORIC_MC = Method(FACTS["aleatoric-mc"], _aleatoric, mc_predict)
ALEATORIC_MC_MEAN_LOGITS = Method(
    FACTS["aleatoric-mc-mean-logits"], partial(_aleatoric, mean_logits=True), mc_predict
)

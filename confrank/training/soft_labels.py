"""Soft labels: each label is mixed with what the network predicted for its sample in earlier epochs.

Self-distillation without a second network: the teacher is the moving average of each sample's predictions over the
epochs (Laine & Aila 2017), and its share of the label grows linearly (PS-KD, Kim et al. 2021). No further pass.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from confrank.phrasing import InputError

# The weight of the old mean when a new prediction comes in: the mean reaches back about ten epochs.
DECAY = 0.9


class SoftLabels(NamedTuple):
    """The mean earlier prediction of each sample [n, K], its share of a label, and how far a new one moves it.

    Create it with `soft_labels`; call `enter` at the start of each epoch. In a step, `of` gives the labels to train
    with, and `record` takes the logits. Nothing waits for the device, and no tensor is ever replaced.
    """

    mean: Tensor
    share: Tensor
    rate: Tensor

    def enter(self, epoch: int, epochs: int, final: float) -> None:
        """Set the shares of an epoch: none in the first, whose predictions start the mean, `final` in the last."""
        self.share.fill_(final * epoch / max(epochs - 1, 1))
        self.rate.fill_(1 - DECAY if epoch else 1.0)

    def of(self, label: Tensor, index: Tensor) -> Tensor:
        """The labels of samples as probabilities [b, K], given their classes [b] and positions in the set [b]."""
        hard = one_hot(label, self.mean.shape[1]).float()
        return torch.lerp(hard, self.mean.index_select(0, index), self.share)

    @torch.no_grad()
    def record(self, logits: Tensor, index: Tensor) -> None:
        """Move the means of samples towards a new prediction."""
        mean = self.mean.index_select(0, index)
        self.mean.index_copy_(0, index, torch.lerp(mean, torch.softmax(logits.float(), dim=1), self.rate))


def soft_labels(num_samples: int, num_classes: int, device: torch.device | None = None) -> SoftLabels:
    """Soft labels before the first epoch: 4 bytes per sample and class."""
    try:
        mean = torch.zeros(num_samples, num_classes, device=device)
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "allocate" not in str(error):
            raise  # on a GPU, fewer runs side by side may fit
        raise InputError(
            f"expected {4e-9 * num_samples * num_classes:,.1f} GB of memory for the soft labels of {num_samples:,}"
            f" samples and {num_classes:,} classes, but there is less",
            "set {soft_labels} to 0",
        ) from None
    return SoftLabels(mean, torch.zeros((), device=device), torch.ones((), device=device))


def soften(soft: SoftLabels, logits: Tensor, label: Tensor, index: Tensor, target: Tensor) -> Tensor:
    """What turns the cross-entropy with hard labels in a loss into that with `target`; also records the logits."""
    soft.record(logits.detach(), index)
    return cross_entropy(logits.float(), target) - cross_entropy(logits.float(), label)

"""Soft labels: each label is mixed with what the network predicted for its sample in earlier epochs.

Self-distillation without a second network: the teacher is the moving average of each sample's predictions over the
epochs (Laine & Aila 2017), and its share of the label grows linearly (PS-KD, Kim et al. 2021). No further pass.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from confrank.errors import InputError, ParameterError

# The weight of the old mean when a new prediction comes in: the mean reaches back about ten epochs.
DECAY = 0.9


class SoftLabels(nn.Module):
    """The mean earlier prediction of each sample [n, K], zeros before the first one, and its share of a label.

    Call `enter` at the start of each epoch. In a step, `of` gives the labels to train with, and `record` takes the
    logits. Nothing waits for the device, and no tensor is ever replaced. It takes 4 bytes per sample and class.
    """

    mean: Tensor
    share: Tensor

    def __init__(self, num_samples: int, num_classes: int, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.register_buffer("mean", _zeros(num_samples, num_classes, device))
        self.register_buffer("share", torch.zeros((), device=device))

    def enter(self, epoch: int, epochs: int, final: float) -> None:
        """Set the share of an epoch, counted from 0: none in the first, `final` in the last."""
        if not 0 <= final <= 1:
            raise ParameterError("final", f"to be a share in [0, 1], but got {final}")
        self.share.fill_(final * epoch / max(epochs - 1, 1))

    def of(self, label: Tensor, index: Tensor) -> Tensor:
        """The labels of samples as probabilities [b, K], given their classes [b] and positions in the set [b].

        A sample without an earlier prediction keeps its hard label.
        """
        hard, mean = one_hot(label, self.mean.shape[1]).float(), self.mean.index_select(0, index)
        return torch.where(_are_known(mean), torch.lerp(hard, mean, self.share), hard)

    @torch.no_grad()
    def record(self, logits: Tensor, index: Tensor) -> None:
        """Move the means of samples towards a new prediction; the first one of a sample becomes its mean."""
        new, mean = torch.softmax(logits.float(), dim=1), self.mean.index_select(0, index)
        self.mean.index_copy_(0, index, torch.where(_are_known(mean), torch.lerp(mean, new, 1 - DECAY), new))


def _are_known(mean: Tensor) -> Tensor:
    """Which rows hold a prediction, [b, 1]: its largest probability is not 0."""
    return mean.amax(1, keepdim=True) > 0


def _zeros(num_samples: int, num_classes: int, device: torch.device | str | None) -> Tensor:
    try:
        return torch.zeros(num_samples, num_classes, device=device)
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "allocate" not in str(error):
            raise  # on a GPU, fewer runs side by side may fit
        raise InputError(
            f"expected {4e-9 * num_samples * num_classes:,.1f} GB of memory for the soft labels of {num_samples:,}"
            f" samples and {num_classes:,} classes, but there is less",
            "set {soft_labels} to 0",
        ) from None


def soften(soft: SoftLabels, logits: Tensor, label: Tensor, index: Tensor, target: Tensor) -> Tensor:
    """What turns the cross-entropy with hard labels in a loss into that with `target`; also records the logits."""
    soft.record(logits.detach(), index)
    return cross_entropy(logits.float(), target) - cross_entropy(logits.float(), label)

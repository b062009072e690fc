"""Cross-entropy of a batch of any form, with weights of classes and samples."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from confrank.loss.forms import Batch
from confrank.loss.ranking import Reduction


def mean_cross_entropy(
    batch: Batch, class_weight: Tensor | None, label_smoothing: float, ignore_index: int | None
) -> Tensor:
    """The mean over the elements that are not ignored, 0 if all are; in few operations where torch has them."""
    fused = partial(functional.cross_entropy, batch.logits, batch.label, label_smoothing=label_smoothing)
    if batch.keep is None:
        if batch.binary:
            return functional.binary_cross_entropy_with_logits(batch.logits, batch.label)
        return fused(weight=class_weight)
    if batch.binary or class_weight is not None or ignore_index is None:
        losses, denominator = element_losses(batch, class_weight, label_smoothing)
        return reduced(losses, denominator, batch.keep, None, "mean")
    return fused(ignore_index=ignore_index, reduction="sum") / batch.keep.sum().clamp_min(1)


def element_losses(batch: Batch, class_weight: Tensor | None, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """The loss of each element, and its share in the denominator of the mean; both in the shape of the label."""
    label = batch.label if batch.keep is None else torch.where(batch.keep, batch.label, 0)
    if batch.binary:
        losses = functional.binary_cross_entropy_with_logits(batch.logits, label, reduction="none")
        return losses, torch.ones_like(losses)
    losses = functional.cross_entropy(
        batch.logits,
        label,
        weight=class_weight,
        label_smoothing=label_smoothing,
        reduction="none",
    )
    return losses, torch.ones_like(losses) if class_weight is None else class_weight[label]


def reduced(
    losses: Tensor, denominator: Tensor, keep: Tensor | None, sample_weight: Tensor | None, reduction: Reduction
) -> Tensor:
    """The weighted mean of the losses that are not ignored, 0 if all are; or [b], the mean of each sample."""
    if keep is not None:
        losses, denominator = torch.where(keep, losses, 0), torch.where(keep, denominator, 0)
    if reduction == "none":
        losses = _mean_of_sample(losses, keep)
        return losses if sample_weight is None else losses * sample_weight
    if sample_weight is not None:
        weight = sample_weight.reshape(-1, *[1] * (losses.ndim - 1))
        losses, denominator = losses * weight, denominator * weight
    total = denominator.sum()
    return losses.sum() / torch.where(total == 0, 1, total)


def _mean_of_sample(losses: Tensor, keep: Tensor | None) -> Tensor:
    if losses.ndim == 1:
        return losses
    if keep is None:
        return losses.flatten(1).mean(dim=1)
    return losses.flatten(1).sum(dim=1) / keep.flatten(1).sum(dim=1).clamp_min(1)

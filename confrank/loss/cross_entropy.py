"""Cross-entropy of a batch of any form, with weights of classes."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from confrank.loss.forms import Batch


def mean_cross_entropy(
    batch: Batch, class_weight: Tensor | None, label_smoothing: float, ignore_index: int | None
) -> Tensor:
    """The mean over the elements that are not ignored, 0 if all are; in few operations where torch has them."""
    fused = partial(functional.cross_entropy, batch.logits, batch.label, label_smoothing=label_smoothing)
    if batch.keep is None:
        if batch.binary:
            return functional.binary_cross_entropy_with_logits(batch.logits, batch.label)
        return fused(weight=class_weight)
    if not batch.binary and class_weight is None and ignore_index is not None:
        return fused(ignore_index=ignore_index, reduction="sum") / batch.keep.sum().clamp_min(1)
    label = torch.where(batch.keep, batch.label, 0)
    if batch.binary:
        losses = functional.binary_cross_entropy_with_logits(batch.logits, label, reduction="none")
        share = torch.ones_like(losses)
    else:
        losses = functional.cross_entropy(
            batch.logits, label, weight=class_weight, label_smoothing=label_smoothing, reduction="none"
        )
        share = torch.ones_like(losses) if class_weight is None else class_weight[label]
    losses, share = torch.where(batch.keep, losses, 0), torch.where(batch.keep, share, 0)
    total = share.sum()
    return losses.sum() / torch.where(total == 0, 1, total)

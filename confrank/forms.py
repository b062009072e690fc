"""The forms of a batch: one class, one logit, several labels, or a label per element -> one value per sample.

There are two layouts. Classes: logits [b, K, ...] and class numbers [b, ...]. Binary: logits and labels of the same
shape [b, ...], each label 0 or 1. What follows the batch dimension of the labels are the elements of a sample.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from confrank.confidence import Confidence
from confrank.history import SQUEEZED, can_read, is_whole


class Batch(NamedTuple):
    """Logits in at least float32, and labels: int64 class numbers, or 0 and 1 in the type of the logits if `binary`.

    `keep` says which labels are not ignored, in their shape; `keep_sample` [b], which samples have such a label. Both
    are None if it is known that none is ignored.
    """

    logits: Tensor
    label: Tensor
    keep: Tensor | None
    keep_sample: Tensor | None
    binary: bool


def read_batch(logits: Tensor, label: Tensor, ignore_index: int | None) -> Batch:
    """The batch in its layout, which follows from the shapes and types alone; an error if they fit none."""
    if logits.ndim == 0 or not logits.is_floating_point():
        raise ValueError(
            "expected floating-point logits of shape [batch, classes], [batch, classes, ...] or, for two classes,"
            f" [batch], but got {tuple(logits.shape)} of {logits.dtype}"
            + (f"; {SQUEEZED}" if logits.ndim == 0 else "")
        )
    one_logit = logits.ndim == 1 or (logits.ndim == 2 and logits.shape[1] == 1)
    if one_logit and label.shape not in ((len(logits),), (len(logits), 1)):
        raise ValueError(
            f"expected one label 0 or 1 for each of the {len(logits)} logits, but got shape {tuple(label.shape)}"
        )
    binary = one_logit or (label.shape == logits.shape and not is_whole(label))
    if not binary:
        of_classes = label.dtype == torch.int64 and label.shape == (len(logits), *logits.shape[2:])
        if logits.shape[1] < 2 or not of_classes:
            raise ValueError(_misfit(logits, label))
    wide = logits if logits.dtype == torch.float64 else logits.float()
    if one_logit:
        wide, label = wide.flatten(), label.flatten()
    if binary:
        label = label.to(wide.dtype)
    keep = _not_ignored(label, ignore_index, 2 if binary else logits.shape[1])
    if binary and not can_read(label):  # a label that is neither 0 nor 1 becomes NaN, and so does its loss
        fine = (label == 0) | (label == 1)
        label = torch.where(fine if keep is None else fine | ~keep, label, torch.nan)
    keep_sample = keep if keep is None or keep.ndim == 1 else keep.flatten(1).any(dim=1)
    return Batch(wide, label, keep, keep_sample, binary)


def class_logits(batch: Batch) -> Tensor:
    """The logits with the classes of each label last, [..., K]; a single logit z has the two-class logits [0, z]."""
    logits = batch.logits
    if batch.binary:
        return torch.stack((torch.zeros_like(logits), logits), dim=-1)
    return logits.movedim(1, -1) if logits.ndim > 2 else logits


def confidence_of(batch: Batch, confidence: Confidence) -> Tensor:
    """The confidence of each sample: the mean over its elements that are not ignored. -> [b]"""
    logits = class_logits(batch)
    values = confidence(logits)
    if not isinstance(values, Tensor) or values.shape != logits.shape[:-1]:
        raise ValueError(
            f"expected confidence to turn logits {tuple(logits.shape)} into a tensor {tuple(logits.shape[:-1])},"
            f" but got {tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__};"
            " the last dimension holds the classes"
        )
    return values if values.ndim == 1 else _total(values, batch.keep) / _num_elements(batch).clamp_min(1)


def events_of(batch: Batch, resolution: int) -> Tensor:
    """The share of right elements among those of each sample not ignored, in units of 1/resolution. -> [b] int32

    Shares are rounded to the nearest unit, halves up, in integers: the same on every device.
    """
    logits, label = batch.logits.detach(), batch.label
    right = ((logits > 0) == (label > 0.5)) & ~logits.isnan() if batch.binary else are_correct(logits, label)
    if right.ndim == 1:
        units = right.to(torch.int32)
        return units if resolution == 1 else units * resolution
    elements = _num_elements(batch).clamp_min(1)
    return ((2 * resolution * _total(right, batch.keep) + elements) // (2 * elements)).to(torch.int32)


def are_correct(logits: Tensor, label: Tensor) -> Tensor:
    """Whether logits [b, K, ...] are largest at the label [b, ...]; never true where one of them is NaN.

    >>> are_correct(torch.tensor([[3.0, 1.0], [float("nan"), 1.0]]), torch.tensor([0, 0])).tolist()
    [True, False]
    """
    largest, prediction = logits.max(dim=1)
    return (prediction == label) & ~largest.isnan()


def label_of_sample(batch: Batch) -> Tensor | None:
    """A number that says which labels a sample has, [b] int64 >= 0, or None for a label per element.

    Crops and flips change the labels of elements from epoch to epoch, so they say nothing about the index.
    """
    if batch.label.ndim == 1:
        return batch.label.long()
    if not batch.binary or batch.label.ndim > 2:
        return None
    hashes = _hashes(batch.label.shape[1], batch.label.device)
    return _total(batch.label.long() * hashes, batch.keep) & (2**62 - 1)


def look_like_probabilities(batch: Batch) -> bool:
    """Whether class logits are within 0..1 and sum to 1, as if the network ended in softmax.

    The first element of each of several samples decides. One-hot rows are not taken for probabilities.
    """
    rows = batch.logits.detach()
    if batch.binary or len(rows) < 2 or not rows.numel():
        return False
    while rows.ndim > 2:
        rows = rows[..., 0]
    if abs(rows[0].sum().item() - 1) > 1e-5:  # most batches end here
        return False
    inside = (rows >= 0) & (rows < 1)
    return bool(inside.all() and ((rows.sum(dim=1) - 1).abs() < 1e-5).all())


def _not_ignored(label: Tensor, ignore_index: int | None, num_classes: int) -> Tensor | None:
    """Which labels are not ignored; None if it is known that none is ignored."""
    if not label.numel():  # samples without an element are ignored too
        return torch.ones_like(label, dtype=torch.bool)
    if can_read(label):
        low, high = (bound.item() for bound in label.aminmax())
        if ignore_index is None or not low <= ignore_index <= high:
            if label.is_floating_point() or low < 0 or high >= num_classes:
                _check_values(label, num_classes)
            return None
        _check_values(label[label != ignore_index], num_classes)
    return None if ignore_index is None else label != ignore_index


def _check_values(label: Tensor, num_classes: int) -> None:
    binary = label.is_floating_point()
    wrong = label[(label != 0) & (label != 1) if binary else (label < 0) | (label >= num_classes)]
    if not len(wrong):
        return
    if binary:
        remedy = "convert two other values to 0 and 1, e.g. -1 and 1 with label > 0"
        if 0 < wrong[0] < 1:
            remedy = (
                "for soft labels (mixup, cutmix) add the ranking term with class indices to your loss:"
                " my_loss(logits, soft_label) + weight * CorrectnessRanking(history)(clean_logits, label, index)"
            )
        raise ValueError(
            f"expected the labels 0 and 1 for logits of the same shape, but got {wrong[0].item():g}; {remedy}"
        )
    raise ValueError(
        f"expected class indices within 0..{num_classes - 1} as label, but got {wrong[0].item()};"
        " set ignore_index for labels to ignore"
    )


def _misfit(logits: Tensor, label: Tensor) -> str:
    """What is wrong with labels that are neither class numbers of these logits nor 0 and 1 in their shape."""
    if logits.shape[1] < 2:
        converted = "label.float()" if label.shape == logits.shape else "label.unsqueeze(1).float()"
        return (
            f"expected logits with at least 2 classes in their second dimension, but got {tuple(logits.shape)};"
            f" for one logit per element, give the labels 0 and 1 the shape of the logits, as floats: {converted}"
        )
    size, num_classes, *elements = logits.shape
    expected = (size, *elements)
    if label.ndim == 0:
        remedy = SQUEEZED
    elif label.shape == expected:
        remedy = "convert them with label.long()"
    elif label.shape == (size, 1, *elements):
        remedy = f"convert them with label.squeeze(1){'' if label.dtype == torch.int64 else '.long()'}"
    elif label.shape == logits.shape:
        remedy = "convert multi-label targets with label.float(), and one-hot labels with label.argmax(1)"
    elif label.shape == logits.shape[:-1]:
        remedy = "the classes come second: logits.movedim(-1, 1)"
    elif label.shape == (*expected, num_classes):
        remedy = "convert one-hot labels with label.argmax(-1)"
    elif 2 < logits.ndim == label.ndim + 1:
        remedy = "resize the logits to the size of the labels, e.g. with torch.nn.functional.interpolate"
    else:
        remedy = (
            "targets 0 and 1 for each logit have the shape of the logits; for other targets add the ranking term to"
            " your loss: my_loss(logits, target) + weight * CorrectnessRanking(history)(logits, class_index, index)"
        )
    return (
        f"expected label to hold class indices, an int64 tensor of shape {expected} for logits"
        f" {tuple(logits.shape)}, but got {tuple(label.shape)} of {label.dtype}; {remedy}"
    )


def _num_elements(batch: Batch) -> Tensor:
    """How many elements of each sample are not ignored. -> [b] int64"""
    label, keep = batch.label, batch.keep
    if keep is None:
        return torch.full((len(label),), label.shape[1:].numel(), device=label.device)
    return keep.flatten(1).sum(dim=1)


def _total(values: Tensor, keep: Tensor | None) -> Tensor:
    """The sum over the elements of each sample where `keep` is true. [b, ...] -> [b]"""
    values = values if keep is None else torch.where(keep, values, 0)
    return values.flatten(1).sum(dim=1)


def _hashes(number: int, device: torch.device) -> Tensor:
    """Integers whose sums over two different sets of positions practically never agree: splitmix64. [number] int64"""
    values = torch.arange(1, number + 1, device=device) * -0x61C8864680B583EB
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        values = (values ^ (values >> shift)) * factor
    return values ^ (values >> 31)

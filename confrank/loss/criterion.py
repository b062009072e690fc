"""The loss as a module: the ranking term alone, or added to cross-entropy or another loss."""

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Self, get_args

import torch
from torch import Tensor, nn

from confrank import confidence as confidences
from confrank.confidence import Confidence, ConfidenceName
from confrank.history import CorrectnessHistory, check_tensor
from confrank.loss.cross_entropy import element_losses, mean_cross_entropy, reduced
from confrank.loss.forms import (
    Batch,
    can_read,
    confidence_of,
    events_of,
    label_of_sample,
    look_like_probabilities,
    read_batch,
    samples_kept,
)
from confrank.loss.ranking import Reduction, Ring, ranking_loss, shared_ranking_loss

BaseLoss = Callable[[Tensor, Tensor], Tensor]
PROBABILITIES = (
    "expected logits, but got values within 0..1 that sum to 1 for every sample, like probabilities; pass the outputs"
    " of the network before softmax"
)


class LossParts(NamedTuple):
    """The loss and its two parts: total = base + weight x ranking."""

    total: Tensor
    base: Tensor
    ranking: Tensor


class CorrectnessRanking(nn.Module):
    """The ranking term alone, to be added to any loss; each training call also records the events in `history`.

    The form of a batch follows from its shapes:

    - logits [b, K], label [b] int64: one class per sample;
    - logits [b] or [b, 1], label of 0 and 1: one logit for two classes;
    - logits [b, K], label [b, K] of 0 and 1, as floats or booleans: several labels per sample;
    - logits [b, K, ...], label [b, ...] int64: a class per element (pixel, token);
    - logits [b, K, ...], label of the same shape: several labels per element.

    With several labels per sample, its confidence is the mean over them and its event is the share of them that is
    right; this needs a history with a resolution, `CorrectnessHistory(num_samples, resolution=1000)`.

    `confidence` is "max_probability", "negative_entropy", "margin" or a function of logits whose last dimension holds
    the classes: [..., K] -> [...]; a single logit z is given to it as [0, z]. The term uses the rates from before the
    call. Elements with the label `ignore_index` do not count; samples without others are neither paired nor recorded
    (`ignore_index=None` ignores none and is a little faster). With `reduction="none"` the result is [b]: the hinge of
    each sample and the next one. `stretched` widens the rates so that the worst sample has 0, as in the code
    published with the paper. Nothing is recorded in evaluation mode or with `record=False`; use the latter for
    passes that must not count. For SAM, see `confrank.training.Sharpness`.

    With several processes, `ring=SharedRing()` pairs the samples of all of them as one batch; without it, each
    process pairs its own.

    >>> history = CorrectnessHistory(100)
    >>> ranking = CorrectnessRanking(history)
    >>> logits, label = torch.tensor([[3.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])
    >>> loss = torch.nn.functional.cross_entropy(logits, label) + 0.5 * ranking(logits, label, torch.tensor([17, 42]))
    >>> history.rate(torch.tensor([17, 42])).tolist()
    [1.0, 0.0]
    """

    def __init__(
        self,
        history: CorrectnessHistory,
        confidence: ConfidenceName | Confidence = "max_probability",
        *,
        ignore_index: int | None = -100,
        stretched: bool = False,
        reduction: Reduction = "mean",
        ring: Ring | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(history, CorrectnessHistory):
            raise ValueError(
                f"expected history to be a CorrectnessHistory, but got {history!r};"
                " make one with CorrectnessHistory(len(train_set))"
            )
        if reduction not in get_args(Reduction):
            raise ValueError(f"expected reduction to be 'mean' or 'none', but got {reduction!r}")
        if ring is not None and reduction == "none":
            raise ValueError(
                "expected reduction to be 'mean' with a ring over several processes, but got 'none';"
                " a pair that spans two processes belongs to neither"
            )
        self.history = history
        self.confidence = confidence if callable(confidence) else confidences.get(confidence)
        self.confidence_name = confidence if isinstance(confidence, str) else _name(confidence)
        self.ignore_index = ignore_index
        self.stretched = stretched
        self.reduction: Reduction = reduction
        self.ring = ring

    def forward(self, logits: Tensor, label: Tensor, index: Tensor, *, record: bool = True) -> Tensor:
        """The ranking term of a batch and its data set indices [b]: a scalar, or [b] without reduction."""
        batch = self._read(logits, label, index)
        ranking = self._rank(batch, index)
        if record:
            self._record(batch, index)
        return ranking

    if TYPE_CHECKING:  # torch types every call of a module as Any, and pyright `__call__ = forward` too

        def __call__(self, logits: Tensor, label: Tensor, index: Tensor, *, record: bool = True) -> Tensor: ...

    def train(self, mode: bool = True) -> Self:
        """Set the mode; evaluation mode leaves the history alone, since another criterion may share it."""
        others = self.history.training
        super().train(mode)
        self.history.train(mode or others)
        return self

    def extra_repr(self) -> str:
        stretched = ", stretched=True" if self.stretched else ""
        return f"confidence={self.confidence_name!r}{stretched}"

    def _read(self, logits: Tensor, label: Tensor, index: Tensor) -> Batch:
        self.history._check_index(index)
        for name, value in (("logits", logits), ("label", label)):
            check_tensor(value, name)
        sizes = [value.shape[0] if value.ndim else 1 for value in (logits, label, index)]
        if not sizes[0] == sizes[1] == sizes[2]:
            raise ValueError(
                f"expected logits, label and index of one batch size, but got {sizes[0]}, {sizes[1]} and {sizes[2]}"
            )
        batch = read_batch(logits, label, self.ignore_index)
        if batch.label.ndim > 1 and self.history.resolution == 1:
            raise ValueError(
                f"expected a history that counts shares for labels of shape {tuple(label.shape)}, but got one that"
                " counts right and wrong; create it with CorrectnessHistory(len(train_set), resolution=1000), or use"
                " label.argmax(1) if they are one-hot labels of one class"
            )
        return batch

    def _rank(self, batch: Batch, index: Tensor) -> Tensor:
        rate = self.history._rate(index, stretched=self.stretched)
        confidence, keep = confidence_of(batch, self.confidence), samples_kept(batch)
        if self.ring is None:
            return ranking_loss(confidence, rate, keep, reduction=self.reduction)
        if keep is None and self.ignore_index is not None:  # another process may have labels to ignore
            keep = torch.ones_like(index, dtype=torch.bool)
        return shared_ranking_loss(confidence, rate, keep, self.ring)

    def _record(self, batch: Batch, index: Tensor) -> None:
        if not self.training:
            return
        if can_read(batch.logits) and look_like_probabilities(batch):
            warnings.warn(PROBABILITIES, stacklevel=2)
        events = events_of(batch, self.history.resolution)
        self.history._update(index, events, label_of_sample(batch), samples_kept(batch))


class CorrectnessRankingLoss(CorrectnessRanking):
    """Cross-entropy + weight x ranking term; each training call also records the events in `history`.

    The forms of a batch, `confidence`, `ignore_index`, `stretched`, `ring` and `record=False` are those of
    `CorrectnessRanking`. Where labels are 0 and 1, cross-entropy is the binary one. `class_weight`, `label_smoothing`
    and `ignore_index` mean what they mean in `torch.nn.CrossEntropyLoss`, except that an empty batch has loss 0, and
    so has one in which every label is ignored. The first two are for class labels only.

    `base` replaces cross-entropy: a function of logits and label that returns the mean, or one loss per sample or
    element. Labels of 0 and 1 are given to it as floats, and one logit per sample as [b]. It has to ignore class
    labels by itself, as `torch.nn.CrossEntropyLoss` does (NaN if all are ignored), and so labels of 0 and 1, unless
    it returns one loss for each of them. With `reduction="none"` the loss is [b]: the base loss of each
    sample (the mean over its elements) plus weight x the hinge of this sample and the next one.

    >>> history = CorrectnessHistory(100)
    >>> criterion = CorrectnessRankingLoss(history, confidence="margin", weight=0.5)
    >>> logits, label = torch.tensor([[3.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])
    >>> loss = criterion(logits, label, index=torch.tensor([17, 42]))
    >>> history.rate(torch.tensor([17, 42])).tolist()
    [1.0, 0.0]
    >>> total, base, ranking = criterion.parts(logits, label, index=torch.tensor([17, 42]))
    """

    class_weight: Tensor | None

    def __init__(
        self,
        history: CorrectnessHistory,
        confidence: ConfidenceName | Confidence = "max_probability",
        weight: float = 1.0,
        *,
        base: BaseLoss | None = None,
        class_weight: Tensor | None = None,
        label_smoothing: float = 0.0,
        ignore_index: int | None = -100,
        stretched: bool = False,
        reduction: Reduction = "mean",
        ring: Ring | None = None,
    ) -> None:
        super().__init__(
            history, confidence, ignore_index=ignore_index, stretched=stretched, reduction=reduction, ring=ring
        )
        if isinstance(weight, str) or weight is None or not 0 <= weight < math.inf:
            raise ValueError(f"expected weight to be a finite number >= 0, but got {weight!r}")
        if base is not None and not callable(base):
            raise ValueError(f"expected base to be a function of logits and label, but got {base!r}")
        if base is not None and (class_weight is not None or label_smoothing):
            raise ValueError(
                "expected class_weight and label_smoothing for cross-entropy, but got base too; set them on base"
            )
        if class_weight is not None:
            check_tensor(class_weight, "class_weight")
        if class_weight is not None and not (class_weight >= 0).all():
            raise ValueError(f"expected class weights of at least 0, but got {class_weight.min().item():g}")
        self.weight = float(weight)
        self.base = base
        self.register_buffer("class_weight", class_weight)
        self.label_smoothing = label_smoothing

    def forward(
        self,
        logits: Tensor,
        label: Tensor,
        index: Tensor,
        *,
        sample_weight: Tensor | None = None,
        record: bool = True,
    ) -> Tensor:
        """The loss of a batch and its data set indices [b]: a scalar, or [b] without reduction.

        `sample_weight` [b] weights the base loss only: 2 counts as two equal samples.
        """
        batch = self._read(logits, label, index)
        loss = self._base_loss(batch, sample_weight)
        if self.weight:
            loss = torch.add(loss, self._rank(batch, index), alpha=self.weight)
        if record:
            self._record(batch, index)
        return loss

    if TYPE_CHECKING:

        def __call__(
            self,
            logits: Tensor,
            label: Tensor,
            index: Tensor,
            *,
            sample_weight: Tensor | None = None,
            record: bool = True,
        ) -> Tensor: ...

    def parts(
        self,
        logits: Tensor,
        label: Tensor,
        index: Tensor,
        *,
        sample_weight: Tensor | None = None,
        record: bool = True,
    ) -> LossParts:
        """Instead of a call of the loss, if you want to log its parts: (total, base, ranking)."""
        batch = self._read(logits, label, index)
        base, ranking = self._base_loss(batch, sample_weight), self._rank(batch, index)
        if record:
            self._record(batch, index)
        return LossParts(torch.add(base, ranking, alpha=self.weight) if self.weight else base, base, ranking)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, weight={self.weight}"

    def _base_loss(self, batch: Batch, sample_weight: Tensor | None) -> Tensor:
        if sample_weight is not None:
            _check_weights(sample_weight, len(batch.logits))
        if not len(batch.logits):  # a mean would be NaN
            return batch.logits.sum() if self.reduction == "mean" else batch.logits.flatten()
        if self.base is not None:
            return self._custom_base(self.base, batch, sample_weight)
        if batch.binary and (self.class_weight is not None or self.label_smoothing):
            raise ValueError(
                "expected class_weight and label_smoothing with class indices only, but got labels 0 and 1;"
                " use base=torch.nn.BCEWithLogitsLoss(pos_weight=...)"
            )
        class_weight = None if self.class_weight is None else self.class_weight.to(batch.logits.dtype)
        if sample_weight is None and self.reduction == "mean":
            return mean_cross_entropy(batch, class_weight, self.label_smoothing, self.ignore_index)
        losses, denominator = element_losses(batch, class_weight, self.label_smoothing)
        return reduced(losses, denominator, batch.keep, sample_weight, self.reduction)

    def _custom_base(self, base: BaseLoss, batch: Batch, sample_weight: Tensor | None) -> Tensor:
        losses, shapes = base(batch.logits, batch.label), ((len(batch.label),), batch.label.shape)
        if not isinstance(losses, Tensor):
            raise ValueError(f"expected base to return a tensor, but got {losses!r}")
        if isinstance(base, nn.BCEWithLogitsLoss) and losses.shape != batch.label.shape:
            losses = _of_complete_labels(losses, batch)
        if losses.ndim == 0 and self.reduction == "mean" and sample_weight is None:
            return losses
        if losses.shape not in shapes:
            raise ValueError(
                f"expected base to return one loss per sample, {shapes[0]}, for sample_weight or reduction='none',"
                f" but got shape {tuple(losses.shape)}; most losses do with reduction='none'"
            )
        keep = samples_kept(batch) if losses.ndim == 1 else batch.keep
        return reduced(losses, torch.ones_like(losses), keep, sample_weight, self.reduction)


def _of_complete_labels(losses: Tensor, batch: Batch) -> Tensor:
    """The loss of a base that cannot leave out single labels: an error if one is ignored, or NaN if unread."""
    if batch.keep is None:
        return losses
    complete = batch.keep.all()
    if not can_read(batch.label):
        return losses * torch.where(complete, 1.0, torch.nan)
    if not complete:
        raise ValueError(
            f"expected base to return one loss per label, {tuple(batch.label.shape)}, since some labels are ignored,"
            f" but got shape {tuple(losses.shape)}; most losses do with reduction='none'"
        )
    return losses


def _check_weights(sample_weight: Tensor, size: int) -> None:
    check_tensor(sample_weight, "sample_weight")
    if sample_weight.shape != (size,):
        raise ValueError(f"expected sample_weight of shape {(size,)}, but got {tuple(sample_weight.shape)}")
    if sample_weight.device.type == "cpu" and not torch.compiler.is_compiling():
        wrong = sample_weight[~((sample_weight >= 0) & sample_weight.isfinite())]
        if len(wrong):
            raise ValueError(f"expected sample_weight to be finite and >= 0, but got {wrong[0].item()}")


def _name(function: Confidence) -> str:
    return getattr(function, "__name__", type(function).__name__)

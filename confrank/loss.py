"""The Correctness Ranking Loss: confidences should be ordered as the correctness rates are."""

import math
import warnings
from typing import TYPE_CHECKING, Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from confrank import confidence as confidences
from confrank.confidence import Confidence, ConfidenceName
from confrank.forms import Batch, confidence_of, events_of, label_of_sample, look_like_probabilities, read_batch
from confrank.history import CorrectnessHistory, can_read, check_tensor


class Ring(Protocol):
    """Joins the batches of several processes, e.g. `confrank.SharedRing`.

    Values [k, b] of this process -> those of all processes [k, n], one process after the other, and the column where
    this process starts.
    """

    def __call__(self, values: Tensor) -> tuple[Tensor, int]: ...


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
    (`ignore_index=None` ignores none and is a little faster). `stretched` widens the rates so that the worst sample
    has 0, as in the code published with the paper. Nothing is recorded in evaluation mode or with `record=False`; use
    the latter for passes that must not count. For SAM, see `confrank.training.Sharpness`.

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
        ring: Ring | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(history, CorrectnessHistory):
            raise ValueError(
                f"expected history to be a CorrectnessHistory, but got {history!r};"
                " make one with CorrectnessHistory(len(train_set))"
            )
        self.history = history
        self.confidence = confidence if callable(confidence) else confidences.get(confidence)
        self.confidence_name = (
            confidence if isinstance(confidence, str) else getattr(confidence, "__name__", type(confidence).__name__)
        )
        self.ignore_index = ignore_index
        self.stretched = stretched
        self.ring = ring

    def forward(self, logits: Tensor, label: Tensor, index: Tensor, *, record: bool = True) -> Tensor:
        """The loss of a batch and its data set indices [b], a scalar."""
        self.history._check_index(index)
        check_tensor(logits, "logits")
        check_tensor(label, "label")
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
        loss = self._loss(batch, index)  # with the rates from before this batch
        if record and self.training:
            if can_read(batch.logits) and look_like_probabilities(batch):
                warnings.warn(
                    "expected logits, but got values within 0..1 that sum to 1 for every sample, like probabilities;"
                    " pass the outputs of the network before softmax",
                    stacklevel=1,
                )
            events = events_of(batch, self.history.resolution)
            self.history._update(index, events, label_of_sample(batch), batch.keep_sample)
        return loss

    if TYPE_CHECKING:  # torch types every call of a module as Any, and pyright `__call__ = forward` too

        def __call__(self, logits: Tensor, label: Tensor, index: Tensor, *, record: bool = True) -> Tensor: ...

    def _loss(self, batch: Batch, index: Tensor) -> Tensor:
        rate = self.history._rate(index, stretched=self.stretched)
        confidence, keep = confidence_of(batch, self.confidence), batch.keep_sample
        if self.ring is None:
            return ranking_loss(confidence, rate, keep)
        if keep is None and self.ignore_index is not None:  # another process may have labels to ignore
            keep = torch.ones_like(index, dtype=torch.bool)
        return shared_ranking_loss(confidence, rate, keep, self.ring)

    def train(self, mode: bool = True) -> Self:
        """Set the mode; evaluation mode leaves the history alone, since another criterion may share it."""
        others = self.history.training
        super().train(mode)
        self.history.train(mode or others)
        return self

    def extra_repr(self) -> str:
        stretched = ", stretched=True" if self.stretched else ""
        return f"confidence={self.confidence_name!r}{stretched}"


class CorrectnessRankingLoss(CorrectnessRanking):
    """Cross-entropy + weight x ranking term; each training call also records the events in `history`.

    The forms of a batch, `confidence`, `ignore_index`, `stretched`, `ring` and `record=False` are those of
    `CorrectnessRanking`. Where labels are 0 and 1, cross-entropy is the binary one. `class_weight`, `label_smoothing`
    and `ignore_index` mean what they mean in `torch.nn.CrossEntropyLoss`, except that an empty batch has loss 0, and
    so has one in which every label is ignored. The first two are for class labels only.

    Any other loss is a sum: `my_loss(logits, label) + weight * CorrectnessRanking(history)(logits, label, index)`.

    >>> history = CorrectnessHistory(100)
    >>> criterion = CorrectnessRankingLoss(history, confidence="margin", weight=0.5)
    >>> logits, label = torch.tensor([[3.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])
    >>> loss = criterion(logits, label, index=torch.tensor([17, 42]))
    >>> history.rate(torch.tensor([17, 42])).tolist()
    [1.0, 0.0]
    """

    class_weight: Tensor | None

    def __init__(
        self,
        history: CorrectnessHistory,
        confidence: ConfidenceName | Confidence = "max_probability",
        weight: float = 1.0,
        *,
        class_weight: Tensor | None = None,
        label_smoothing: float = 0.0,
        ignore_index: int | None = -100,
        stretched: bool = False,
        ring: Ring | None = None,
    ) -> None:
        super().__init__(history, confidence, ignore_index=ignore_index, stretched=stretched, ring=ring)
        if isinstance(weight, str) or weight is None or not 0 <= weight < math.inf:
            raise ValueError(f"expected weight to be a finite number >= 0, but got {weight!r}")
        if class_weight is not None:
            check_tensor(class_weight, "class_weight")
        if class_weight is not None and not (class_weight >= 0).all():
            raise ValueError(f"expected class weights of at least 0, but got {class_weight.min().item():g}")
        self.weight = float(weight)
        self.register_buffer("class_weight", class_weight)
        self.label_smoothing = label_smoothing

    def _loss(self, batch: Batch, index: Tensor) -> Tensor:
        loss = self._cross_entropy(batch)
        if self.weight:
            loss = torch.add(loss, super()._loss(batch, index), alpha=self.weight)
        return loss

    def _cross_entropy(self, batch: Batch) -> Tensor:
        """The mean over the labels that are not ignored, 0 if there is none, in as few operations as torch has."""
        logits, label, keep = batch.logits, batch.label, batch.keep
        if not label.numel():  # a mean would be NaN
            return logits.sum()
        if batch.binary and (self.class_weight is not None or self.label_smoothing):
            raise ValueError(
                "expected class_weight and label_smoothing with class indices only, but got labels 0 and 1; add the"
                " ranking term to a loss that has them: torch.nn.BCEWithLogitsLoss(pos_weight=...)(logits, label) +"
                " weight * CorrectnessRanking(history)(logits, label, index)"
            )
        class_weight = None if self.class_weight is None else self.class_weight.to(logits.dtype)
        smoothing = self.label_smoothing
        if keep is None:
            if batch.binary:
                return functional.binary_cross_entropy_with_logits(logits, label)
            return functional.cross_entropy(logits, label, class_weight, label_smoothing=smoothing)
        if not batch.binary and class_weight is None:
            assert self.ignore_index is not None
            total = functional.cross_entropy(
                logits, label, ignore_index=self.ignore_index, label_smoothing=smoothing, reduction="sum"
            )
            return total / keep.sum().clamp_min(1)
        known = torch.where(keep, label, 0)
        if class_weight is None:
            losses = functional.binary_cross_entropy_with_logits(logits, known, reduction="none")
            share = torch.ones_like(losses)
        else:
            losses = functional.cross_entropy(
                logits, known, class_weight, label_smoothing=smoothing, reduction="none"
            )
            share = class_weight[known]
        losses, share = torch.where(keep, losses, 0), torch.where(keep, share, 0)
        total = share.sum()
        return losses.sum() / torch.where(total == 0, 1, total)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, weight={self.weight}"


def ranking_loss(confidence: Tensor, rate: Tensor, keep: Tensor | None = None) -> Tensor:
    """Mean of max(0, -sign(c_i - c_j)(k_i - k_j) + |c_i - c_j|) over neighbouring pairs (the paper's eq. 2).

    Sample i is paired with i + 1 and the last with the first; `confidence` and `rate` are [b]. With `keep` [b], the
    loss is that of a batch of the samples where `keep` is true; no shape depends on the data.

    >>> ranking_loss(torch.tensor([0.75, 0.25]), torch.tensor([0.5, 1.0])).item()
    1.0
    """
    if confidence.ndim != 1 or rate.shape != confidence.shape:
        raise ValueError(
            "expected confidence and rate of one shape [b], but got"
            f" {tuple(confidence.shape)} and {tuple(rate.shape)}"
        )
    rate = rate.to(confidence.dtype)
    with torch.no_grad():
        pull, constant = _pairs(confidence, rate, keep)
    return torch.dot(pull, confidence) + constant


def shared_ranking_loss(confidence: Tensor, rate: Tensor, keep: Tensor | None, ring: Ring) -> Tensor:
    """`ranking_loss` of a batch that is spread over processes, as one ring; `keep` is None in all processes or none.

    The value is that of the complete batch. The gradient is this process's share of it times n / b, for b of the n
    samples. So the mean over processes, weighted by their numbers of samples, is the gradient of the complete batch.
    """
    with torch.no_grad():
        rows = [confidence, rate.to(confidence.dtype)]
        rows += [] if keep is None else [keep.to(confidence.dtype)]
        every, start = ring(torch.stack(rows))
        pull, constant = _pairs(every[0], every[1], None if keep is None else every[2] > 0)
        value = torch.dot(pull, every[0]) + constant
        mine = pull[start : start + len(confidence)] * (every.shape[1] / max(len(confidence), 1))
    part = torch.dot(mine, confidence)
    return value + (part - part.detach())


def _pairs(confidence: Tensor, rate: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
    """The loss is piecewise linear in the confidences: its gradient (`pull`, [b]) and its constant term.

    With d = c_i - c_j and s = sign(d), the hinge is max(0, s (d - (k_i - k_j))), linear where it is active.
    Autograd then records one dot product instead of ten small operations.
    """
    if keep is None:
        gap, step = rate - rate.roll(-1), confidence - confidence.roll(-1)
    else:
        partner = _next_selected(keep)
        gap, step = rate - rate[partner], confidence - confidence[partner]
    sign = gap.sign()
    active = torch.where(sign * (gap - step) > 0, sign, 0)
    if keep is None:
        push = active / len(rate)
        return push.roll(1) - push, torch.dot(push, gap)
    push = torch.where(keep, active, 0) / keep.sum().clamp_min(1)
    return torch.zeros_like(confidence).index_add_(0, partner, push) - push, torch.dot(push, gap)


def _next_selected(keep: Tensor) -> Tensor:
    """The position of the next sample where `keep` is true, after the last one the first; [b] bool -> [b] int64."""
    order = keep.logical_not().to(torch.uint8).argsort(stable=True)
    rank = torch.arange(1, len(order) + 1, device=keep.device)
    return torch.empty_like(order).scatter_(0, order, order[torch.where(rank < keep.sum(), rank, 0)])

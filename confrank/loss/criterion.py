"""The loss as a module: the ranking term alone, or added to cross-entropy."""

import math
import warnings
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from confrank import confidence as confidences
from confrank.confidence import Confidence, ConfidenceName
from confrank.history import CorrectnessHistory, check_tensor
from confrank.loss.cross_entropy import mean_cross_entropy
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
from confrank.loss.ranking import Ring, ranking_loss, shared_ranking_loss

PROBABILITIES = (
    "expected logits, but got values within 0..1 that sum to 1 for every sample, like probabilities; pass the outputs"
    " of the network before softmax"
)


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
        self.confidence_name = confidence if isinstance(confidence, str) else _name(confidence)
        self.ignore_index = ignore_index
        self.stretched = stretched
        self.ring = ring

    def forward(self, logits: Tensor, label: Tensor, index: Tensor, *, record: bool = True) -> Tensor:
        """The ranking term of a batch and its data set indices [b], a scalar."""
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
            return ranking_loss(confidence, rate, keep)
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

    def forward(self, logits: Tensor, label: Tensor, index: Tensor, *, record: bool = True) -> Tensor:
        """The loss of a batch and its data set indices [b], a scalar."""
        batch = self._read(logits, label, index)
        loss = self._cross_entropy(batch)
        if self.weight:
            loss = torch.add(loss, self._rank(batch, index), alpha=self.weight)
        if record:
            self._record(batch, index)
        return loss

    if TYPE_CHECKING:

        def __call__(self, logits: Tensor, label: Tensor, index: Tensor, *, record: bool = True) -> Tensor: ...

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, weight={self.weight}"

    def _cross_entropy(self, batch: Batch) -> Tensor:
        if not len(batch.logits):  # a mean would be NaN
            return batch.logits.sum()
        if batch.binary and (self.class_weight is not None or self.label_smoothing):
            raise ValueError(
                "expected class_weight and label_smoothing with class indices only, but got labels 0 and 1; add the"
                " ranking term to a loss that has them: torch.nn.BCEWithLogitsLoss(pos_weight=...)(logits, label) +"
                " weight * CorrectnessRanking(history)(logits, label, index)"
            )
        class_weight = None if self.class_weight is None else self.class_weight.to(batch.logits.dtype)
        return mean_cross_entropy(batch, class_weight, self.label_smoothing, self.ignore_index)


def _name(function: Confidence) -> str:
    return getattr(function, "__name__", type(function).__name__)

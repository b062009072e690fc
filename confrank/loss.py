"""The Correctness Ranking Loss: confidences should be ordered as the correctness rates are."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from confrank import confidence as confidences
from confrank.confidence import ConfidenceName
from confrank.history import CorrectnessHistory, check_tensor, is_whole


def ranking_loss(confidence: Tensor, rate: Tensor, keep: Tensor | None = None) -> Tensor:
    """Mean of max(0, -sign(c_i - c_j)(k_i - k_j) + |c_i - c_j|) over neighbouring pairs (the paper's eq. 2).

    Sample i is paired with i + 1 and the last with the first; `confidence` and `rate` are [b]. With `keep` [b], the
    loss is that of a batch of the samples where `keep` is true; no shape depends on the data.

    >>> ranking_loss(torch.tensor([0.75, 0.25]), torch.tensor([0.5, 1.0])).item()
    1.0
    """
    rate = rate.to(confidence.dtype)
    with torch.no_grad():
        pull, constant = _pairs(confidence, rate) if keep is None else _selected_pairs(confidence, rate, keep)
    return torch.dot(pull, confidence) + constant


def _pairs(confidence: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
    """The loss is piecewise linear in the confidences: its gradient (`pull`, [b]) and its constant term.

    With d = c_i - c_j and s = sign(d), the hinge is max(0, s (d - (k_i - k_j))), linear where it is active.
    Autograd then records one dot product instead of ten small operations.
    """
    gap = rate - rate.roll(-1)
    push = _active_sign(gap, confidence - confidence.roll(-1)) / len(rate)
    return push.roll(1) - push, torch.dot(push, gap)


def _selected_pairs(confidence: Tensor, rate: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    """`_pairs` of the samples where `keep` is true, in their order, as one ring."""
    num_kept = keep.sum()
    order = keep.logical_not().to(torch.uint8).argsort(stable=True)
    rank = torch.arange(1, len(order) + 1, device=keep.device)
    partner = order[torch.where(rank < num_kept, rank, 0)]
    gap = rate[order] - rate[partner]
    active = _active_sign(gap, confidence[order] - confidence[partner])
    push = torch.where(rank <= num_kept, active, 0) / num_kept.clamp_min(1)
    pull = torch.zeros_like(confidence).index_add_(0, partner, push).index_add_(0, order, -push)
    return pull, torch.dot(push, gap)


def _active_sign(gap: Tensor, step: Tensor) -> Tensor:
    sign = gap.sign()
    return torch.where(sign * (gap - step) > 0, sign, 0)


def are_correct(logits: Tensor, label: Tensor) -> Tensor:
    """Whether each row of logits [b, K] is largest at its label [b]; never true for a row with a NaN.

    >>> are_correct(torch.tensor([[3.0, 1.0], [float("nan"), 1.0]]), torch.tensor([0, 0])).tolist()
    [True, False]
    """
    largest, prediction = logits.max(dim=1)
    return (prediction == label) & ~largest.isnan()


class CorrectnessRankingLoss(nn.Module):
    """Cross-entropy + weight x ranking loss; each training call also records the events in `history`.

    `confidence` is "max_probability", "negative_entropy" or "margin". The loss uses the rates from before the call.
    `class_weight`, `label_smoothing` and `ignore_index` mean what they mean in `torch.nn.CrossEntropyLoss`;
    ignored samples are neither paired nor recorded (`ignore_index=None` ignores none and is a little faster).
    Nothing is recorded in evaluation mode or with `record=False`; use the latter for a second pass over a batch.
    `stretched` widens the rates so that the worst sample has 0, as in the code published with the paper.

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
        confidence: ConfidenceName = "max_probability",
        weight: float = 1.0,
        *,
        class_weight: Tensor | None = None,
        label_smoothing: float = 0.0,
        ignore_index: int | None = -100,
        stretched: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(history, CorrectnessHistory):
            raise ValueError(
                f"expected history to be a CorrectnessHistory, but got {history!r};"
                " make one with CorrectnessHistory(len(train_set))"
            )
        if not weight >= 0:
            raise ValueError(f"expected weight to be a number >= 0, but got {weight}")
        self.history = history
        self.confidence_name = confidence
        self.confidence = confidences.get(confidence)
        self.weight = float(weight)
        self.register_buffer("class_weight", class_weight)
        self.label_smoothing = label_smoothing
        self.ignore_index = ignore_index
        self.stretched = stretched

    if TYPE_CHECKING:  # torch types every call of a module as Any

        def __call__(self, logits: Tensor, label: Tensor, index: Tensor, *, record: bool = True) -> Tensor: ...

    def forward(self, logits: Tensor, label: Tensor, index: Tensor, *, record: bool = True) -> Tensor:
        """The scalar loss of logits [b, K], label [b] and data set index [b]."""
        self._check(logits, label, index)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        loss = functional.cross_entropy(
            logits,
            label,
            weight=None if self.class_weight is None else self.class_weight.to(logits.dtype),
            ignore_index=-100 if self.ignore_index is None else self.ignore_index,
            label_smoothing=self.label_smoothing,
        )
        keep = self._not_ignored(label)
        if self.weight:
            rate = self.history._rate(index, stretched=self.stretched)
            loss = torch.add(loss, ranking_loss(self.confidence(logits), rate, keep), alpha=self.weight)
        if record:
            self.history._update(index, are_correct(logits.detach(), label), label, keep)
        return loss

    def extra_repr(self) -> str:
        stretched = ", stretched=True" if self.stretched else ""
        return f"confidence={self.confidence_name!r}, weight={self.weight}{stretched}"

    def _not_ignored(self, label: Tensor) -> Tensor | None:
        """Which samples are not ignored; None if it is known that none is ignored."""
        if self.ignore_index is None:
            return None
        # Reading the labels is cheap on the CPU and saves work; elsewhere it would stall the device or break a graph.
        if label.device.type == "cpu" and not torch.compiler.is_compiling() and self._none_ignored(label):
            return None
        return label != self.ignore_index

    def _none_ignored(self, label: Tensor) -> bool:
        assert self.ignore_index is not None
        if self.ignore_index < 0:
            return len(label) > 0 and int(label.min()) >= 0
        return bool((label != self.ignore_index).all())

    def _check(self, logits: Tensor, label: Tensor, index: Tensor) -> None:
        check_tensor(logits, "logits")
        check_tensor(label, "label")
        if logits.ndim != 2 or logits.shape[1] < 2 or not logits.is_floating_point():
            raise ValueError(
                "expected floating-point logits of shape [batch, classes] with at least 2 classes,"
                f" but got {tuple(logits.shape)} of {logits.dtype}"
            )
        if label.dtype != torch.int64 or label.ndim != 1:
            narrow = label.ndim == 1 and is_whole(label)
            remedy = "convert them with label.long()" if narrow else "soft labels (mixup, cutmix) are not supported"
            raise ValueError(
                "expected label to hold class indices, an int64 tensor of shape [batch],"
                f" but got {tuple(label.shape)} of {label.dtype}; {remedy}"
            )
        self.history._check_index(index)
        if not len(logits) == len(label) == len(index):
            raise ValueError(
                "expected logits, label and index of one batch size,"
                f" but got {len(logits)}, {len(label)} and {len(index)}"
            )

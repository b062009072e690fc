"""The ranking term: confidences [b] and correctness rates [b] -> hinge loss of neighbouring pairs."""

from typing import Protocol

import torch
from torch import Tensor


class Ring(Protocol):
    """Joins the batches of several processes, e.g. `confrank.SharedRing`.

    Values [k, b] of this process -> those of all processes [k, n], one process after the other, and the column where
    this process starts.
    """

    def __call__(self, values: Tensor) -> tuple[Tensor, int]: ...


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
        pull, constant = _pairs(confidence, rate) if keep is None else _selected_pairs(confidence, rate, keep)
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
        kept = () if keep is None else (every[2] > 0,)
        pull, constant = (_selected_pairs if kept else _pairs)(every[0], every[1], *kept)
        value = torch.dot(pull, every[0]) + constant
        mine = pull[start : start + len(confidence)] * (every.shape[1] / max(len(confidence), 1))
    part = torch.dot(mine, confidence)
    return value + (part - part.detach())


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
    partner = _next_selected(keep)
    gap = rate - rate[partner]
    active = _active_sign(gap, confidence - confidence[partner])
    push = torch.where(keep, active, 0) / keep.sum().clamp_min(1)
    return torch.zeros_like(confidence).index_add_(0, partner, push) - push, torch.dot(push, gap)


def _next_selected(keep: Tensor) -> Tensor:
    """The position of the next sample where `keep` is true, after the last one the first; [b] bool -> [b] int64."""
    order = keep.logical_not().to(torch.uint8).argsort(stable=True)
    rank = torch.arange(1, len(order) + 1, device=keep.device)
    return torch.empty_like(order).scatter_(0, order, order[torch.where(rank < keep.sum(), rank, 0)])


def _active_sign(gap: Tensor, step: Tensor) -> Tensor:
    sign = gap.sign()
    return torch.where(sign * (gap - step) > 0, sign, 0)

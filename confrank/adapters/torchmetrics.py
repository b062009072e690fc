"""Every metric of `confrank.evaluate` as one torchmetrics `Metric` (extra `torchmetrics`)."""

import math
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from confrank import confidence as confidences
from confrank.confidence import ConfidenceName
from confrank.metrics import KEYS, evaluate

IGNORED = -100  # as in torch.nn.CrossEntropyLoss


class ConfidenceMetrics(Metric):
    """All metrics of all samples since the last reset, in all processes: {"acc": ..., "aurc": ..., ...}.

    AURC and similar metrics are not means over batches, so the logits are stored until `compute`
    (`compute_on_cpu=True` moves them off the device). `confidence` is the name of the confidence that ranks, as in
    `CorrectnessRankingLoss`. Undefined values are NaN; all values are NaN if a logit is not finite, so that a
    diverged network raises no error here.

    With several processes, a `DistributedSampler` repeats samples so that each process gets equally many. Pass
    `index` (see `IndexedDataset`) to count each sample once; without it, repeats count as further samples.

    >>> metrics = ConfidenceMetrics()
    >>> metrics.update(torch.tensor([[2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    >>> metrics.compute()["aurc"].item()
    0.25
    """

    full_state_update = False
    logits: list[Tensor]
    score: list[Tensor]
    label: list[Tensor]
    index: list[Tensor]

    def __init__(self, confidence: ConfidenceName = "max_probability", **options: Any) -> None:
        super().__init__(**options)
        self.confidence = confidences.get(confidence)
        for name in ("logits", "score", "label", "index"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, logits: Tensor, label: Tensor, index: Tensor | None = None) -> None:
        """Logits [b, K] and labels [b] of a batch; or [b, K, ...] and [b, ...], each element being one prediction.

        Labels of -100 are ignored. With the data set indices `index` [b], a repeated sample counts once.
        """
        if index is not None and index.shape != label.shape[:1]:
            raise ValueError(f"expected index of shape {(len(label),)}, but got {tuple(index.shape)}")
        self.index.append(_element_numbers(label, index))
        logits = logits.detach()
        if logits.ndim > 2:
            logits, label = logits.movedim(1, -1).flatten(0, -2), label.flatten()
        wide = (logits.cpu() if logits.device.type == "mps" else logits).double()  # that device has no float64
        self.logits.append(logits)
        self.score.append(self.confidence(wide))
        self.label.append(label.detach())

    def compute(self) -> dict[str, Tensor]:
        """Each metric as a raw fraction, float64."""
        metrics: dict[str, float | None] = dict.fromkeys(KEYS)
        if len(self.logits):
            every = [dim_zero_cat(values) for values in (self.logits, self.score, self.label)]
            counted = _first_rows(dim_zero_cat(self.index)) & (every[2] != IGNORED)
            logits, score, label = (values[counted] for values in every)
            if logits.isfinite().all():
                metrics = evaluate(logits=logits, label=label, confidence=score).metrics
        nan = float("nan")
        return {
            key: torch.tensor(nan if (value := metrics[key]) is None else value, dtype=torch.float64) for key in KEYS
        }


def _element_numbers(label: Tensor, index: Tensor | None) -> Tensor:
    """A number for each element of the labels [b, ...], flattened; -1 if the index of its sample is unknown."""
    if index is None:
        return torch.full((label.numel(),), -1, device=label.device)
    position = torch.arange(math.prod(label.shape[1:]), device=label.device)
    return (index.detach().to(position)[:, None] * 2**32 + position).flatten()


def _first_rows(index: Tensor) -> Tensor:
    """Whether each row is the first with its index; -1 is an unknown index.

    >>> _first_rows(torch.tensor([4, -1, 2, 4, -1])).tolist()
    [True, True, True, False, True]
    """
    order = index.argsort(stable=True)
    repeats = index[order][1:] == index[order][:-1]
    first = torch.ones_like(index, dtype=torch.bool)
    first[order[1:]] = ~repeats
    return first | (index < 0)

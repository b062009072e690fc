"""Every metric of `confrank.evaluate` as one torchmetrics `Metric` (extra `torchmetrics`)."""

import math
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from confrank import confidence as confidences
from confrank.adapters import metrics_of, one_per_label
from confrank.confidence import ConfidenceName
from confrank.history import check_tensor
from confrank.metrics import KEYS


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
        """Logits and labels of a batch in any form of `CorrectnessRankingLoss`; each label is one prediction.

        So multi-label targets [b, K] are b x K predictions among two classes. Labels of -100 are ignored. With the
        data set indices `index` [b], a repeated sample counts once.
        """
        rows, classes = one_per_label(logits, label)
        if index is not None:
            check_tensor(index, "index")
        if index is not None and index.shape != label.shape[:1]:
            raise ValueError(f"expected index of shape {(len(label),)}, but got {tuple(index.shape)}")
        wide = (rows.cpu() if rows.device.type == "mps" else rows).double()  # that device has no float64
        self.index.append(_element_numbers(label, index))
        self.logits.append(rows.detach())
        self.score.append(self.confidence(wide.detach()))
        self.label.append(classes)

    def compute(self) -> dict[str, Tensor]:
        """Each metric as a raw fraction, float64."""
        metrics = dict.fromkeys(KEYS, float("nan"))
        if len(self.logits):
            first = _first_rows(dim_zero_cat(self.index))
            logits, label, score = (dim_zero_cat(rows)[first] for rows in (self.logits, self.label, self.score))
            metrics = metrics_of(logits, label, score)
        return {key: torch.tensor(value, dtype=torch.float64) for key, value in metrics.items()}


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

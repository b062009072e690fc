"""Every metric of `confrank.evaluate` as one torchmetrics `Metric` (extra `torchmetrics`)."""

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

    >>> metrics = ConfidenceMetrics()
    >>> metrics.update(torch.tensor([[2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    >>> metrics.compute()["aurc"].item()
    0.25
    """

    full_state_update = False
    logits: list[Tensor]
    score: list[Tensor]
    label: list[Tensor]

    def __init__(self, confidence: ConfidenceName = "max_probability", **options: Any) -> None:
        super().__init__(**options)
        self.confidence = confidences.get(confidence)
        for name in ("logits", "score", "label"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, logits: Tensor, label: Tensor) -> None:
        """Logits [b, K] and labels [b] of a batch; or [b, K, ...] and [b, ...], each element being one prediction.

        Labels of -100 are ignored.
        """
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
            logits, score, label = (values[every[2] != IGNORED] for values in every)
            if logits.isfinite().all():
                metrics = evaluate(logits=logits, label=label, confidence=score).metrics
        nan = float("nan")
        return {
            key: torch.tensor(nan if (value := metrics[key]) is None else value, dtype=torch.float64) for key in KEYS
        }

"""confrank in other frameworks: a module named after a framework needs the extra of that name, the rest none."""

from collections.abc import Iterable
from dataclasses import replace

from torch import Tensor

from confrank.evaluation import evaluate
from confrank.forms import class_logits, read_batch
from confrank.history import CorrectnessHistory, check_tensor
from confrank.metrics import KEYS

IGNORED = -100  # as in torch.nn.CrossEntropyLoss, and the label of padding and word pieces in transformers
NO_PAIRS = (
    "every batch had one sample, so the ranking loss was 0: samples are paired within a batch, not over the batches"
    " whose gradients are accumulated; use a larger batch size and accumulate fewer batches"
)


def findings(histories: Iterable[CorrectnessHistory], *, paired: bool) -> list[str]:
    """A message for each history with a finding, and one if no batch had two samples to pair.

    Samples examined too often are not reported, since samplers explain them.
    """
    audits = [replace(history.audit(), too_often=[]) for history in histories]
    return [str(audit) for audit in audits if not audit.ok] + ([] if paired else [NO_PAIRS])


def one_per_label(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and labels in any form of the loss -> class logits [n, K] and classes [n]; ignored labels are -100.

    A label of 0 or 1 with a logit z of its own is a prediction among two classes, with the logits [0, z].

    >>> import torch
    >>> logits, label = one_per_label(torch.tensor([[1.0, -2.0]]), torch.tensor([[1.0, -100.0]]))
    >>> logits.tolist(), label.tolist()
    ([[0.0, 1.0], [0.0, -2.0]], [1, -100])
    """
    check_tensor(logits, "logits")
    check_tensor(label, "label")
    if not label.is_floating_point() and label.shape != logits.shape:
        label = label.long()  # class numbers of any type
    batch = read_batch(logits, label, IGNORED)
    return class_logits(batch).flatten(0, -2).to(logits.dtype), batch.label.flatten().long()


def metrics_of(logits: Tensor, label: Tensor, confidence: Tensor) -> dict[str, float]:
    """Every metric of `evaluate` on logits [n, K], labels [n] that are not ignored and their confidence [n].

    Undefined values are NaN; all values are NaN if a logit is not finite.
    """
    counted = label != IGNORED
    logits, label, confidence = logits[counted], label[counted], confidence[counted]
    if not logits.isfinite().all():
        return dict.fromkeys(KEYS, float("nan"))
    metrics = evaluate(label, logits=logits, confidence=confidence).metrics
    return {key: float("nan") if (value := metrics[key]) is None else value for key in KEYS}

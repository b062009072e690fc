"""The predictions of a batch of any form, one for each label, and their metrics."""

from torch import Tensor

from confrank.forms import class_logits, read_batch
from confrank.history import check_tensor
from confrank.metrics import KEYS, evaluate

IGNORED = -100  # as in torch.nn.CrossEntropyLoss, and the label of padding and word pieces in transformers


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
    metrics = evaluate(logits=logits, label=label, confidence=confidence).metrics
    return {key: float("nan") if (value := metrics[key]) is None else value for key in KEYS}

"""All metrics of one set of predictions, from whatever there is of them."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from confrank.confidence import max_probability
from confrank.metrics import calibration, proper, ranking
from confrank.metrics.arrays import (
    Array,
    as_flags,
    as_labels,
    as_probabilities,
    as_scores,
    as_table,
    chunks,
    same_length,
)

KEYS = ("acc", "aurc", "e_aurc", "augrc", "aupr_error", "fpr95", "auroc", "ece", "nll", "brier")


@dataclass(frozen=True)
class Evaluation:
    """Raw fractions under the keys of `KEYS`; an undefined one is None, with the reason in `undefined`.

    `notes` says what a reader of a number should know, e.g. how many probabilities were clipped.
    """

    metrics: dict[str, float | None]
    undefined: dict[str, str]
    num_samples: int
    num_classes: int | None
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        return {
            "metrics": self.metrics,
            "undefined": self.undefined,
            "num_samples": self.num_samples,
            "num_classes": self.num_classes,
            "notes": self.notes,
        }


def evaluate(
    *,
    logits: object = None,
    probabilities: object = None,
    label: object = None,
    confidence: object = None,
    correct: object = None,
) -> Evaluation:
    """Every metric that the given arrays define.

    Give `label` [n] with `logits` or `probabilities` [n, K], or `confidence` [n] with `correct` [n]. With a
    table and a confidence, the confidence ranks and the probabilities calibrate (ECE, NLL, Brier).

    >>> result = evaluate(probabilities=[[0.75, 0.25], [0.5, 0.5]], label=[0, 1])
    >>> result.metrics["acc"], result.metrics["aurc"], result.metrics["brier"]
    (0.5, 0.25, 0.3125)
    >>> evaluate(confidence=[3.0, 7.5], correct=[True, True]).undefined["ece"]
    'confidence lies outside [0, 1]: it is a score, not a probability'
    """
    table = None
    if logits is not None or probabilities is not None:
        if logits is not None and probabilities is not None:
            raise ValueError("expected logits or probabilities, but got both")
        if label is None:
            raise ValueError("expected label beside logits or probabilities, but got none")
        table = as_probabilities(probabilities) if logits is None else as_table(logits, "logits")
    elif confidence is None or correct is None:
        raise ValueError(
            "expected (logits or probabilities) and label, or confidence and correct, but got "
            + (", ".join(_given(label=label, confidence=confidence, correct=correct)) or "nothing")
        )
    if table is None:
        return _assemble(as_scores(confidence), as_flags(correct), None, None, logits=False)
    labels = as_labels(label, table.shape[1])
    same_length(label=labels, predictions=table)
    right = table.argmax(axis=1) == labels
    if correct is not None and not np.array_equal(as_flags(correct), right):
        raise ValueError("expected correct to agree with the label and the largest probability, but it differs")
    scores = None if confidence is None else as_scores(confidence)
    return _assemble(scores, right, table, labels, logits=logits is not None)


def _given(**named: object) -> list[str]:
    return [name for name, value in named.items() if value is not None]


def _assemble(
    scores: Array | None, right: NDArray[np.bool_], table: Array | None, labels: Array | None, *, logits: bool
) -> Evaluation:
    undefined: dict[str, str] = {}
    notes: list[str] = []
    metrics: dict[str, float | None] = dict.fromkeys(KEYS)
    if not len(right):
        reason = "there are no predictions"
        num_classes = None if table is None else table.shape[1]
        return Evaluation(metrics, dict.fromkeys(KEYS, reason), 0, num_classes)
    probability = None if table is None else _max_probability(table, logits=logits)
    if scores is None:
        assert probability is not None
        scores = probability
    metrics |= _ranking_metrics(ranking.rank(scores, right))
    metrics |= _calibration_metrics(scores, right, probability, undefined)
    if table is None or labels is None:
        undefined |= dict.fromkeys(("nll", "brier"), "needs the probabilities of all classes and the labels")
    elif logits:
        metrics["nll"], metrics["brier"] = _logit_scores(table, labels)
    else:
        metrics["nll"], clipped = proper.clipped_nll(table, labels)
        metrics["brier"] = proper.brier_of(table, labels)
        if clipped:
            notes.append(proper.clipping_note(clipped, len(labels), table.dtype))
    for key in ("aupr_error", "fpr95", "auroc"):
        if metrics[key] is None:
            kind = "wrong" if right.all() else "right"
            undefined[key] = f"needs right and wrong predictions, but none is {kind}"
    return Evaluation(metrics, undefined, len(right), None if table is None else table.shape[1], notes)


def _ranking_metrics(ranked: ranking.Ranking) -> dict[str, float | None]:
    area = ranking.aurc_of(ranked)
    risk = ranked.num_wrong / ranked.num_samples
    assert area is not None
    return {
        "acc": ranked.num_correct / ranked.num_samples,
        "aurc": area,
        "e_aurc": area - ranking.best_aurc(risk),
        "augrc": ranking.augrc_of(ranked),
        "aupr_error": ranking.aupr_error_of(ranked),
        "fpr95": ranking.fpr_at_tpr_of(ranked),
        "auroc": ranking.auroc_of(ranked),
    }


def _calibration_metrics(
    scores: Array, right: NDArray[np.bool_], probability: Array | None, undefined: dict[str, str]
) -> dict[str, float | None]:
    if probability is None:
        if scores.min() < 0 or scores.max() > 1:
            undefined["ece"] = "confidence lies outside [0, 1]: it is a score, not a probability"
            return {"ece": None}
        probability = scores
    return {"ece": calibration.ece(probability, right)}


def _max_probability(table: Array, *, logits: bool) -> Array:
    if not logits:
        largest: Array = np.minimum(table.max(axis=1), 1)
        return largest
    parts = [max_probability(_double(table[rows])).numpy() for rows in chunks(len(table), table.shape[1])]
    return np.concatenate(parts)


def _logit_scores(table: Array, labels: Array) -> tuple[float, float]:
    """NLL and Brier score in float64; no clipping, since log-softmax never takes the logarithm of zero."""
    nll = brier = 0.0
    for rows in chunks(len(table), table.shape[1]):
        log_probability = torch.log_softmax(_double(table[rows]), dim=1).numpy()
        picked = np.arange(len(log_probability)), labels[rows]
        nll -= float(log_probability[picked].sum())
        probability = np.exp(log_probability)
        probability[picked] -= 1
        brier += float(np.square(probability).sum())
    return nll / len(table), brier / len(table)


def _double(part: Array) -> torch.Tensor:
    return torch.from_numpy(part.astype(np.float64))

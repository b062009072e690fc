"""Predictions reduced to a few values per sample: all that metrics, intervals and reports need.

The table [n, K] is read once; everything else uses arrays [n].
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from confrank.metrics.inputs import (
    GIVE_CLASSES,
    Array,
    ArrayLike,
    Classes,
    Flags,
    Floats,
    Ints,
    are_distributions,
    as_classes,
    as_distributions,
    as_flags,
    as_labels,
    as_probabilities,
    as_scores,
    as_table,
    as_weights,
    chunks,
    class_numbers,
    labels_for,
    names_of_classes,
    offenders,
    same_length,
    same_rows,
    to_numpy,
    weighted_mean,
)

LOGITS_LIKE_PROBABILITIES = (
    "these logits look like probabilities (nonnegative, each row sums to 1); if they are, give them as probabilities"
)

# What other libraries call the arguments of `evaluate`.
OTHER_NAMES = {
    "label": ("labels", "y", "y_true", "target", "targets", "truth"),
    "probabilities": ("y_prob", "y_proba", "y_score", "proba", "probs", "probability"),
    "logits": ("logit",),
    "confidence": ("confidences", "score", "scores"),
    "prediction": ("y_pred", "pred", "preds", "predictions", "predicted"),
    "classes": ("class_names",),
    "sample_weight": ("sample_weights", "weight", "weights"),
}


@dataclass(frozen=True)
class Samples:
    """Values per sample [n]: the confidence that ranks it, whether it is correct, and, if known, the rest.

    `probability` is that of the predicted class (for the ECE); if only a score is known, it is the score, provided it
    is in [0, 1]. If `brier` is given, `nll` is None only if it is not finite. `weight` has been through `as_weights`.
    `nll_notes` are remarks for readers of the NLL. `cluster` numbers what was drawn independently, without gaps.
    """

    confidence: Array
    correct: Flags
    probability: Array | None = None
    nll: Array | None = None
    brier: Array | None = None
    label: Array | None = None
    prediction: Array | None = None
    num_classes: int | None = None
    notes: list[str] = field(default_factory=list)
    weight: Array | None = None
    nll_notes: list[str] = field(default_factory=list)
    cluster: Array | None = None

    def __len__(self) -> int:
        return len(self.correct)

    @property
    def total(self) -> float:
        """The number of samples, or the sum of their weights."""
        return len(self) if self.weight is None else float(self.weight.sum())

    def select(self, rows: Array) -> "Samples":
        """The samples in these rows, in this order."""
        names = ("confidence", "correct", "probability", "nll", "brier", "label", "prediction", "weight")
        parts: dict[str, Any] = {
            name: None if (values := getattr(self, name)) is None else values[rows] for name in names
        }
        if self.cluster is not None:
            parts["cluster"] = np.unique(self.cluster[rows], return_inverse=True)[1]
        return Samples(**parts, num_classes=self.num_classes, notes=self.notes, nll_notes=self.nll_notes)

    @property
    def proper_scores(self) -> dict[str, Array]:
        """NLL and Brier score of each sample by key: of its classes, or of being right if only that is known."""
        if self.brier is not None:
            return {"brier": self.brier} if self.nll is None else {"nll": self.nll, "brier": self.brier}
        if self.probability is None:
            return {}
        right = self.probability.astype(np.float64)
        right = np.where(self.correct, right, 1 - right)
        floor = np.finfo(self.probability.dtype).tiny
        return {"nll_correct": -np.log(np.maximum(right, floor)), "brier_correct": (1 - right) ** 2}

    def weighted(self, sample_weight: ArrayLike) -> "Samples":
        """The samples of weight above 0 with their weights [n]; a note counts the others."""
        weights = as_weights(sample_weight, len(self))
        whole = replace(self, weight=weights)
        if weights.all():
            return whole
        left = whole.select(weights > 0)
        note = f"{len(self) - len(left):,} of {len(self):,} rows have weight 0 and do not count"
        probability = _shares(left.confidence) if left.brier is None else left.probability
        return replace(left, probability=probability, notes=[*self.notes, note])


def sample_values(
    *,
    logits: ArrayLike | None = None,
    probabilities: ArrayLike | None = None,
    label: Classes | None = None,
    confidence: ArrayLike | None = None,
    correct: ArrayLike | None = None,
    prediction: Classes | None = None,
    classes: Classes | None = None,
    sample_weight: ArrayLike | None = None,
) -> Samples:
    """Check the arrays and reduce them to values per sample; see `evaluate` for what you can give."""
    if logits is not None and probabilities is not None:
        raise ValueError("expected logits or probabilities, but got both")
    given_table, kind = (probabilities, "probabilities") if logits is None else (logits, "logits")
    same_rows(
        **{kind: given_table},
        label=label,
        prediction=prediction,
        confidence=confidence,
        correct=correct,
        sample_weight=sample_weight,
    )
    given = {name: one for name, one in (("label", label), ("prediction", prediction)) if one is not None}
    names = names_of_classes(given_table, classes)
    if given_table is None and len(given) < 2:  # next to `correct`, labels may be anything
        numbers = {name: to_numpy(one) for name, one in given.items()}
    else:
        numbers, names = class_numbers(given, names, "" if given_table is None else GIVE_CLASSES)
    if given_table is None:
        samples = _from_scores(numbers, confidence, correct)
    else:
        if label is None:
            raise ValueError("expected label with logits or probabilities, but got none")
        table, notes = _checked_table(given_table, is_logits=logits is not None)
        if names is not None and len(names) != table.shape[1]:
            raise ValueError(f"expected the names of {table.shape[1]} classes, but got {len(names)}")
        labels = as_labels(numbers["label"], table.shape[1])
        predicted = numbers.get("prediction")
        samples = _from_table(table, labels, confidence, correct, predicted, notes, is_logits=logits is not None)
    return samples if sample_weight is None else samples.weighted(sample_weight)


def unknown_name(names: Sequence[str], known: Sequence[str]) -> ValueError:
    """An error for names of arrays that are not known, with the known name that each may mean.

    >>> unknown_name(["y_true"], ["label", "probabilities"])
    ValueError("expected arrays among label, probabilities, but got 'y_true'; use label instead of y_true")
    """
    remedies = []
    for name in names:
        meant = [one for one, others in OTHER_NAMES.items() if name.lower() in others]
        meant = [one for one in meant or get_close_matches(name, known, n=1) if one in known]
        remedies += [f"use {one} instead of {name}" for one in meant]
    problem = f"expected arrays among {', '.join(known)}, but got {', '.join(map(repr, names))}"
    return ValueError("; ".join([problem, *remedies]))


def _from_scores(classes: Mapping[str, Array], confidence: ArrayLike | None, correct: ArrayLike | None) -> Samples:
    """The samples of a confidence, and of `correct` or both classes, label and prediction; without a table."""
    if len(classes) == 2:
        same_length(**classes)
        equal = classes["label"] == classes["prediction"]
        if correct is not None and not np.array_equal(as_flags(correct), equal):
            raise ValueError("expected correct to agree with the label and the prediction, but it differs")
        correct = equal
    if confidence is None or correct is None:
        every = {**classes, "confidence": confidence, "correct": correct}
        names = [name for name, value in every.items() if value is not None]
        raise ValueError(
            "expected (logits or probabilities) and label, or confidence and correct (or label and prediction),"
            f" but got {', '.join(names) or 'nothing'}"
        )
    scores, right = as_scores(confidence), as_flags(correct)
    same_length(confidence=scores, correct=right, **classes)
    # Summaries per class need numbered classes.
    numbered = {name: values for name, values in classes.items() if values.ndim == 1 and values.dtype.kind in "iu"}
    return Samples(
        scores,
        right,
        probability=_shares(scores),
        label=numbered.get("label"),
        prediction=numbered.get("prediction"),
    )


def _shares(scores: Array) -> Array | None:
    """The scores [n] if all are within [0, 1], where they may be probabilities; otherwise None."""
    return scores if len(scores) and scores.min() >= 0 and scores.max() <= 1 else None


def predicted_values(
    *,
    logits: ArrayLike | None = None,
    probabilities: ArrayLike | None = None,
    confidence: ArrayLike | None = None,
    prediction: ArrayLike | None = None,
) -> tuple[Array | None, Array]:
    """The predicted classes [n], if known, and the confidence [n]: those of `sample_values`, without labels.

    >>> prediction, confidence = predicted_values(probabilities=[[0.25, 0.75], [0.9, 0.1]])
    >>> prediction.tolist(), confidence.tolist()
    ([1, 0], [0.75, 0.9])
    """
    given_table = probabilities if logits is None else logits
    if given_table is None:
        if confidence is None:
            raise ValueError("expected logits, probabilities or a confidence, but got none")
        return None if prediction is None else as_classes(prediction, "prediction"), as_scores(confidence)
    table, _ = _checked_table(given_table, is_logits=logits is not None)
    classes = table.argmax(axis=1) if prediction is None else as_classes(prediction, "prediction")
    if prediction is not None:
        _check_prediction(classes, table)
    if confidence is not None:
        return classes, as_scores(confidence)
    return classes, _probability(table, classes, is_logits=logits is not None)


def _probability(table: Array, prediction: Array, *, is_logits: bool) -> Array:
    """The probability of the predicted class [n]."""
    if is_logits:
        return largest_probability(table)
    return np.minimum(table[np.arange(len(table)), prediction], 1)


def _checked_table(values: ArrayLike, *, is_logits: bool) -> tuple[Array, list[str]]:
    """Logits or probabilities [n, K], and notes about them; values [n] are those of class 1 of two."""
    values = both_classes(values, is_logits=is_logits)
    if is_logits:
        table = as_table(values, "logits")
        return table, [LOGITS_LIKE_PROBABILITIES] if are_distributions(table) else []
    table, divided = as_distributions(values)
    note = f"{divided:,} of {len(table):,} rows of probabilities were rounded and have been divided by their sum"
    return table, [note] if divided else []


def both_classes(values: ArrayLike, *, is_logits: bool) -> Array:
    """A table [n, 2] from the probabilities or logits [n] of class 1; another table as it is.

    >>> both_classes([0.25, 1.0], is_logits=False).tolist(), both_classes([[2.0], [-1.0]], is_logits=True).tolist()
    ([[0.75, 0.25], [0.0, 1.0]], [[0.0, 2.0], [0.0, -1.0]])
    """
    table = to_numpy(values)
    if table.shape[1:] not in ((), (1,)) or table.ndim == 0:
        return table
    second = as_scores(table.reshape(-1), "logits" if is_logits else "probabilities").astype(np.float64)
    if is_logits:
        return np.stack([np.zeros_like(second), second], axis=1)
    wrong = (second < 0) | (second > 1)
    if wrong.any():
        raise ValueError(
            f"expected probabilities of class 1 within [0, 1], but got {offenders(second, wrong)}; scores before a"
            " sigmoid are logits"
        )
    return np.stack([1 - second, second], axis=1)


def _from_table(
    table: Array,
    labels: Array,
    confidence: ArrayLike | None,
    correct: ArrayLike | None,
    given_prediction: Array | None,
    notes: list[str],
    *,
    is_logits: bool,
) -> Samples:
    same_length(label=labels, predictions=table)
    if given_prediction is not None:
        _check_prediction(given_prediction, table)
    prediction = table.argmax(axis=1) if given_prediction is None else given_prediction
    if correct is not None:
        flags = as_flags(correct)
        same_length(correct=flags, predictions=table)
        if given_prediction is None:
            prediction = _consistent(prediction, flags, labels, table)
        if not np.array_equal(flags, prediction == labels):
            raise ValueError("expected correct to agree with the label and the largest probability, but it differs")
    right = prediction == labels
    nll: Array | None
    clipped = 0
    if is_logits:
        nll, brier, probability = sample_scores_of_logits(table, labels)
        # Logits may be further apart than numbers go. Every resample of these values must have a finite sum.
        nll = nll if math.isfinite(float(nll.max(initial=0)) * len(nll)) else None
    else:
        probability = _probability(table, prediction, is_logits=False)
        nll, clipped = sample_nll(table, labels)
        brier = sample_brier(table, labels)
    scores = probability if confidence is None else as_scores(confidence)
    same_length(confidence=scores, correct=right)
    nll_notes = [clipping_note(clipped, nll, table.dtype)] if nll is not None and clipped else []
    return Samples(
        scores, right, probability, nll, brier, labels, prediction, table.shape[1], notes, nll_notes=nll_notes
    )


def _check_prediction(prediction: Array, table: Array) -> None:
    """Raise if a prediction is not a class with the largest value of its row."""
    same_length(prediction=prediction, predictions=table)
    if (row := first_not_largest(prediction, table)) is not None:
        raise ValueError(
            f"expected prediction to be the class with the largest value, but got {prediction[row]} in row {row},"
            f" where class {table[row].argmax()} has the largest value"
        )


def first_not_largest(prediction: Array, table: Array) -> int | None:
    """The first row of a table [n, K] whose prediction [n] is not a class with its largest value; None if all are."""
    inside = (prediction >= 0) & (prediction < table.shape[1])
    predicted = table[np.arange(len(table)), np.where(inside, prediction, 0)]
    wrong = ~inside | (predicted < table.max(axis=1))
    return int(wrong.argmax()) if wrong.any() else None


def _consistent(prediction: Array, flags: Array, labels: Array, table: Array) -> Array:
    """The predictions; where several classes have the largest value, the one that agrees with `flags`."""
    prediction = prediction.copy()
    for row in np.flatnonzero(flags != (prediction == labels)):
        largest = np.flatnonzero(table[row] == table[row].max())
        fitting = largest[(largest == labels[row]) == flags[row]]
        if not len(fitting):
            break  # no choice agrees
        prediction[row] = fitting[0]
    return prediction


def accuracy(correct: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float | None:
    """Share of right predictions; None for no predictions.

    >>> accuracy([True, False, True, True])
    0.75
    """
    same_rows(correct=correct, sample_weight=sample_weight)
    flags = as_flags(correct)
    if sample_weight is not None:
        return mean_of(flags.astype(np.float64), as_weights(sample_weight, len(flags)))
    return float(np.count_nonzero(flags) / len(flags)) if len(flags) else None


def nll(probabilities: ArrayLike, label: Classes, *, sample_weight: ArrayLike | None = None) -> float | None:
    """Mean of -ln p(label). A zero is clipped at the type's smallest normal number, and a warning counts them.

    >>> round(nll([[0.5, 0.5], [0.25, 0.75]], [0, 1]), 4)
    0.4904
    """
    table, labels, weights = _checked(probabilities, label, sample_weight)
    values, clipped = sample_nll(table, labels)
    if clipped:
        warnings.warn(clipping_note(clipped, values, table.dtype), stacklevel=2)
    return mean_of(values, weights)


def brier(probabilities: ArrayLike, label: Classes, *, sample_weight: ArrayLike | None = None) -> float | None:
    """Mean over samples of the squared distance to the one-hot label, summed over classes.

    >>> brier([[0.5, 0.5], [0.25, 0.75]], [0, 1])
    0.3125
    """
    table, labels, weights = _checked(probabilities, label, sample_weight)
    return mean_of(sample_brier(table, labels), weights)


def _checked(
    probabilities: ArrayLike, label: Classes, sample_weight: ArrayLike | None
) -> tuple[Array, Ints, Floats | None]:
    """Probabilities [n, K], labels [n] and weights [n], without rows of weight 0."""
    table = as_probabilities(probabilities)
    labels = labels_for(label, probabilities, {"sample_weight": sample_weight}, probabilities=table)
    if sample_weight is None:
        return table, labels, None
    weights = as_weights(sample_weight, len(labels))
    rows = weights > 0
    return table[rows], labels[rows], weights[rows]


def mean_of(values: Floats, weights: Floats | None = None) -> float | None:
    if not len(values):
        return None
    return float(values.mean()) if weights is None else weighted_mean(values, weights)


def sample_nll(table: Array, labels: Ints) -> tuple[Floats, int]:
    """-ln p(label) of each sample, and the number of p below the smallest normal number of their type."""
    picked = table[np.arange(len(labels)), labels]
    floor = np.finfo(table.dtype).tiny
    values: Floats = -np.log(np.maximum(picked, floor).astype(np.float64))
    return values, int(np.count_nonzero(picked < floor))


def clipping_note(clipped: int, values: Floats, dtype: np.dtype[np.generic]) -> str:
    """How many samples were clipped, and their share of the sum of all values."""
    floor = float(np.finfo(dtype).tiny)  # type: ignore[type-var]
    share = clipped * -np.log(floor) / values.sum()
    return (
        f"{clipped} of {len(values)} label probabilities are (nearly) zero and were clipped at {floor:.3g};"
        f" they make up {share:.1%} of the NLL; give logits to avoid this"
    )


def certain_note(values: Floats, dtype: np.dtype[np.generic]) -> list[str]:
    """How many confidences of 0 or 1 were wrong, if any, and their share of the NLL of being right."""
    largest = -np.log(float(np.finfo(dtype).tiny))  # type: ignore[type-var]
    clipped = int(np.count_nonzero(values >= largest))
    if not clipped:
        return []
    return [
        f"{clipped} of {len(values)} predictions are wrong with confidence 1 or right with confidence 0;"
        f" they make up {clipped * largest / values.sum():.1%} of the NLL of being right"
    ]


def sample_brier(table: Array, labels: Ints) -> Floats:
    """Squared distance of each row of probabilities to its one-hot label."""
    values = np.empty(len(labels))
    for rows in chunks(len(labels), table.shape[1]):
        part = table[rows].astype(np.float64)
        part[np.arange(len(part)), labels[rows]] -= 1
        np.einsum("ij,ij->i", part, part, out=values[rows])
    return values


def sample_scores_of_logits(logits: Array, labels: Ints) -> tuple[Floats, Floats, Floats]:
    """NLL, Brier score and largest softmax probability of each sample, in float64.

    The NLL never takes the logarithm of zero; it is infinite only if logits are further apart than numbers go.
    """
    nll, brier, largest = (np.empty(len(labels)) for _ in range(3))
    for rows in chunks(len(logits), logits.shape[1]):
        shifted, exponentials, total = _exponentials(logits[rows])
        nll[rows] = np.log(total) - shifted[np.arange(len(shifted)), labels[rows]]
        brier[rows] = sample_brier(exponentials / total[:, None], labels[rows])
        largest[rows] = 1 / total
    return nll, brier, largest


def largest_probability(logits: Array) -> Floats:
    """The largest softmax probability of each sample, bit for bit as in `sample_scores_of_logits`."""
    largest = np.empty(len(logits))
    for rows in chunks(len(logits), logits.shape[1]):
        largest[rows] = 1 / _exponentials(logits[rows])[2]
    return largest


def probabilities_of(logits: Array) -> Floats:
    """The softmax probabilities [n, K] of each sample; the largest is that of `largest_probability`, bit for bit."""
    table = np.empty(logits.shape)
    for rows in chunks(len(logits), logits.shape[1]):
        _, exponentials, total = _exponentials(logits[rows])
        table[rows] = exponentials / total[:, None]
    return table


def _exponentials(logits: Array) -> tuple[Floats, Floats, Floats]:
    """Logits [n, K] minus their largest, the exponentials of these, and the sum of the exponentials [n].

    They are added in ascending order, so that rows with the same logits in another order stay tied to the last digit.
    """
    shifted = logits.astype(np.float64)
    with np.errstate(over="ignore"):
        shifted -= shifted.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    in_order = exponentials if logits.shape[1] < 3 else np.sort(exponentials, axis=1)  # a + b is b + a
    return shifted, exponentials, in_order.sum(axis=1)

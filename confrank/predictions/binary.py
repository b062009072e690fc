"""Two classes of which a single column gives the probability."""

from collections.abc import Sequence

import numpy as np

from confrank.errors import InputError
from confrank.metrics.samples import first_not_largest
from confrank.predictions.cells import Column
from confrank.predictions.classes import as_text, shown, whole_number
from confrank.predictions.schema import Array


def both_classes(single: Array) -> Array:
    """The probabilities [n, 2] of classes 0 and 1 from those of class 1 [n]."""
    second = single.astype(np.float64)
    return np.stack([1 - second, second], axis=1)


def checked_binary(label: Array, kind: str | None = None) -> str:
    """A note on how a single column of a kind is read; an error for labels other than 0 and 1."""
    wrong = (label != 0) & (label != 1)
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(
            f"expected labels 0 and 1 with a single column of {kind or 'probabilities'}, which is that of class 1,"
            f" but got {label[row]} in row {row}",
            "give a column probability_NAME for each class, or use {columns} confidence=COLUMN if it belongs to the"
            " predicted class, or {positive} NAME",
        )
    return f"a single column read as the {'logit' if kind == 'logits' else 'probability'} of class 1"


def with_positive(
    columns: dict[str, Column],
    score: Array | None,
    positive: str,
    notes: list[str],
    classes: Sequence[str] | None = None,
) -> tuple[dict[str, Column], Array | None, Array | None, list[str] | None]:
    """Columns, probabilities [n, 2], confidence [n] and class names, if `score` [n] is the probability of a class.

    Predictions that are not the more probable class, say by another threshold than 0.5, keep the probability of what
    they predict as confidence. Without labels, `classes` are the names of both classes; without these too, only the
    confidence of the predictions is known.
    """
    if score is None or (classes is None and not {"label", "prediction"} & {*columns}):
        raise InputError("expected label and the score of a class, but got others", "leave out {positive}")
    texts = {role: as_text(columns[role], {}, role) for role in ("label", "prediction") if role in columns}
    names = _two_names({value for text in texts.values() for value in text.values} | {*(classes or ())}, positive)
    if score.min(initial=0) < 0 or score.max(initial=0) > 1:
        raise InputError(
            f"expected the probability of {positive!r}, but got values from {score.min():g} to {score.max():g}",
            "use {scale} 100 if they are percentages, or write 1 / (1 + exp(-x)) of each if they are logits",
        )
    numbers = {
        role: np.array([names.index(value) for value in text.values])[text.codes] for role, text in texts.items()
    }
    second = score if names[1] == positive else 1 - score
    table = both_classes(second)
    notes.append(f"the score read as the probability of {positive}")
    found: dict[str, Column] = {role: column for role, column in columns.items() if role not in texts}
    kept = None if names == ["0", "1"] else names
    prediction, has_classes = numbers.get("prediction"), "label" in columns or classes is not None
    is_larger = prediction is not None and first_not_largest(prediction, table) is None
    if prediction is None or (is_larger and has_classes):
        return found | numbers, table, None, kept
    more = "" if is_larger else ", which is not always the more probable one"
    notes.append(f"the confidence is the probability of the predicted class{more}")
    return found | numbers, None, table[np.arange(len(table)), prediction], kept


def _two_names(values: set[str], positive: str) -> list[str]:
    """The names of both classes in order: numbers by value, words by the alphabet."""
    if positive not in values and len(values) > 1:
        raise InputError(f"expected a class among {shown(sorted(values))}, but got {positive!r}", "change {positive}")
    if len(values | {positive}) > 2:
        raise InputError(
            f"expected two classes with a score of one of them, but got {shown(sorted(values))}",
            "leave out {positive}",
        )
    if len(values | {positive}) == 1:
        values = {{"0": "1", "1": "0"}.get(positive, f"not {positive}")}
    return sorted(
        values | {positive}, key=lambda value: (whole_number(value) is None, whole_number(value) or 0, value)
    )

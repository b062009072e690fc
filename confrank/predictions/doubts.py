"""Doubts about what a file holds: each is an error that says how to settle it."""

import numpy as np

from confrank.errors import InputError, class_text, counted
from confrank.errors import named as listed
from confrank.metrics.inputs import cell_text
from confrank.metrics.samples import first_not_largest
from confrank.predictions.roles import shown
from confrank.predictions.tables import MISSING, Array, Column, Text, is_missing

# Classes that label and prediction write in two ways show only in this many rows: fewer may be wrong answers.
FEWEST_ROWS = 5
# No row of rounded probabilities may sum further from 1; `evaluate` derives the exact limit from their digits.
MOST_ROUNDING = 0.1 + 1e-6
# Another column next to the classes changes sums by more than this, unless it is nearly 0 everywhere.
EXACT_SUM = 1e-3
SINGULAR = {"probabilities": "probability", "logits": "logit"}
NAME_CLASSES = (
    "name all class columns probability_NAME or logit_NAME, so that others are ignored, or name them with {columns},"
    " as in probability:NAME=COLUMN"
)
AS_NUMBERS = "write numbers, higher for more confident, in the same form in all rows"
OTHER_CUT_OFF = "use {positive} CLASS if the predictions come from another cut-off than 0.5"
OTHER_RULE = "leave out the column of predictions if another rule made them"


def refuse_other_columns(table: Array, names: list[str], label: Array) -> None:
    """Raise unless columns [n, K] without a prefix are the classes: labels [n] name each, or all rows sum to 1."""
    occurring = np.isin(np.arange(table.shape[1]), label)
    is_share = (table >= 0).all() and (np.abs(table.sum(axis=1) - 1) <= EXACT_SUM).all()
    if not occurring.all() and not is_share:
        unnamed = [name for name, there in zip(names, occurring, strict=True) if not there]
        raise InputError(
            f"expected only class columns besides label, but no label names {shown(unnamed)}, and the rows of all"
            " columns do not sum to 1",
            NAME_CLASSES + ", or use {probabilities} or {logits} if all of them are classes",
        )


def refuse_percentages(table: Array) -> None:
    """Raise if rows of probabilities [n, K] sum to 100."""
    if not len(table) or table.max() <= 1:
        return
    if (table >= 0).all() and (np.abs(table.sum(axis=1) - 100) <= 1).mean() > 0.5:
        raise InputError(
            "expected probabilities that sum to 1 in each row, but they sum to 100",
            "use {scale} 100 if they are percentages, or {logits}",
        )


def refuse_percentage(confidence: Array, name: str) -> None:
    """Raise if a confidence [n] may be a percentage: all values in [0, 100], the largest above any usual score."""
    if not len(confidence) or confidence.dtype.kind not in "fiu" or not 10 < confidence.max() <= 100:
        return
    if confidence.min() >= 0 and ((confidence == np.floor(confidence)).all() or confidence.max() > 50):
        raise InputError(
            f"expected a confidence up to 1, but {name[:80]!r} has values from {confidence.min():g} to"
            f" {confidence.max():g}, which may be percentages",
            "use {scale} 100 if they are, or {scale} 1 to rank by them as they are",
        )


def refuse_probability_of_a_class(
    label: Array, prediction: Array, confidence: Array, name: str, words: list[str] | None
) -> None:
    """Raise if a score [n] of two classes goes with the prediction, as the probability of one class does.

    A confidence of the predicted class is at least 0.5. Where it is not, the score is in doubt if a threshold on it
    gives the predictions, or nearly does at 0.5.
    """
    values = np.unique(np.concatenate([label, prediction]))
    low = confidence < 0.5
    if len(values) != 2 or not low.any() or confidence.min() < 0 or confidence.max() > 1:
        return
    for value in values:
        inside = prediction == value
        if _goes_with(confidence, low, inside):
            known = class_text(words, int(value))
            raise InputError(
                f"expected the confidence of the prediction, but {name[:80]!r} is below 0.5 in"
                f" {counted(int(low.sum()), 'row')} and high where the prediction is {known}, like the probability"
                " of that class",
                f"use {{positive}} {known} if it is, or {{columns}} confidence={name} if it is the confidence",
            )


def refuse_renamed_classes(label: Array, prediction: Array, names: list[str] | None) -> None:
    """Raise if labels and predictions [n] write classes in two ways: in another case, or numbered from 0 and 1.

    Most rows agree once the case is ignored or 1 is added, and no row does before.
    """
    known, answers = np.unique(label), np.unique(prediction)
    if len(label) < FEWEST_ROWS or np.isin(known, answers).all():
        return
    if names and not (label == prediction).any():
        folded = np.array([name.casefold() for name in names])
        if (folded[label] == folded[prediction]).mean() > 0.5:
            row = int(np.argmax(folded[label] == folded[prediction]))
            raise InputError(
                f"expected the same classes in label and prediction, but got {names[label[row]][:80]!r} and"
                f" {names[prediction[row]][:80]!r}",
                "write them with the same upper and lower case",
            )
    if names or len(known) < 2 or len(known) != len(answers):
        return
    for shift in (1, -1):
        if (known == answers + shift).all() and (label == prediction + shift).mean() > 0.5:
            raise InputError(
                f"expected the same classes in label and prediction, but the labels are {known[0]} to {known[-1]} and"
                f" the predictions {answers[0]} to {answers[-1]}",
                "number the classes of both from 0",
            )


def refuse_grades(label: Array, prediction: Array, columns: dict[str, str], names: list[str] | None) -> None:
    """Raise if labels [n] are only 0 and 1 although most predictions [n] are others: that looks like grades.

    `columns` gives the columns that hold the label and the confidence.
    """
    known, name = np.unique(label), columns["label"]
    odd = prediction[~np.isin(prediction, known)]
    if {class_text(names, number) for number in known.tolist()} == {"0", "1"} and len(odd) > len(label) / 2:
        raise InputError(
            f"expected labels that predictions can agree with, but {name!r} has only 0 and 1, and most predictions"
            f" are others, such as {class_text(names, int(odd[0]))[:40]}",
            f"if these are grades, use {{columns}} correct={name},confidence={columns['confidence']}, otherwise"
            f" label={name}",
        )


def unmatched_classes(label: Array, prediction: Array, names: list[str] | None) -> list[str]:
    """Notes on classes that occur several times, but among labels or predictions [n] alone."""
    pairs = {
        "labels that are never predicted": (label, prediction),
        "predictions that are never a label": (prediction, label),
    }
    notes = []
    for what, (these, others) in pairs.items():
        classes, counts = np.unique(these, return_counts=True)
        alone = np.setdiff1d(classes[counts >= FEWEST_ROWS], others)
        if len(alone):
            notes.append(f"{what}: {listed([class_text(names, number)[:40] for number in alone.tolist()])}")
    return notes


def _goes_with(score: Array, low: Array, inside: Array) -> bool:
    """Whether a score [n], low below 0.5, is high inside and low outside."""
    if inside.all() or not inside.any():
        return not inside.any() and low.mean() >= 0.9
    separated = score[inside].min() >= score[~inside].max() and score[inside].max() > score[~inside].min()
    return bool(separated or ((~low)[inside].mean() >= 0.9 and low[~inside].mean() >= 0.9))


def refuse_numbering_from_one(label: Array, table: Array) -> None:
    """Raise if class numbers [n] start at 1: none is 0, and they fit the table [n, K] better if each is one less."""
    if not len(label) or label.min() != 1 or label.max() > table.shape[1]:
        return
    largest = table.argmax(axis=1)
    if label.max() == table.shape[1] or (largest == label - 1).sum() > (largest == label).sum():
        raise InputError(
            f"expected class numbers from 0 to {table.shape[1] - 1}, but the labels are {label.min()} to"
            f" {label.max()}, which seem to start at 1",
            "subtract 1, or name the classes with {columns}, as in probability:1=COLUMN",
        )


def kind_of(table: Array) -> str:
    """Whether values are probabilities or logits if no name says so; an error if unclear."""
    inside = ((table >= 0) & (table <= 1)).all(axis=1)
    fitting = (table >= 0).all(axis=1) & (np.abs(table.sum(axis=1) - 1) <= MOST_ROUNDING)
    if fitting.all() or inside.all():
        return "probabilities"
    if fitting.mean() <= 0.5:
        return "logits"
    raise InputError(
        "expected probabilities that sum to 1 in each row, or logits, but got a mixture: see row"
        f" {int((~fitting).argmax())}",
        "name the columns probability_NAME or logit_NAME to say which they are, or use {probabilities} or {logits}",
    )


def check_prediction(prediction: Array | None, table: Array, kind: str, remedy: str) -> None:
    """Raise if a prediction is not a class with the largest value of its row of the table [n, K]."""
    if prediction is not None and (row := first_not_largest(prediction, table)) is not None:
        raise InputError(
            f"expected the prediction to be the class with the largest of the {kind}, but row {row} predicts class"
            f" {prediction[row]} where class {table[row].argmax()} is largest",
            remedy,
        )


def refuse_joined_grades(label: Column, prediction: Column, name: str) -> None:
    """Raise if labels of another file are only 0 and 1 although predictions are others: these are grades."""
    given = prediction.values if isinstance(prediction, Text) else np.unique(prediction[~is_missing(prediction)])
    values = label.values if isinstance(label, Text) else np.unique(label[~is_missing(label)])
    odd = [cell_text(value) for value in given if cell_text(value) not in ("0", "1", *MISSING)]
    if odd and {cell_text(value) for value in values} <= {"0", "1", *MISSING}:
        raise InputError(
            f"expected labels that answers can agree with, but {name!r} of the other file has only 0 and 1, and the"
            f" answers have others, such as {odd[0][:40]}",
            f"if these are grades, use {{columns}} correct={name}, otherwise label={name}",
        )

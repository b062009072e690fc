"""Doubts about what a file holds: each is an error that says how to settle it."""

import numpy as np

from confrank.errors import InputError, class_text, counted
from confrank.errors import named as listed
from confrank.metrics.samples import first_not_largest
from confrank.predictions.cells import NAME_CLASSES, Column, Text, number
from confrank.predictions.classes import shown
from confrank.predictions.schema import Array

# Classes that label and prediction write in two ways show only in this many rows: fewer may be wrong answers.
FEWEST_ROWS = 5
# No row of rounded probabilities may sum further from 1; `evaluate` derives the exact limit from their digits.
MOST_ROUNDING = 0.1 + 1e-6
AS_NUMBERS = "write numbers, higher for more confident, in the same form in all rows"
OTHER_CUT_OFF = "use {positive} CLASS if the predictions come from another cut-off than 0.5"
OTHER_RULE = "leave out the column of predictions if another rule made them"


def bare_kind(table: Array, label: Array, names: list[str] | None) -> tuple[str, list[str]]:
    """Whether columns without a prefix [n, K] are probabilities or logits, and the columns that no label names.

    Such columns may be classes that never occur, or no classes at all; the latter is an error if the values show it.
    """
    occurring = np.isin(np.arange(table.shape[1]), label)
    if names is None or occurring.all() or not occurring.any():
        return kind_of(table), []
    unnamed = [name for name, there in zip(names, occurring, strict=True) if not there]
    reason = _against_unnamed(table, occurring)
    if reason:
        raise InputError(
            f"expected only class columns besides label, but no label names {shown(unnamed)}, and {reason}",
            NAME_CLASSES,
        )
    return kind_of(table), unnamed


def refuse_odd_columns(table: Array, names: list[str], doubtful: list[str] | None = None) -> None:
    """Raise if a column [n] among class columns without a prefix [n, K] looks like something else.

    It is constant, or holds whole numbers where others do not (a fold, an age), or the other columns sum to 1 without
    it. Columns that labels call by name are not `doubtful`.
    """
    if len(table) < 3 or table.shape[1] < 3:
        return
    constant, whole = (table == table[0]).all(axis=0), (table == np.floor(table)).all(axis=0)
    total = table.sum(axis=1)
    for column, name in enumerate(names):
        why = None
        if constant[column]:
            why = "is constant"
        elif whole[column] and not whole.all():
            why = "has whole numbers alone"
        elif (np.abs(total - table[:, column] - 1) <= 1e-3).all() and (np.abs(total - 1) > MOST_ROUNDING).any():
            why = "is something else: without it, rows sum to 1"
        if why and (doubtful is None or name in doubtful):
            raise InputError(f"expected only class columns besides label, but {name[:80]!r} {why}", NAME_CLASSES)


def refuse_total(column: Column, name: str) -> None:
    """Raise if a column of class names ends in a number: spreadsheets put counts or sums under the last row."""
    if not isinstance(column, Text) or len(column) < 3:
        return
    last = int(column.codes[-1])
    is_number = [number(value) is not None for value in column.values]
    if is_number[last] and sum(is_number) == 1 and int((column.codes == last).sum()) == 1:
        raise InputError(
            f"expected names of classes in {name!r}, but got {column.values[last]!r} in the last row",
            "remove this row if it holds totals",
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


def _against_unnamed(table: Array, occurring: Array) -> str | None:
    """Why the columns that no label names cannot be classes, if the values [n, K] show it."""
    named, unnamed = table[:, occurring], table[:, ~occurring]
    with np.errstate(over="ignore", invalid="ignore"):
        if _are_spoilt(named, table) or (_within(named, 1) and not _within(unnamed, 1 + 1e-6)):
            return "without them the other columns look like probabilities"
        if _are_spoilt(np.exp(named), np.exp(table)):
            return "without them the other columns are logarithms of probabilities"
    largest = np.bincount(table.argmax(axis=1), minlength=table.shape[1])
    if largest[~occurring].max() > len(table) / 2:
        return "one of them is the largest in most rows"
    return None


def _are_spoilt(named: Array, table: Array) -> bool:
    """Whether the named columns are distributions by themselves and the complete table is less so."""
    off, table_off = (np.abs(part.sum(axis=1) - 1) for part in (named, table))
    return bool(_within(named, np.inf) and (off <= MOST_ROUNDING).all() and table_off.mean() > off.mean() + 1e-5)


def _within(table: Array, limit: float) -> bool:
    return bool(((table >= 0) & (table <= limit)).all())


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

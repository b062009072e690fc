"""Predictions from any source: open a table, join another, say which column is what, check what they hold."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from confrank.errors import InputError, about, class_text, counted, named
from confrank.files import canonical_safetensors, write_atomically
from confrank.metrics.inputs import ROUNDING, Classes, HasArray, as_classes, cell_text, to_numpy
from confrank.metrics.samples import first_not_largest
from confrank.predictions import doubts
from confrank.predictions.arrays import of_memory
from confrank.predictions.joining import NOT_UNIQUE, display_name, distinct_keys, joined
from confrank.predictions.predictions import Array, Predictions
from confrank.predictions.roles import (
    KEY_NAMES,
    LOG_NAMES,
    WEAK_LABELS,
    Kind,
    Roles,
    Said,
    Scale,
    assign_roles,
    holds_class_names,
    shown,
)
from confrank.predictions.tables import (
    Column,
    Columns,
    Table,
    Text,
    Wanted,
    is_missing,
    number,
    numbers_if_all,
    numbers_of,
    open_table,
)
from confrank.spreadsheet import csv_text

TRUTH = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
# What people write in a column `correct`; a label may be such a word.
CORRECT = TRUTH | {"y": True, "n": False, "right": True, "wrong": False, "correct": True, "incorrect": False}
# Roles whose cells may be words.
WORDS = ("label", "prediction", "correct", "submitted")
# Roles that need a value in each row.
NEEDED = (*WORDS, "logits", "probabilities", "outputs", "confidence")
NAME_ARRAYS = (
    "for names, write a column probability_NAME of each class, an array class_names in class order, or in JSON"
    ' objects such as {"cat": 0.9, "dog": 0.1}'
)


@np.errstate(over="ignore", invalid="ignore")  # infinite values are refused when they are evaluated
def read(
    path: str | Path | HasArray,
    columns: Mapping[str, str] | None = None,
    truth: str | Path | HasArray | None = None,
    on: str | None = None,
    positive: str | None = None,
    scale: Scale | None = None,
    *,
    logits: bool = False,
    probabilities: bool = False,
    skip_missing: bool = False,
    keep: Sequence[str] = (),
    max_gigabytes: float | None = None,
    labelled: bool = True,
    classes: Classes | None = None,
    like: Mapping[str, Any] | None = None,
) -> Predictions:
    """Predictions from a file, the parts in a folder, a URI such as s3://bucket/folder, or a data frame.

    `columns` gives columns to roles, as in `{"label": "gold", "confidence": "conf"}`, with `probability:NAME` or
    `logit:NAME` for the column of a class; the others follow from their names. The labels may be in another source,
    `truth`, joined by a column that both have, or `on`. `positive` names the class whose probability the score is.
    Probabilities or confidences are divided by `scale`, or are logarithms if it is "log". `logits` or `probabilities`
    says what class columns hold; `skip_missing` drops rows without a label, prediction or score. The columns in
    `keep` are in `.extra` of the result, as they are in the source. A compressed file that unpacks to more than
    `max_gigabytes` (default: 2) is refused. With `labelled=False`, no labels are needed, and none are read. `classes`
    are the names of the classes, so that columns with other names are not taken for classes. `like` is the `.reading`
    of another source, which a policy records: what was said about it counts here too.

    A doubt is an error that names the argument that settles it.
    """
    if logits and probabilities:
        raise InputError("expected logits or probabilities, but got both", "choose {logits} or {probabilities}")
    if on is not None and truth is None:
        raise InputError(f"expected a file of labels to join by {on!r}, but got none", "add {truth}")
    kind: Kind | None = "logits" if logits else "probabilities" if probabilities else None
    known = None if classes is None else [cell_text(name) for name in to_numpy(classes).tolist()]
    said = Said(dict(columns or {}), tuple(keep), positive, scale, kind, skip_missing, labelled, known)
    wanted = {*said.columns.values(), *said.keep, *(on or "").split("=")}
    name = str(path) if isinstance(path, str | Path) else "the data frame"
    with about(name):
        table = with_score_named(open_table(path, max_gigabytes, wanted))
        header = table.names
        if truth is None:
            asked, recalled = said.recalling(like or {}, header)
            roles = assign_roles(table, asked)
            predictions = _checked(table, roles, asked)
        else:
            truth_name = str(truth) if isinstance(truth, str | Path) else "the data frame of labels"
            with about(truth_name):
                labels = open_table(truth, max_gigabytes, wanted)
            asked, recalled = said.recalling(like or {}, [*header, *labels.names])
            table, said = joined(table, labels, asked, on, truth_name)
            roles = assign_roles(table, said)
            predictions = _checked(table, roles, said, may_be_grades="label" not in asked.columns)
    scores = ("probabilities", "logits", "outputs", "submitted", "confidence")
    values = [*roles.classes, *(roles.columns[role] for role in scores if role in roles.columns)]
    return replace(
        predictions,
        notes=(*recalled, *predictions.notes),
        roles=_shown_roles(header, roles, predictions),
        reading=asked.record(values),
    )


def predictions_of(table: Table) -> Predictions:
    """The predictions of a table that needs no explanation."""
    return _checked(table, assign_roles(table, Said()), Said())


def _checked(table: Table, roles: Roles, said: Said, *, may_be_grades: bool = True) -> Predictions:
    """The columns of a table, checked and on their scales; what is in doubt is an error."""
    words = [name for role, name in roles.columns.items() if role in WORDS]
    keys = [name for role, name in roles.columns.items() if role in KEY_NAMES]
    numbers = [name for role, name in roles.columns.items() if role not in (*WORDS, *KEY_NAMES)]
    loaded = table.load(Wanted(numbers, [*words, *roles.extra.values()], keys, roles.classes))
    if not len(loaded):
        raise ValueError("expected rows of predictions, but there are none")
    loaded, notes = _without_missing(loaded, table, roles, said)
    cells = {role: loaded.named[name] for role, name in roles.columns.items()}
    for role in WORDS:
        may_be_named = roles.class_names is not None and role in ("label", "prediction")
        if role in cells and not table.typed and not may_be_named:
            cells[role] = numbers_if_all(cells[role])
    if table.truth == "label" and may_be_grades and "prediction" in cells:
        doubts.refuse_joined_grades(cells["label"], cells["prediction"], display_name(roles.columns["label"]))
    identity, metadata, unused = distinct_keys({name: cells.pop(name) for name in KEY_NAMES if name in cells})
    repeated = [name.removesuffix(NOT_UNIQUE) for name in unused if name.endswith(NOT_UNIQUE)]
    if repeated and not identity and "cluster" not in roles.extra:
        notes.append(f"{repeated[0]} repeats, so rows may depend on each other")
    ignored = [name.strip() or "a column without name" for name in roles.ignored]
    ignored = [name for name in ignored if not (table.class_names and holds_class_names(name))] + unused
    metadata = table.metadata | metadata | ({"ignored": shown(ignored)} if ignored else {})
    arrays = _arrays(cells, loaded.classes, table, roles, said, notes, metadata)
    if "correct" in cells:
        arrays["correct"] = _flags(cells["correct"])
    if "index" in cells:
        arrays["index"] = whole_numbers(numbers_of(cells["index"], "index"), "index")
    extra = {}
    for name, column in roles.extra.items():
        values = loaded.named[column]
        extra[name] = numbers_of(values, name) if name == "sample_weight" else raw_cells(values)
    return Predictions(**arrays, **identity, extra=extra, metadata=metadata, notes=tuple(notes), rows=loaded.rows)


def _arrays(
    cells: dict[str, Column],
    columns: Array | None,
    table: Table,
    roles: Roles,
    said: Said,
    notes: list[str],
    metadata: dict[str, str],
) -> dict[str, Any]:
    """Label, prediction, and probabilities, logits or a confidence, with what is doubtful about them refused."""
    if isinstance(label := cells.get("label"), np.ndarray) and label.ndim == 2:
        cells["label"] = _of_one_hot(label)
        metadata["labels"] = "one-hot"
    weak = roles.columns.get("label", "").strip()
    if weak.lower() in WEAK_LABELS and "label" not in roles.declared:
        notes.append(f"{weak} read as the label")
    scores, kind = _scores(cells, columns, roles, said, notes)
    confidence = _confidence(cells, roles, said, notes)
    names, typed = table.class_names or roles.class_names, table.typed
    classes: dict[str, Column] = {role: cells[role] for role in ("label", "prediction") if role in cells}
    if said.positive is not None:
        score = scores[:, 0] if scores is not None and scores.shape[1] == 1 else confidence
        classes, scores, confidence, names = _with_positive(classes, score, said, notes)
        kind, typed = "probabilities", True
    words = classes.get("label")
    by_name = isinstance(words, Text) and names is not None and {*words.values} <= {*names}
    numbers, names, ambiguous = class_numbers(classes, names, typed=typed, has_table=scores is not None)
    if ambiguous:
        metadata["labels"] = "read as names of classes, not as their numbers"
    arrays: dict[str, Any] = numbers | ({} if confidence is None else {"confidence": confidence})
    prediction = numbers.get("prediction")
    if scores is not None and scores.shape[1] == 1:
        kind, scores = _of_class_1(scores[:, 0], numbers.get("label"), kind)
        metadata["binary"] = f"a single column read as the {doubts.SINGULAR[kind]} of class 1"
        doubts.check_prediction(prediction, scores, kind, doubts.OTHER_CUT_OFF)
        return arrays | {kind: scores}
    if names:
        metadata["class_names"] = json.dumps(names)
    if scores is not None:
        if names and len(names) != scores.shape[1]:
            raise ValueError(f"expected {scores.shape[1]} class names, as many as classes, but got {len(names)}")
        if kind != "logits":
            doubts.refuse_percentages(scores)
        if roles.is_bare and said.labelled and kind is None:
            named_by = numbers["label"] if by_name or names is None else numbers["label"][:0]
            doubts.refuse_other_columns(scores, roles.classes, named_by)
        if not by_name and "label" in numbers:
            doubts.refuse_numbering_from_one(numbers["label"], scores)
        remedy = doubts.NAME_CLASSES if kind is None else doubts.OTHER_RULE
        kind = kind or doubts.kind_of(scores)
        doubts.check_prediction(prediction, scores, kind, remedy)
        return arrays | {kind: scores}
    if {"label", "prediction", "confidence"} <= {*arrays}:
        doubts.refuse_renamed_classes(arrays["label"], arrays["prediction"], names)
        if table.truth is None and "label" not in roles.declared:
            columns_of = {role: roles.columns.get(role, role) for role in ("label", "confidence")}
            doubts.refuse_grades(arrays["label"], arrays["prediction"], columns_of, names)
        if "confidence" not in roles.declared and said.positive is None:
            name = roles.columns.get("confidence", "confidence")
            doubts.refuse_probability_of_a_class(
                arrays["label"], arrays["prediction"], arrays["confidence"], name, names
            )
        notes += doubts.unmatched_classes(arrays["label"], arrays["prediction"], names)
    return arrays


def with_score_named(table: Table) -> Table:
    """The table of one array without a name under the name of what it holds.

    Values [n] are the probability of class 1, or its logit if some are negative: rounding may leave probabilities a
    little outside [0, 1], and percentages are never negative.
    """
    if not table.alone:
        return table
    values = table.load(Wanted(table.names)).named[table.names[0]]
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
        raise InputError(
            f"expected logits or probabilities [n, K], or rows of (confidence, correct), but got {len(values):,} of"
            f" {'words' if isinstance(values, Text) else values.dtype}",
            "give the labels of one array as {truth}, otherwise put all arrays into one npz file with their names",
        )
    kind = doubts.kind_of(values) if values.ndim == 2 else "logits" if (values < -ROUNDING).any() else "probabilities"
    return of_memory({kind: values}, {})


def _without_missing(loaded: Columns, table: Table, roles: Roles, said: Said) -> tuple[Columns, list[str]]:
    """The rows without missing values, and notes with one on the others; an error unless they may be skipped."""
    notes = [*loaded.notes]
    needed = {role: name for role, name in roles.columns.items() if role in NEEDED}
    needed |= {role: name for role, name in roles.extra.items() if role == "sample_weight"}
    known = {*(table.class_names or roles.class_names or ())}
    flags: dict[str, Array] = {}
    for role, name in needed.items():
        column = loaded.named[name]
        missing = is_missing(column)
        if isinstance(column, Text) and role in ("label", "prediction"):  # a class may be called None
            missing &= ~np.array([value in known for value in column.values], dtype=bool)[column.codes]
        if missing.any():
            flags[role] = missing
    if loaded.classes is not None and (missing := is_missing(loaded.classes)).any():
        flags["class columns"] = missing
    if not flags:
        return loaded, notes
    if not said.skip_missing:
        role, missing = next(iter(flags.items()))
        rows = [str(row) for row in np.flatnonzero(missing).tolist()]
        name = needed.get(role, role)
        cells = loaded.named.get(name)
        word = cells.values[int(cells.codes[int(missing.argmax())])] if isinstance(cells, Text) else ""
        raise InputError(
            f"expected a value of {display_name(name)!r} in each row, but {len(rows):,} of {len(loaded):,} have none:"
            f" rows {named(rows)}{f' ({word!r}; rename it if it is a class)' if word else ''}",
            "drop such rows with {skip_missing}",
        )
    missing = np.any(list(flags.values()), axis=0)
    if missing.all():
        raise ValueError(f"expected rows with {' and '.join(flags)}, but all {len(loaded):,} lack it")
    notes.append(f"{counted(int(missing.sum()), 'row')} without {' or '.join(flags)} skipped")
    return loaded.select(~missing), notes


# Scores


def _scores(
    cells: dict[str, Column], classes: Array | None, roles: Roles, said: Said, notes: list[str]
) -> tuple[Array | None, str | None]:
    """Probabilities or logits [n, K] on their scale, and which of them, if it is known."""
    found = [role for role in ("probabilities", "logits", "outputs", "submitted") if role in cells]
    if len(found) > 1:
        raise InputError("expected probabilities or logits, but got both", "choose with {columns}")
    table, kind = classes, roles.kind
    if found:
        role = found[0]
        name = display_name(roles.columns[role])
        column = cells.pop(role)
        table = np.zeros(0) if role == "submitted" and isinstance(column, Text) else numbers_of(column, name)
        if role == "submitted":
            if not len(table) or not ((table >= 0) & (table <= 1)).all() or (table == np.floor(table)).all():
                raise InputError(
                    f"expected probabilities or a confidence, but {name!r} holds classes alone",
                    "add a column of the confidence of each prediction",
                )
            kind = "probabilities"
        elif role != "outputs":
            kind = kind or role
        table = table[:, None] if table.ndim == 1 else table
    if table is None or said.scale is None:
        return table, kind
    if kind == "logits":
        raise InputError("expected probabilities or a confidence to scale, but got logits", "leave out {scale}")
    if said.scale == "log":
        notes.append("probabilities read as logarithms")
        return np.exp(table), kind
    notes.append(f"probabilities divided by {said.scale:g}")
    return table / said.scale, kind


def _confidence(cells: dict[str, Column], roles: Roles, said: Said, notes: list[str]) -> Array | None:
    """The confidence on its scale."""
    if "confidence" not in cells:
        return None
    name = roles.columns["confidence"]
    try:
        values = numbers_of(cells.pop("confidence"), name)
    except ValueError as error:
        raise InputError(str(error), doubts.AS_NUMBERS) from None
    if values.ndim != 1:
        raise ValueError(f"expected numbers in column {name!r}, but got lists of them")
    if said.scale == "log" or (said.scale is None and name.strip().lower() in LOG_NAMES):
        if values.max(initial=0) > 1e-6:
            row = int((values > 1e-6).argmax())
            raise ValueError(
                f"expected logarithms of probabilities in {name!r}, but got {values[row]:g} in row {row}"
            )
        notes.append(f"{name} read as logarithms of the confidence")
        return np.exp(np.minimum(values, 0))
    if said.scale is not None:
        doubt = ", although none of its values is above 1" if said.scale >= 10 and values.max() <= 1 else ""
        notes.append(f"{name} divided by {said.scale:g}{doubt}")
        return values / said.scale
    doubts.refuse_percentage(values, name)
    return values


def _of_class_1(single: Array, label: Array | None, kind: str | None) -> tuple[str, Array]:
    """The probabilities or logits [n, 2] of classes 0 and 1 from those of class 1 [n]."""
    if label is not None and (wrong := (label != 0) & (label != 1)).any():
        row = int(wrong.argmax())
        raise InputError(
            f"expected labels 0 and 1 with a single column of {kind or 'probabilities'}, which is that of class 1,"
            f" but got {label[row]} in row {row}",
            "give a column probability_NAME for each class, or use {columns} confidence=COLUMN if it belongs to the"
            " predicted class, or {positive} NAME",
        )
    if kind == "logits":
        return kind, np.stack([np.zeros(len(single)), single], axis=1)
    return "probabilities", _both_classes(single)


def _both_classes(single: Array) -> Array:
    second = single.astype(np.float64)
    return np.stack([1 - second, second], axis=1)


def _with_positive(
    columns: dict[str, Column], score: Array | None, said: Said, notes: list[str]
) -> tuple[dict[str, Column], Array | None, Array | None, list[str] | None]:
    """Classes, probabilities [n, 2], confidence [n] and class names, if `score` [n] is the probability of a class.

    Predictions that are not the more probable class, say by another threshold than 0.5, keep the probability of what
    they predict as confidence. Without labels, the classes that the caller knows are both of them; without these too,
    only the confidence of the predictions is known.
    """
    positive = str(said.positive)
    if score is None or (said.classes is None and not columns):
        raise InputError("expected label and the score of a class, but got others", "leave out {positive}")
    texts = {role: _as_text(column, {}, role) for role, column in columns.items()}
    values = {value for text in texts.values() for value in text.values} | {*(said.classes or ())}
    if positive not in values and len(values) > 1:
        raise InputError(f"expected a class among {shown(sorted(values))}, but got {positive!r}", "change {positive}")
    values.add(positive)
    if len(values) > 2:
        raise InputError(
            f"expected two classes with a score of one of them, but got {shown(sorted(values))}",
            "leave out {positive}",
        )
    if len(values) == 1:
        values.add({"0": "1", "1": "0"}.get(positive, f"not {positive}"))
    names = sorted(values, key=lambda value: (whole_number(value) is None, whole_number(value) or 0, value))
    if score.min(initial=0) < 0 or score.max(initial=0) > 1:
        raise InputError(
            f"expected the probability of {positive!r}, but got values from {score.min():g} to {score.max():g}",
            "use {scale} 100 if they are percentages, or write 1 / (1 + exp(-x)) of each if they are logits",
        )
    numbers: dict[str, Column] = {}
    for role, text in texts.items():
        numbers[role] = np.array([names.index(value) for value in text.values])[text.codes]
    table = _both_classes(score if names[1] == positive else 1 - score)
    notes.append(f"the score read as the probability of {positive}")
    prediction = numbers.get("prediction")
    is_larger = isinstance(prediction, np.ndarray) and first_not_largest(prediction, table) is None
    kept = None if names == ["0", "1"] else names
    if not isinstance(prediction, np.ndarray) or (is_larger and ("label" in columns or said.classes is not None)):
        return numbers, table, None, kept
    more = "" if is_larger else ", which is not always the more probable one"
    notes.append(f"the confidence is the probability of the predicted class{more}")
    return numbers, None, table[np.arange(len(table)), prediction], kept


# Classes


def class_numbers(
    columns: Mapping[str, Column], names: list[str] | None, *, typed: bool, has_table: bool
) -> tuple[dict[str, Array], list[str] | None, bool]:
    """Class numbers of label and prediction, the names of the classes, and whether names might also be numbers.

    Without a table, the names are those that occur, unless all of them are numbers. In a `typed` table, numbers are
    class numbers; elsewhere all columns are read in the same way, as names if they can be.
    """
    texts = [column for column in columns.values() if isinstance(column, Text)]
    if not has_table and names is None and texts:
        occurring = [{*_as_text(column, {}, role).values} for role, column in columns.items()]
        numeric = [all(whole_number(value) is not None for value in values) for values in occurring]
        if any(numeric) and not all(numeric) and not set.intersection(*occurring):
            raise ValueError("expected names in both label and prediction, or numbers in both, but got one of each")
        names = None if all(numeric) else sorted(set.union(*occurring))
    numbers: dict[str, Array] = {}
    groups: list[dict[str, Column]] = [dict(columns)]
    if names is None:
        for role, column in columns.items():
            numbers[role] = whole_numbers(_whole_values(column, role), role)
        return numbers, None, False
    if typed:
        groups = [{role: column} for role, column in columns.items() if isinstance(column, Text)]
        for role, column in columns.items():
            if not isinstance(column, Text):
                numbers[role] = whole_numbers(column, role)
    is_ambiguous = False
    for group in groups:
        found, is_ambiguous = _by_name(group, names)
        numbers |= found
    return numbers, names, is_ambiguous and not typed


def _by_name(columns: Mapping[str, Column], names: list[str]) -> tuple[dict[str, Array], bool]:
    index_of = {name: index for index, name in enumerate(names)}
    texts = {role: _as_text(column, index_of, role) for role, column in columns.items()}
    values = {value for text in texts.values() for value in text.values}
    are_names = all(value in index_of for value in values)
    are_indices = all(value.isascii() and value.isdigit() and len(value) < 16 for value in values)
    if not are_names and not are_indices:
        for role, text in texts.items():
            refuse_values(
                text,
                [value not in index_of for value in text.values],
                "a class name or a class index",
                role,
                f"the classes are {shown(names)}, unless you name them with {{columns}}, as in"
                " probability:NAME=COLUMN",
            )
    if are_names and len(index_of) < len(names):
        twice = [name for name in index_of if names.count(name) > 1]
        raise ValueError(
            f"expected a distinct name for each class of {' and '.join(columns)}, but got {shown(twice)} more than"
            " once; give class numbers"
        )
    numbers = {}
    for role, text in texts.items():
        codes = [index_of[value] if are_names else int(value) for value in text.values]
        numbers[role] = np.array(codes, dtype=np.int64)[text.codes]
    other = are_indices and any(index_of[value] != int(value) < len(names) for value in values if value in index_of)
    return numbers, are_names and other


def _as_text(column: Column, index_of: Mapping[str, int], role: str) -> Text:
    """A column as text: integers lose their decimals (1.0 becomes 1), unless that text is itself a class name."""
    if isinstance(column, Text):
        values = []
        for value in column.values:
            whole = None if value in index_of else whole_number(value)
            values.append(value if whole is None else str(whole))
        return Text(column.codes, values)
    if column.dtype == bool and "True" in index_of:  # so does Python name these classes
        return Text(column.astype(np.int64), ["False", "True"])
    distinct, codes = np.unique(whole_numbers(column, role), return_inverse=True)
    return Text(codes, [str(whole) for whole in distinct])


def _whole_values(column: Column, role: str) -> Array:
    """Numbers of words such as 1, 2.0 or True."""
    if not isinstance(column, Text):
        return column
    numbers = [TRUTH.get(value.lower(), whole_number(value)) for value in column.values]
    refuse_values(column, [whole is None for whole in numbers], "a class index", role, NAME_ARRAYS)
    return np.array(numbers, dtype=np.int64)[column.codes]


def refuse_values(column: Text, wrong: list[bool], expected: str, role: str, remedy: str = "") -> None:
    """Raise if one of the distinct values is wrong; the error has the first row with it."""
    for code, value in enumerate(column.values):
        if wrong[code]:
            row = column.first_row(code)
            raise InputError(f"expected {expected} in {role}, but got {value[:80]!r} in row {row}", remedy)


def whole_number(value: str) -> int | None:
    """
    >>> whole_number(" 3.0"), whole_number("01"), whole_number("3.5"), whole_number("cat")
    (3, 1, None, None)
    """
    read = number(value)
    if read is None or not np.isfinite(read) or read != int(read) or abs(read) >= 2**53:
        return None
    return int(read)


def whole_numbers(column: Array, role: str) -> Array:
    if column.dtype.kind == "u" and len(column) and column.max() > np.iinfo(np.int64).max:
        row = int(column.argmax())
        raise ValueError(
            f"expected whole numbers below 2**63 in {role}, but got {column[row]} in row {row},"
            " which may be a negative number written as an unsigned one"
        )
    if column.dtype.kind in "iu":
        return column.astype(np.int64, copy=False)
    if column.dtype.kind not in "fb" or column.ndim != 1:
        raise ValueError(f"expected whole numbers in {role}, but got values of type {column.dtype}")
    wrong = ~np.isfinite(column) | (column != np.floor(column)) | (np.abs(column) >= 2**53)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"expected whole numbers in {role}, but got {column[row]} in row {row}")
    return column.astype(np.int64)


def _of_one_hot(label: Array) -> Array:
    """Class numbers [n] from rows [n, K] with a single 1 among zeros."""
    if not ((label == 0) | (label == 1)).all() or (label.sum(axis=1) != 1).any():
        raise ValueError(
            "expected label to be class numbers [n], or rows [n, K] with a single 1 among zeros, but got others of"
            f" shape {list(label.shape)}"
        )
    classes: Array = label.argmax(axis=1)
    return classes


def _flags(column: Column) -> Array:
    """Whether answers are right, as numbers or words say."""
    if isinstance(column, Text):
        flags = [CORRECT.get(value.lower()) for value in column.values]
        expected = "true or false, yes or no, right or wrong, correct or incorrect, or 1 or 0"
        refuse_values(column, [flag is None for flag in flags], expected, "correct")
        return np.array(flags, dtype=bool)[column.codes]
    wrong = (column != 0) & (column != 1)
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(
            f"expected only 0 and 1 in correct, but got {column[row]:g} in row {row}",
            "decide from which grade on an answer counts as right, and write 1 for those and 0 for the others",
        )
    return column.astype(bool)


def raw_cells(column: Column) -> Array:
    """A column [n] as it is in the file: numbers, or text as an array of str objects."""
    if isinstance(column, Text):
        return np.array(column.values, dtype=object)[column.codes]
    if column.dtype.kind in "SO":
        return np.array([cell.decode(errors="replace") for cell in column.tolist()], dtype=object)
    return column


def _shown_roles(header: Sequence[str], roles: Roles, predictions: Predictions) -> dict[str, str]:
    """What each column was taken for."""
    found = dict.fromkeys(header, "ignored")
    kind = "logit" if predictions.logits is not None else "probability"
    names = roles.class_names or [str(number) for number in range(len(roles.classes))]
    for class_name, column in zip(names, roles.classes, strict=True):
        found[column] = f"{kind} of class {1 if len(names) == 1 else class_name}"
    for role, column in roles.columns.items():
        is_repeated = role in KEY_NAMES and role not in predictions.keys
        found[column] = "ignored (not unique)" if is_repeated else "key" if role in KEY_NAMES else role
    for name, column in roles.extra.items():
        if found.get(column) == "ignored":
            found[column] = f"kept as {name}"
    if predictions.class_names:
        for column in header:
            if found[column] == "ignored" and holds_class_names(column) and column not in roles.columns.values():
                found[column] = "names of the classes"
    return {column: found[column] for column in header}


# Write


def load_predictions(path: str | Path) -> Predictions:
    """Read a file of predictions that needs no explanation; see `read`."""
    return read(path)


def save_predictions(path: str | Path, predictions: Predictions) -> None:
    """Write predictions as .safetensors, or as .csv, atomically, after checking that `load_predictions` reads them.

    A CSV file has a column for each key, `index`, `label`, `prediction`, `correct` and `confidence`, and
    `probability_NAME` or `logit_NAME` for each class. It does not say which model the predictions are of.
    """
    path = Path(path)
    if path.suffix.lower() not in (".safetensors", ".csv"):
        raise ValueError(f"expected a predictions file ending in .safetensors or .csv to write, but got {path}")
    checked = predictions.arrays()
    checked.pop("key", None)
    predictions_of(of_memory(checked, predictions.metadata))
    if path.suffix.lower() == ".csv":
        columns = _columns(predictions)
        write_atomically(path, csv_text([[*columns], *zip(*columns.values(), strict=True)]))
        return
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(value) for name, value in predictions.arrays().items()}
    arrays.pop("key", None)
    for name, keys in predictions.keys.items():  # the format has no strings
        if name not in KEY_NAMES:
            raise ValueError(f"expected keys to be named one of {', '.join(KEY_NAMES)}, but got {name!r}")
        arrays[name] = np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), -1)
    write_atomically(path, canonical_safetensors(save(arrays, metadata=predictions.metadata)))


def _columns(predictions: Predictions) -> dict[str, list[Any]]:
    """The columns of predictions in a CSV file, with classes by name if they have names."""
    names, arrays = predictions.class_names, predictions.arrays()
    columns: dict[str, list[Any]] = {}
    for name, keys in predictions.keys.items():
        columns[name] = [bytes(key).decode(errors="surrogateescape") for key in keys]
    for name in ("index", "label", "prediction", "correct", "confidence"):
        if name in arrays:
            columns[name] = (arrays[name] * 1).tolist()  # 1 or 0 for True or False
    for name in ("label", "prediction"):
        if name in arrays:
            columns[name] = [class_text(names, number) for number in as_classes(arrays[name], name).tolist()]
    for name, kind in (("logits", "logit"), ("probabilities", "probability")):
        if name in arrays:
            columns |= {f"{kind}_{class_text(names, k)}": values.tolist() for k, values in enumerate(arrays[name].T)}
    return columns

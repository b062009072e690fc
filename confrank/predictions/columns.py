"""Predictions from the columns of a file: missing rows, scales, classes, and doubts about them."""

import json
from typing import Any

import numpy as np

from confrank.errors import InputError, counted, named
from confrank.predictions.binary import both_classes, checked_binary, with_positive
from confrank.predictions.cells import CORRECT, NAME_CLASSES, Column, Text, is_missing, numbers_of_text, raw_cells
from confrank.predictions.classes import numbered, refuse_values, shown, whole_numbers
from confrank.predictions.content import Content
from confrank.predictions.doubts import (
    AS_NUMBERS,
    OTHER_CUT_OFF,
    OTHER_RULE,
    bare_kind,
    check_prediction,
    refuse_grades,
    refuse_numbering_from_one,
    refuse_odd_columns,
    refuse_percentage,
    refuse_percentages,
    refuse_probability_of_a_class,
    refuse_renamed_classes,
    refuse_total,
    unmatched_classes,
)
from confrank.predictions.keys import distinct_keys, refuse_repeats
from confrank.predictions.layout import Layout
from confrank.predictions.names import KEY_NAMES, LOG_NAMES, WEAK_LABELS, holds_class_names
from confrank.predictions.reading import Reading
from confrank.predictions.schema import ARRAYS, Array, Predictions

CHECKED = {*ARRAYS, "outputs", "submitted", "extra:sample_weight"} - {"index", "key"}


@np.errstate(over="ignore", invalid="ignore")  # infinite values are refused when they are evaluated
def predictions_of(content: Content, layout: Layout, reading: Reading) -> Predictions:
    """Predictions from the columns that a reader gives; doubts are errors that say how to settle them."""
    content, notes = _without_missing(content, layout, reading)
    notes = [*content.notes, *notes]
    columns = dict(content.columns)
    extra = {name: _extra(name, columns.pop(f"extra:{name}")) for name in layout.extra}
    keys, metadata, unused = _keys({name: columns.pop(name) for name in KEY_NAMES if name in columns}, layout)
    table, kind = _table(columns, content.table, layout)
    table = _scaled(table, kind, reading, notes)
    names = content.class_names or layout.class_names
    confidence = _confidence(columns, layout, reading, notes)
    if reading.positive is not None:
        score = table[:, 0] if table is not None and table.shape[1] == 1 else confidence
        columns, table, confidence, names = with_positive(columns, score, reading.positive, notes, reading.classes)
        kind = "probabilities"
    classes: dict[str, Column] = {role: columns.pop(role) for role in ("label", "prediction") if role in columns}
    for role, column in classes.items():
        refuse_total(column, layout.names.get(role, role))
    if (name := layout.names.get("label", "").strip()).lower() in WEAK_LABELS and "label" not in layout.declared:
        notes.append(f"{name} read as the label")
    numbers, names, ambiguous = numbered(
        classes, names, typed=content.typed or reading.positive is not None, has_table=table is not None
    )
    arrays: dict[str, Any] = dict(numbers) | ({} if confidence is None else {"confidence": confidence})
    if "correct" in columns:
        arrays["correct"] = _truth(columns["correct"])
    if "index" in columns:
        arrays["index"] = whole_numbers(_numbers(columns["index"], "index"), "index")
    if table is not None:
        if names and table.shape[1] > 1 and len(names) != table.shape[1]:
            raise ValueError(f"expected {table.shape[1]} class names, as many as classes, but got {len(names)}")
        words = classes.get("label")
        by_name = isinstance(words, Text) and names is not None and {*words.values} <= {*names}
        arrays |= _tabled(table, kind, arrays, layout, metadata, by_name=by_name)
    elif {"label", "prediction", "confidence"} <= {*arrays}:
        refuse_renamed_classes(arrays["label"], arrays["prediction"], names)
        if "label" not in reading.columns:
            columns_of = {role: layout.names.get(role, role) for role in ("label", "confidence")}
            refuse_grades(arrays["label"], arrays["prediction"], columns_of, names)
        if "confidence" not in layout.declared and reading.positive is None:
            name = layout.names.get("confidence", "confidence")
            refuse_probability_of_a_class(arrays["label"], arrays["prediction"], arrays["confidence"], name, names)
        notes += unmatched_classes(arrays["label"], arrays["prediction"], names)
    if names and not (table is not None and table.shape[1] == 1):
        metadata["class_names"] = json.dumps(names)
    if ambiguous:
        metadata["labels"] = "read as names of classes, not as their numbers"
    names_array = next(filter(holds_class_names, layout.ignored), None) if content.class_names else None
    ignored = [name.strip() or "a column without name" for name in layout.ignored if name != names_array] + unused
    if ignored:
        metadata["ignored"] = shown(ignored)
    about: dict[str, Any] = {"metadata": content.metadata | metadata, "notes": tuple(notes), "rows": content.rows}
    return Predictions(**arrays, **keys, extra=extra, **about)


def _without_missing(content: Content, layout: Layout, reading: Reading) -> tuple[Content, list[str]]:
    """The rows without missing values, and a note on the others; an error unless they may be skipped."""
    flags = {role: is_missing(column) for role, column in content.columns.items() if role in CHECKED}
    known = {*(content.class_names or layout.class_names or ())}
    for role in ("label", "prediction"):  # a class may be called None
        column = content.columns.get(role)
        if isinstance(column, Text) and known & {*column.values}:
            named_so = np.array([value in known for value in column.values], dtype=bool)[column.codes]
            flags[role] = flags[role] & ~named_so
    if content.table is not None:
        flags["class columns"] = is_missing(content.table)
    flags = {role: missing for role, missing in flags.items() if missing.any()}
    if not flags:
        return content, []
    if not reading.skip_missing:
        role, missing = next(iter(flags.items()))
        rows = [str(row) for row in np.flatnonzero(missing).tolist()]
        name = layout.names.get(role, role.removeprefix("extra:"))
        raise InputError(
            f"expected a value of {name!r} in each row, but {len(rows):,} of {len(content):,} have none:"
            f" rows {named(rows)}{_word_for(content.columns.get(role), missing)}",
            "drop such rows with {skip_missing}",
        )
    missing = np.any(list(flags.values()), axis=0)
    if missing.all():
        raise ValueError(f"expected rows with {' and '.join(flags)}, but all {len(content):,} lack it")
    note = f"{counted(int(missing.sum()), 'row')} without {' or '.join(flags)} skipped"
    return content.select(~missing), [note]


def _word_for(column: Column | None, missing: Array) -> str:
    if not isinstance(column, Text):
        return ""
    word = column.values[int(column.codes[int(missing.argmax())])]
    return f" ({word!r}; rename it if it is a class)" if word else ""


def _extra(name: str, column: Column) -> Array:
    return _numbers(column, name) if name == "sample_weight" else raw_cells(column)


def _keys(columns: dict[str, Any], layout: Layout) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    arrays, metadata, unused = distinct_keys(columns)
    if not arrays:
        refuse_repeats(columns, layout.names)
    return arrays, metadata, unused


def _table(columns: dict[str, Column], table: Array | None, layout: Layout) -> tuple[Array | None, str | None]:
    """The table of classes [n, K] and its kind, if it is known."""
    kinds = [kind for kind in ("probabilities", "logits") if kind in columns]
    if len(kinds) == 2:
        raise InputError("expected probabilities or logits, but got both", "choose with {columns}")
    if kinds:
        column = columns.pop(kinds[0])
        return _numbers(column, kinds[0]), layout.kind or kinds[0]
    if "outputs" in columns:
        return _numbers(columns.pop("outputs"), layout.names["outputs"]), layout.kind
    if "submitted" in columns:
        column = columns.pop("submitted")
        if (
            isinstance(column, Text)
            or not ((column >= 0) & (column <= 1)).all()
            or (column == np.floor(column)).all()
        ):
            raise InputError(
                f"expected probabilities or a confidence, but {layout.names['submitted']!r} holds classes alone",
                "add a column of the confidence of each prediction",
            )
        return column[:, None], "probabilities"
    return table, layout.kind


def _confidence(columns: dict[str, Column], layout: Layout, reading: Reading, notes: list[str]) -> Array | None:
    """The confidence on its scale."""
    if "confidence" not in columns:
        return None
    name = layout.names.get("confidence", "confidence")
    try:
        values = _numbers(columns.pop("confidence"), name)
    except ValueError as error:
        raise InputError(str(error), AS_NUMBERS) from None
    if values.ndim != 1:
        raise ValueError(f"expected numbers in column {name!r}, but got lists of them")
    if reading.scale == "log" or (reading.scale is None and name.strip().lower() in LOG_NAMES):
        if values.max(initial=0) > 1e-6:
            row = int((values > 1e-6).argmax())
            raise ValueError(
                f"expected logarithms of probabilities in {name!r}, but got {values[row]:g} in row {row}"
            )
        notes.append(f"{name} read as logarithms of the confidence")
        return np.exp(np.minimum(values, 0))
    if reading.scale is not None:
        doubt = ", although none of its values is above 1" if reading.scale >= 10 and values.max() <= 1 else ""
        notes.append(f"{name} divided by {reading.scale:g}{doubt}")
        return values / reading.scale
    refuse_percentage(values, name)
    return values


def _tabled(
    table: Array,
    kind: str | None,
    arrays: dict[str, Array],
    layout: Layout,
    metadata: dict[str, str],
    *,
    by_name: bool,
) -> dict[str, Array]:
    """The table of classes [n, K] under its kind, after all checks; labels may be names of classes, or not known."""
    label = arrays.get("label", np.zeros(0, dtype=np.int64))
    if table.shape[1] == 1:
        metadata["binary"] = checked_binary(label, kind)
        if kind == "logits":
            return {"logits": np.stack([np.zeros(len(table)), table[:, 0]], axis=1)}
        table = both_classes(table[:, 0])
        check_prediction(arrays.get("prediction"), table, "probabilities", OTHER_CUT_OFF)
        return {"probabilities": table}
    if kind != "logits":
        refuse_percentages(table)
    if kind is None:
        if layout.class_names and not by_name:
            refuse_odd_columns(table, layout.class_names)
        kind, unnamed = bare_kind(table, label, layout.class_names)
        if layout.class_names and by_name:
            refuse_odd_columns(table, layout.class_names, unnamed)
        if kind == "logits" and unnamed:
            metadata["unnamed"] = shown(unnamed)
    if not by_name:
        refuse_numbering_from_one(label, table)
    remedy = NAME_CLASSES if layout.kind is None else OTHER_RULE
    check_prediction(arrays.get("prediction"), table, kind, remedy)
    return {kind: table}


def _scaled(table: Array | None, kind: str | None, reading: Reading, notes: list[str]) -> Array | None:
    if table is None or reading.scale is None:
        return table
    if kind == "logits":
        raise InputError("expected probabilities or a confidence to scale, but got logits", "leave out {scale}")
    if reading.scale == "log":
        notes.append("probabilities read as logarithms")
        return np.exp(table)
    notes.append(f"probabilities divided by {reading.scale:g}")
    return table / reading.scale


def _truth(column: Column) -> Array:
    if not isinstance(column, Text):
        partial = (column > 0) & (column < 1)
        if partial.any():
            row = int(partial.argmax())
            raise InputError(
                f"expected only 0 and 1 in correct, but got {column[row]:g} in row {row}",
                "decide from which grade on an answer counts as right, and write 1 for those and 0 for the others",
            )
        return column
    flags = [CORRECT.get(value.lower()) for value in column.values]
    expected = "true or false, yes or no, right or wrong, correct or incorrect, or 1 or 0"
    refuse_values(column, [flag is None for flag in flags], expected, "correct")
    return np.array(flags, dtype=bool)[column.codes]


def _numbers(column: Column, role: str) -> Array:
    return numbers_of_text(column, role) if isinstance(column, Text) else column

"""Join predictions with labels or grades from another file, by a column that identifies the samples."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from confrank.errors import InputError, counted
from confrank.metrics.inputs import cell_text
from confrank.predictions.cells import MISSING, Column, Text, is_missing, select
from confrank.predictions.classes import whole_numbers
from confrank.predictions.content import Content, Opened
from confrank.predictions.keys import hashes, keys_or_reason, repeated_rows
from confrank.predictions.layout import Layout, column_number, layout_of, shown
from confrank.predictions.names import KEY_NAMES, key_of, role_of
from confrank.predictions.reading import TRUE_ROLES, Reading
from confrank.predictions.schema import Array, as_keys


def with_truth(
    opened: Opened, truth: Opened, reading: Reading, on: str | None, file: str
) -> tuple[Layout, Content, list[str]]:
    """The layout and columns of predictions with the labels of `truth`, or its column `correct`, and notes.

    `file` is what to call it.
    """
    left, right = _key_columns(opened.header, truth.header, on)
    columns, others = _split(opened.header, truth.header, reading)
    role = key_of(left) or role_of(left) or "key"
    role = role if role in (*KEY_NAMES, "index") else "key"
    if role == "key":
        columns["key"] = left
    main = replace(reading, columns=columns, keep=[name for name in reading.keep if not _is_in(truth.header, name)])
    what, name = _truth_column(truth.header, right, others)
    layout = layout_of(opened.header, lists=opened.lists, reading=main, elsewhere=[what], bare=opened.bare)
    at = {what: column_number(truth.header, name), role: list(truth.header).index(right)}
    ignored = [column for column in truth.header if column not in (name, right)]
    other = Layout(at, [], None, layout.class_names, ignored, names={what: name, role: right})
    kept = {name: column_number(truth.header, name) for name in reading.keep if name not in main.keep}
    other = replace(other, extra=kept, ignored=[name for name in other.ignored if name not in kept])
    content, labels = opened.load(layout), truth.load(other)
    is_named = content.class_names is not None or layout.class_names is not None
    if what == "label" and not (others or is_named) and "prediction" in content.columns:
        _refuse_grades(labels.columns[what], content.columns["prediction"], name, file)
    keys = _keys(content, role, left)
    rows, is_there = _rows(keys, _keys(labels, role, right), left, file, reading)
    if role != "index":
        content = replace(content, columns=content.columns | {role: keys})
    added = {key: select(column, rows) for key, column in labels.columns.items() if key != role}
    joined = content if is_there.all() else content.select(is_there)
    notes = [f"{'labels' if what == 'label' else what} of {file} joined by {left}"]
    for given, noun, lacking in ((content, "prediction", "label"), (labels, "label", "prediction")):
        if len(given) > len(joined):
            notes.append(f"{counted(len(given) - len(joined), noun)} without {lacking} skipped")
    layout = replace(layout, extra=layout.extra | kept, names=layout.names | {what: name})
    return layout, replace(joined, columns=joined.columns | added), notes


def _is_in(header: Sequence[str], name: str) -> bool:
    return name.strip().lower() in [item.strip().lower() for item in header]


def _split(header: Sequence[str], others: Sequence[str], reading: Reading) -> tuple[dict[str, str], dict[str, str]]:
    """The columns that the caller named in each file; label and correct are looked for in the truth first."""
    truth = {role: name for role, name in reading.columns.items() if role in TRUE_ROLES and _is_in(others, name)}
    return {role: name for role, name in reading.columns.items() if role not in truth}, truth


def _key_columns(header: Sequence[str], others: Sequence[str], on: str | None) -> tuple[str, str]:
    """The names of the column that identifies samples, in the predictions and in the truth."""
    if on is not None:
        left, _, right = on.partition("=")
        return header[column_number(header, left)], others[column_number(others, right or left)]
    plain = {name.strip().lower(): name for name in others if name.strip()}
    common = [(name, plain[name.strip().lower()]) for name in header if name.strip().lower() in plain]
    keys = [pair for pair in common if key_of(pair[0])]
    keys.sort(key=lambda pair: KEY_NAMES.index(key_of(pair[0]) or "key"))
    keys += [pair for pair in common if role_of(pair[0]) == "index"]
    keys += [pair for pair in common if not key_of(pair[0]) and role_of(pair[0]) is None]
    if not keys:
        raise InputError(
            "expected a column that identifies the samples in both files,"
            f" but got the columns {shown(header)} and {shown(others)}",
            "name it with {on} COLUMN, or {on} COLUMN=COLUMN if the names differ",
        )
    return keys[0]


def _truth_column(header: Sequence[str], key: str, given: dict[str, str]) -> tuple[str, str]:
    """The role and the name of the column to join: as given, a label, grades, or the only column next to the key."""
    for role, name in given.items():
        return role, header[column_number(header, name)]
    others = [name for name in header if name != key]
    roles = {name: "correct" if name.strip().lower() == "graded" else role_of(name) for name in others}
    for role in TRUE_ROLES:
        found = [name for name in others if roles[name] == role]
        if len(found) == 1:
            return role, found[0]
    if len(others) != 1:
        raise InputError(
            f"expected one column of labels in the truth, but got the columns {shown(header)}",
            "name it with {columns} label=COLUMN",
        )
    return "label", others[0]


def _refuse_grades(label: Column, prediction: Column, name: str, file: str) -> None:
    """Raise if labels are only 0 and 1 although predictions are others: whether an answer is right is no label."""
    given = prediction.values if isinstance(prediction, Text) else np.unique(prediction[~is_missing(prediction)])
    odd = [value for value in given if value not in (0, 1) and value not in MISSING]
    if isinstance(label, Text) or not odd or not np.isin(label[~is_missing(label)], (0, 1)).all():
        return
    raise InputError(
        f"expected labels that answers can agree with, but {name!r} of {file} has only 0 and 1, and the answers have"
        f" others, such as {cell_text(odd[0])[:40]}",
        f"if these are grades, use {{columns}} correct={name}, otherwise label={name}",
    )


def _keys(content: Content, role: str, name: str) -> Array:
    column = content.columns[role]
    assert isinstance(column, np.ndarray)
    keys = as_keys(whole_numbers(column, role)) if role == "index" else keys_or_reason(column)
    if isinstance(keys, str):
        raise InputError(f"expected names or whole numbers in {name!r} to join by, but got others", "change {on}")
    return keys


def _rows(keys: Array, others: Array, name: str, file: str, reading: Reading) -> tuple[Array, Array]:
    """The rows of the truth in the order of the predictions, and flags of the predictions that have one."""
    for values, where in ((keys, "the predictions"), (others, file)):
        if (twice := repeated_rows(values)) is not None:
            key = bytes(values[twice[0]]).decode(errors="replace")
            raise InputError(
                f"expected each sample once in {where}, but got {name} {key[:80]!r} in rows {twice[0]} and"
                f" {twice[1]}",
                "remove one of them, or join by another column with {on}",
            )
    rows, is_there = match(keys, others)
    unused = np.ones(len(others), dtype=bool)
    unused[rows[is_there]] = False
    lacking = keys[~is_there]
    if (len(lacking) or unused.any()) and not (reading.skip_missing and is_there.any()):
        problems = [
            f"{len(missing):,} of {total:,} {what} ({_examples(missing)})"
            for missing, total, what in (
                (lacking, len(keys), f"predictions are not in {file}"),
                (others[unused], len(others), "labels have no prediction"),
            )
            if len(missing)
        ]
        raise InputError(
            f"expected the same {name} in both files, but {' and '.join(problems)}",
            "evaluate the common ones with {skip_missing}, or join by another column with {on}",
        )
    return rows[is_there], is_there


def _examples(keys: Array) -> str:
    first = ", ".join(key.decode(errors="replace")[:40] for key in keys[:3].tolist())
    return first + (f" and {len(keys) - 3:,} more" if len(keys) > 3 else "")


def match(keys: Array, others: Array) -> tuple[Array, Array]:
    """For each of the distinct `keys` [n] its row in the distinct `others` [m], and whether there is one.

    >>> match(np.array([b"b", b"a"]), np.array([b"a", b"b", b"c"]))
    (array([1, 0]), array([ True,  True]))
    """
    if not len(others):
        return np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=bool)
    width = max(keys.dtype.itemsize, others.dtype.itemsize)
    one, other = hashes(keys, width), hashes(others, width)
    order = np.argsort(other, kind="stable")
    ordered = other[order]
    if (ordered[1:] == ordered[:-1]).any():  # two keys with one hash
        one, other = keys, others
        order = np.argsort(other, kind="stable")
        ordered = other[order]
    rows = np.empty(len(keys), dtype=np.int64)
    needles = np.argsort(one, kind="stable")  # in order they are found several times faster
    rows[needles] = order[np.minimum(np.searchsorted(ordered, one[needles]), len(others) - 1)]
    return rows, others[rows] == keys

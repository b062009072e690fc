"""Join predictions with labels from another file, by a column that identifies the samples."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from confrank.errors import InputError, counted
from confrank.predictions.cells import select
from confrank.predictions.classes import whole_numbers
from confrank.predictions.content import Content, Opened
from confrank.predictions.keys import hashes, keys_or_reason, repeated_rows
from confrank.predictions.layout import Layout, column_number, layout_of, shown
from confrank.predictions.names import KEY_NAMES, key_of, role_of
from confrank.predictions.reading import Reading
from confrank.predictions.schema import Array, as_keys


def with_truth(
    opened: Opened, truth: Opened, reading: Reading, on: str | None, file: str
) -> tuple[Layout, Content, list[str]]:
    """The layout and columns of predictions with the labels of `truth`, and notes; `file` is what to call it."""
    left, right = _key_columns(opened.header, truth.header, on)
    columns, others = _split(opened.header, truth.header, reading)
    role = key_of(left) or role_of(left) or "key"
    role = role if role in (*KEY_NAMES, "index") else "key"
    if role == "key":
        columns["key"] = left
    main = replace(reading, columns=columns, keep=[name for name in reading.keep if not _is_in(truth.header, name)])
    layout = layout_of(opened.header, lists=opened.lists, reading=main, elsewhere=["label"], bare=opened.bare)
    other = _truth_layout(truth.header, right, role, others.get("label"), layout.class_names)
    kept = {name: column_number(truth.header, name) for name in reading.keep if name not in main.keep}
    other = replace(other, extra=kept, ignored=[name for name in other.ignored if name not in kept])
    content, labels = opened.load(layout), truth.load(other)
    keys = _keys(content, role, left)
    rows, is_there = _rows(keys, _keys(labels, role, right), left, file, reading)
    if role != "index":
        content = replace(content, columns=content.columns | {role: keys})
    added = {key: select(column, rows) for key, column in labels.columns.items() if key != role}
    joined = content if is_there.all() else content.select(is_there)
    notes = [f"labels of {file} joined by {left}"]
    for given, name, lacking in ((content, "prediction", "label"), (labels, "label", "prediction")):
        if len(given) > len(joined):
            notes.append(f"{counted(len(given) - len(joined), name)} without {lacking} skipped")
    layout = replace(layout, extra=layout.extra | kept, names=layout.names | {"label": other.names["label"]})
    return layout, replace(joined, columns=joined.columns | added), notes


def _is_in(header: Sequence[str], name: str) -> bool:
    return name.strip().lower() in [item.strip().lower() for item in header]


def _split(header: Sequence[str], others: Sequence[str], reading: Reading) -> tuple[dict[str, str], dict[str, str]]:
    """The columns that the caller named in each file; the label is looked for among the labels first."""
    truth = {role: name for role, name in reading.columns.items() if role == "label" and _is_in(others, name)}
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


def _truth_layout(
    header: Sequence[str], key: str, role: str, label: str | None, class_names: list[str] | None
) -> Layout:
    """The layout of a file of labels: its key, and the label by name, or the only other column."""
    number = list(header).index(key)
    others = [column for column in range(len(header)) if column != number]
    labels = [column for column in others if role_of(header[column]) == "label"]
    if label is not None:
        labels = [column_number(header, label)]
    elif not labels and len(others) == 1:
        labels = others
    if len(labels) != 1:
        raise InputError(
            f"expected one column of labels in the truth, but got the columns {shown(header)}",
            "name it with {columns} label=COLUMN",
        )
    ignored = [header[column] for column in others if column not in labels]
    names = {"label": header[labels[0]], role: key}
    return Layout({"label": labels[0], role: number}, [], None, class_names, ignored, names=names)


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

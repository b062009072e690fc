"""Rows that belong together: labels of another source, parts of one, and predictions of several models."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from os.path import commonprefix
from pathlib import Path
from typing import Any

import numpy as np

from confrank.errors import InputError, counted
from confrank.predictions.predictions import Array, Predictions, as_keys
from confrank.predictions.roles import (
    EXTRA_ROLES,
    FILES,
    KEY_NAMES,
    TRUE_ROLES,
    Said,
    column_named,
    has_column,
    key_of,
    role_of,
    shown,
)
from confrank.predictions.tables import Column, Columns, Table, Text, Wanted, parts_of

# In bytes. The array of keys reserves the length of the longest for each.
LONGEST_KEY = 4096
NOT_UNIQUE = " (not unique)"
# Begins the name of a column of labels that another file gave, which both files may have.
MARK = "\0"
# What only the names of parts end in, before their number; others may be those of several models, say by seed.
PART = re.compile(
    r"(?<![a-z])(part|shard|chunk|rank)[ ._=-]*\d*$|(?<!\d)20\d\d-?[01]?\d?-?[0-3]?\d?$|^0+$", re.IGNORECASE
)
REMEDY = "add an `index` or `id` column"
IN_BOTH = "are in both, so compare these rows alone"
UNORDERED = f"their labels differ row by row: the order or the samples differ; {REMEDY}"


def display_name(name: str) -> str:
    """The name of a column as it is in its file."""
    return name.removeprefix(MARK)


def joined(table: Table, other: Table, said: Said, on: str | None, source: str) -> tuple[Table, Said]:
    """The table with the labels, or the grades, of another, whose name is `source`; and where they are.

    They are joined by a column that identifies samples, or row by row if neither table has one. Several rows may have
    one key, and get its label.
    """
    if other.alone:
        values = other.load(Wanted(other.names)).named[other.names[0]]
        other = replace(other, names=["label"], load=lambda *_: Columns({"label": values}))
    given = {}
    for role, name in said.columns.items():
        is_here = has_column(table.names, name)
        if has_column(other.names, name) and (role in TRUE_ROLES or (role in EXTRA_ROLES and not is_here)):
            given[role] = column_named(other.names, name)
    left, right = _key_columns(table.names, other.names, on)
    if not left and not (table.ordered and other.ordered):
        raise InputError("expected a column that identifies the rows of the parts, but got none", REMEDY)
    truth, column = _truth_column(other.names, right, given)
    theirs = {MARK + column: column}
    columns = {role: name for role, name in said.columns.items() if role not in given} | {truth: MARK + column}
    for role, name in given.items():
        if role in EXTRA_ROLES:
            columns[role] = name
            theirs[name] = name
    for name in said.keep:
        if has_column(other.names, name):
            theirs[name] = column_named(other.names, name)
    if left and not key_of(left) and role_of(left) is None and "key" not in columns:
        columns["key"] = left
    word = "labels" if truth == "label" else truth

    def load(wanted: Wanted) -> Columns:
        ours = table.load(_part(wanted, {name: name for name in wanted.all if name not in theirs}, left))
        labels = other.load(_part(wanted, theirs, right))
        if left:
            rows, is_there = _rows(_keys(ours, left), _keys(labels, right), left, source, said.skip_missing)
            notes = [f"{word} of {source} joined by {left}"]
        else:
            rows, is_there = np.arange(len(labels)), np.ones(len(ours), dtype=bool)
            notes = [f"{word} joined by row"]
            if len(ours) != len(labels):
                raise InputError(
                    f"expected as many rows in both files, which have no column that identifies them, but got"
                    f" {len(ours):,} predictions and {len(labels):,} labels",
                    "add a column id to both, or name one with {on} COLUMN",
                )
        whole = ours if is_there.all() else ours.select(is_there)
        used = len(np.unique(rows))
        if len(whole) < len(ours):
            notes.append(f"{counted(len(ours) - len(whole), 'prediction')} without label skipped")
        if used < len(labels):
            notes.append(f"{counted(len(labels) - used, 'label')} without prediction skipped")
        found = labels.select(rows).named
        named = whole.named | {name: found[theirs[name]] for name in wanted.names if name in theirs}
        return replace(whole, named=named, notes=(*whole.notes, *notes))

    names = [name for name in table.names if name not in theirs] + [*theirs]
    return replace(table, names=names, load=load, truth=truth), replace(said, columns=columns)


def _part(wanted: Wanted, names: Mapping[str, str], key: str) -> Wanted:
    """What to read of one of the tables, by its own names."""
    numbers, words, keys, classes = (
        [names[name] for name in some if name in names]
        for some in (wanted.numbers, wanted.words, wanted.keys, wanted.classes)
    )
    return Wanted(numbers, words, [*keys, key] if key else keys, classes)


def _key_columns(names: Sequence[str], others: Sequence[str], on: str | None) -> tuple[str, str]:
    """The names of the column that identifies samples in the predictions and in the truth; empty if there is none."""
    if on is not None:
        left, _, right = on.partition("=")
        return column_named(names, left), column_named(others, right or left)
    plain = {name.strip().lower(): name for name in others if name.strip()}
    common = [(name, plain[name.strip().lower()]) for name in names if name.strip().lower() in plain]
    keys = sorted(
        (pair for pair in common if key_of(pair[0])), key=lambda pair: KEY_NAMES.index(str(key_of(pair[0])))
    )
    keys += [pair for pair in common if role_of(pair[0]) == "index"]
    keys += [pair for pair in common if not key_of(pair[0]) and role_of(pair[0]) is None]
    if keys:
        return keys[0]
    if not any(key_of(name) or role_of(name) == "index" for name in [*names, *others]):
        return "", ""
    raise InputError(
        "expected a column that identifies the samples in both files,"
        f" but got the columns {shown(names)} and {shown(others)}",
        "name it with {on} COLUMN, or {on} COLUMN=COLUMN if the names differ",
    )


def _truth_column(names: Sequence[str], key: str, given: Mapping[str, str]) -> tuple[str, str]:
    """The role and the name of the column to join: as given, a label, grades, or the only column next to the key."""
    for role in TRUE_ROLES:
        if role in given:
            return role, given[role]
    others = [name for name in names if name != key]
    roles = {name: "correct" if name.strip().lower() == "graded" else role_of(name) for name in others}
    for role in TRUE_ROLES:
        found = [name for name in others if roles[name] == role]
        if len(found) == 1:
            return role, found[0]
    if len(others) != 1:
        raise InputError(
            f"expected one column of labels in the truth, but got the columns {shown(names)}",
            "name it with {columns} label=COLUMN",
        )
    return "label", others[0]


def _keys(columns: Columns, name: str) -> Array:
    keys = keys_or_reason(columns.named[name])
    if isinstance(keys, str):
        raise InputError(f"expected names or whole numbers in {name!r} to join by, but got others", "change {on}")
    return keys


def _rows(keys: Array, others: Array, name: str, source: str, skip_missing: bool) -> tuple[Array, Array]:
    """The rows of the truth in the order of the predictions, and flags of the predictions that have one."""
    if (twice := repeated_rows(others)) is not None:
        key = bytes(others[twice[0]]).decode(errors="replace")
        raise InputError(
            f"expected each sample once in {source}, but got {name} {key[:80]!r} in rows {twice[0]} and {twice[1]}",
            "remove one of them, or join by another column with {on}",
        )
    rows, is_there = match(keys, others)
    unused = np.ones(len(others), dtype=bool)
    unused[rows[is_there]] = False
    problems = []
    for missing, total, what in (
        (keys[~is_there], len(keys), f"predictions are not in {source}"),
        (others[unused], len(others), "labels have no prediction"),
    ):
        if len(missing):
            first = ", ".join(key.decode(errors="replace")[:40] for key in missing[:3].tolist())
            more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
            problems.append(f"{len(missing):,} of {total:,} {what} ({first}{more})")
    if problems and not (skip_missing and is_there.any()):
        raise InputError(
            f"expected the same {name} in both files, but {' and '.join(problems)}",
            "evaluate the common ones with {skip_missing}, or join by another column with {on}",
        )
    return rows[is_there], is_there


def match(keys: Array, others: Array) -> tuple[Array, Array]:
    """For each of the `keys` [n] its row in the distinct `others` [m], and whether there is one.

    >>> match(np.array([b"b", b"a", b"b"]), np.array([b"a", b"b", b"c"]))
    (array([1, 0, 1]), array([ True,  True,  True]))
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


# Keys


def distinct_keys(columns: Mapping[str, Column]) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Arrays and metadata for `Predictions` from columns [n] that identify each sample, and the ignored columns.

    >>> distinct_keys({"id": np.array([b"b", b"c"]), "file": np.array([b"a", b"a"])})
    ({'key': array([b'b', b'c'], dtype='|S1')}, {'key': 'id'}, ['file (not unique)'])
    """
    identifying: dict[str, Array] = {}
    ignored = []
    for name in sorted(columns, key=KEY_NAMES.index):
        keys = keys_or_reason(columns[name])
        if isinstance(keys, str):
            ignored.append(name + keys)
        elif repeated_rows(keys) is not None:
            ignored.append(name + NOT_UNIQUE)
        else:
            identifying[name] = keys
    if not identifying:
        return {}, {}, ignored
    name, *others = identifying
    arrays = {"key": identifying[name]}
    if others:
        kinds = [(other, identifying[other].dtype) for other in others]
        arrays["other_keys"] = np.empty(len(identifying[name]), kinds)
        for other in others:
            arrays["other_keys"][other] = identifying[other]
    return arrays, {"key": name}, ignored


def keys_or_reason(column: Column) -> Array | str:
    """Names or integers as bytes; otherwise the reason why the column is ignored."""
    if isinstance(column, Text):
        if max(map(len, column.values), default=0) > LONGEST_KEY:
            return f" (longer than {LONGEST_KEY:,} bytes)"
        return as_keys(np.array(column.values))[column.codes]
    if column.dtype.kind == "O":
        if max(map(len, column), default=0) > LONGEST_KEY:
            return f" (longer than {LONGEST_KEY:,} bytes)"
        return as_keys(np.array(column.tolist()))
    if column.dtype.kind == "f" and (np.abs(column) < 2**53).all() and (column == np.floor(column)).all():
        column = column.astype(np.int64)
    if column.ndim != 1 or column.dtype.kind not in "iuUS":
        return ""
    return as_keys(column)


def repeated_rows(keys: Array) -> tuple[int, int] | None:
    """Two rows with the same key; None if all differ.

    >>> repeated_rows(np.array([b"a", b"b", b"a"]))
    (0, 2)
    """
    for values in (hashes(keys, keys.dtype.itemsize), keys):
        ordered = np.sort(values)
        same = ordered[1:] == ordered[:-1]
        if not same.any():
            return None
    first, second = np.flatnonzero(keys == ordered[int(same.argmax())])[:2].tolist()
    return first, second


def hashes(keys: Array, width: int) -> Array:
    """A 64-bit number for each of the keys [n], padded to `width` bytes, and these to a multiple of 8."""
    padded = 8 * -(-max(1, width) // 8)
    words = np.ascontiguousarray(keys.astype(f"S{padded}")).view("<u8").reshape(len(keys), -1)
    total = np.zeros(len(keys), dtype=np.uint64)
    for column in words.T:
        total = (total ^ column) * np.uint64(0x9E3779B97F4A7C15)
        total ^= total >> np.uint64(29)
    return total


# Parts


def without_copies(whole: Columns, part: Array, files: Sequence[str]) -> Columns:
    """The rows of several parts without those that a sampler repeated in another so that all have as many.

    A copy has the index or key of a row of another part, and its values. Parts that look like files of several
    models, by such a column or by their names, are an error.
    """
    best: tuple[int, str, Array] | None = None
    for name, column in whole.named.items():
        keys = keys_or_reason(column) if key_of(name) or role_of(name) == "index" else ""
        if isinstance(keys, np.ndarray):
            _, first, number = np.unique(hashes(keys, keys.dtype.itemsize), return_index=True, return_inverse=True)
            original = first[number]
            distinct = len(np.unique(number * np.int64(part.max(initial=0) + 1) + part))
            others = int((part[original] != part).sum())
            if 2 * distinct > len(part) and (best is None or others < best[0]):  # it identifies most samples
                best = others, name, original
    if best is None:
        if not PART.search(commonprefix(files)) and "-of-" not in files[0]:  # noqa: RUF071 (names have no components)
            raise InputError(
                f"expected parts of one model's predictions, but {files[0]} and {files[1]} may be of two",
                "add a column index or id, or call the files part-0, part-1 and so on",
            )
        return replace(whole, notes=(counted(len(files), "part"),))
    _, name, original = best
    copies = part[original] != part
    rows = np.flatnonzero(copies)
    for column in [*whole.named.values(), *([] if whole.classes is None else [whole.classes])]:
        values = column.codes if isinstance(column, Text) else column
        one, other = values[rows], values[original[rows]]
        if not len(rows):
            break
        is_float = values.dtype.kind == "f"  # which a GPU rounds
        close = np.isclose(one, other, rtol=1e-2, atol=1e-2, equal_nan=True) if is_float else one == other
        same = np.reshape(close, (len(rows), -1)).all(axis=1)
        if not same.all():
            row = int(rows[same.argmin()])
            raise InputError(
                f"expected each sample in one part, but a value of {name} is in {files[part[original[row]]]} and,"
                f" with other predictions, in {files[part[row]]}",
                "give the files one by one if they are of several models, or leave out one of the two rows",
            )
    notes = [counted(len(files), "part")]
    if len(rows):
        notes.append(f"{counted(len(rows), 'row')} repeated in another part left out")
    kept = whole.select(~copies) if len(rows) else whole
    return replace(kept, notes=tuple(notes))


# Several models


def pairing(first: Predictions, second: Predictions) -> tuple[Array | None, str]:
    """(rows of `second` in the order of `first`, how that is known), or (None, why they are not paired).

    >>> pairing(Predictions(index=np.array([4, 7])), Predictions(index=np.array([7, 4])))
    (array([1, 0]), 'matched by index')
    """
    if _identical(first, second):
        return np.arange(len(first)), "identical"
    if len(first) != len(second):
        return None, f"other samples: {len(first):,} and {len(second):,} predictions{_common(first, second)}"
    rows, reason = _matched(first, second)
    if rows is None:
        return None, reason
    agree = _labels_agree(first, second, rows, matched=bool(reason))
    if agree is False:
        return None, f"{reason}, but their labels differ" if reason else UNORDERED
    if agree:
        reason = reason or "the labels agree row by row"
    if not reason:
        return None, f"without an index or labels, it is unknown whether the rows are the same samples; {REMEDY}"
    return rows, reason


def common_samples(models: Sequence[Predictions]) -> list[Predictions]:
    """The rows of the samples that all models have, by the first column that identifies samples in each of them.

    >>> first, second = (Predictions(key=np.array(ids), label=np.zeros(2)) for ids in (["a", "b"], ["b", "c"]))
    >>> [one.key.tolist() for one in common_samples([first, second])]
    [[b'b'], [b'b']]
    """
    columns = [model.keys | ({} if model.index is None else {"index": model.index}) for model in models]
    name = next((name for name in columns[0] if all(name in others for others in columns)), None)
    if name is None:
        raise InputError(
            "expected a column that identifies the samples in each file, but they share none", "leave out {common}"
        )
    values = [one[name] for one in columns]
    if name == "index" and any(map(_repeats, values)):
        raise InputError("expected an index without repeated values, but got some", "leave out {common}")
    shared = reduce(np.intersect1d, values)
    if not len(shared):
        raise InputError(f"expected samples that all files have, but no {name} is in each of them", "check {columns}")
    return [
        replace(model.select(np.isin(one, shared)), notes=(*model.notes, _left_out(len(one) - len(shared), name)))
        if len(one) > len(shared)
        else model
        for model, one in zip(models, values, strict=True)
    ]


def _left_out(number: int, name: str) -> str:
    return f"{counted(number, 'row')} left out whose {name} is not in every file"


def _matched(first: Predictions, second: Predictions) -> tuple[Array | None, str]:
    """Rows matched by what identifies samples in both files; in file order, without a reason, if nothing does.

    A column that differs is skipped for the next only if rows matched by the latter differ in their folders alone.
    """
    skipped: list[tuple[Array, Array]] = []
    differing = ""
    for name, one, other, are_alike in _identifiers(first, second):
        rows = _order(one, other)
        if rows is None and name == "index" and _repeats(one):
            return None, f"other samples, or in another order: their index has repeated values; {REMEDY}"
        if rows is not None and all(_ends(keys) == _ends(others[rows]) for keys, others in skipped):
            return rows, f"matched by {name}"
        if are_alike:
            skipped.append((one, other))
            differing = differing or f"other samples: their {name} differs{_common(first, second)}"
    return (None, differing) if differing else (np.arange(len(first)), "")


def _common(first: Predictions, second: Predictions) -> str:
    """How many values of the first identifier both files have, if some: the rows that could be compared."""
    name, one, other, are_alike = next(iter(_identifiers(first, second)), ("", np.zeros(0), np.zeros(0), False))
    if not are_alike or name == "index":
        return ""
    width = max(one.dtype.itemsize, other.dtype.itemsize)
    common = len(np.intersect1d(hashes(one, width), hashes(other, width)))
    return f"; {common:,} values of {name} {IN_BOTH}" if common else ""


def _identifiers(first: Predictions, second: Predictions) -> list[tuple[str, Array, Array, bool]]:
    """What may identify the samples: (name, values in the first file, in the second, whether they must be equal).

    Columns of the same name come first, then file names with file names and ids with ids, then file names with ids,
    which may differ; the index, which may be a row number, comes last.
    """
    pairs = [(one, other, (one in FILES) == (other in FILES)) for one in first.keys for other in second.keys]
    pairs.sort(key=lambda pair: (pair[0] != pair[1], not pair[2]))
    identifiers = [
        (" and ".join(dict.fromkeys((one, other))), first.keys[one], second.keys[other], are_alike)
        for one, other, are_alike in pairs
    ]
    if first.index is not None and second.index is not None:
        identifiers.append(("index", first.index, second.index, True))
    return identifiers


def _order(one: Array, other: Array) -> Array | None:
    """The rows of `other` with the values of `one`, if both have the same values and each occurs once."""
    if np.array_equal(one, other):
        return np.arange(len(one))
    order, other_order = np.argsort(one, kind="stable"), np.argsort(other, kind="stable")
    ordered = one[order]
    if not np.array_equal(ordered, other[other_order]) or (ordered[1:] == ordered[:-1]).any():
        return None
    rows = np.empty(len(one), dtype=np.int64)
    rows[order] = other_order
    return rows


def _repeats(values: Array) -> bool:
    return len(np.unique(values)) < len(values)


def _ends(keys: Array) -> list[bytes]:
    """The part after the last slash.

    >>> _ends(np.array([b"a/b.png", b"C:\\\\b.png", b"7"]))
    [b'b.png', b'b.png', b'7']
    """
    return [key.replace(b"\\", b"/").rpartition(b"/")[2] for key in keys.tolist()]


def _identical(first: Predictions, second: Predictions) -> bool:
    one, other = first.arrays(), second.arrays()
    if one.keys() != other.keys() or first.class_names != second.class_names:
        return False
    return all(np.array_equal(one[name], other[name]) for name in one)


def _labels_agree(first: Predictions, second: Predictions, rows: Array, *, matched: bool) -> bool | None:
    """Whether the labels of paired rows are the same classes; None if that is unknown.

    If both files name their classes, the names are compared. If they have no name in common (cat and Katze), rows
    `matched` by something else must at least correspond name by name.
    """
    if first.label is None or second.label is None or not len(first):
        return None
    names, others, label = first.class_names, second.class_names, second.label[rows]
    if names is None or others is None or names == others:
        return np.array_equal(first.label, label)
    if min(first.label.min(), label.min()) < 0 or first.label.max() >= len(names) or label.max() >= len(others):
        return None
    if set(names).isdisjoint(others):
        pairs = np.unique(np.stack((first.label, label)), axis=1)
        return all(len(np.unique(side)) == len(side) for side in pairs) if matched else None
    number = {name: position for position, name in enumerate(dict.fromkeys([*names, *others]))}
    one, other = (np.array([number[name] for name in known]) for known in (names, others))
    return np.array_equal(one[first.label], other[label])


def are_parts(paths: Sequence[Path]) -> bool:
    """Whether several files are all parts in their folder, by their names."""
    names, folders = [path.name for path in paths], {path.parent for path in paths}
    if len(paths) < 2 or len(folders) > 1 or not PART.search(commonprefix(names)):  # noqa: RUF071
        return False
    try:
        return {*parts_of([(path.name, path.is_dir()) for path in paths[0].parent.iterdir()])} == {*names}
    except (ValueError, OSError):
        return False

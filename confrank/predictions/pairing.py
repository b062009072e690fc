"""Whether two files have predictions for the same samples, and in which order."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from confrank.errors import InputError, counted
from confrank.predictions.keys import hashes
from confrank.predictions.names import FILES
from confrank.predictions.schema import Array, Predictions

REMEDY = "add an `index` or `id` column"
IN_BOTH = "are in both, so compare these rows alone"
UNORDERED = f"their labels differ row by row: the order or the samples differ; {REMEDY}"


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

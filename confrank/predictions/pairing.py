"""Whether two files speak about the same samples, and in which order."""

import numpy as np

from confrank.predictions.layout import FILES
from confrank.predictions.schema import Array, Predictions

REMEDY = "add an `index` or `id` column"
UNORDERED = f"their labels differ row by row: their order differs or they are other samples; {REMEDY}"


def pairing(first: Predictions, second: Predictions) -> tuple[Array | None, str]:
    """(rows of `second` in the order of `first`, how that is known), or (None, why they are not paired).

    >>> pairing(Predictions(index=np.array([4, 7])), Predictions(index=np.array([7, 4])))
    (array([1, 0]), 'matched by index')
    """
    if _identical(first, second):
        return np.arange(len(first)), "identical"
    if len(first) != len(second):
        return None, f"other samples: {len(first):,} and {len(second):,} predictions"
    rows, reason = _matched(first, second)
    if rows is None:
        return None, reason
    agree = _labels_agree(first, second, rows, matched=bool(reason))
    if agree is False:
        return None, f"{reason}, but their labels differ" if reason else UNORDERED
    if agree:
        reason = reason or "the labels agree row by row"
    if not reason:
        return None, f"neither an index nor labels tell whether their rows are the same samples; {REMEDY}"
    return rows, reason


def _matched(first: Predictions, second: Predictions) -> tuple[Array | None, str]:
    """Rows by what tells samples apart in both files; as they stand, and no reason, where nothing does.

    What differs is passed over for the next only if, matched by that, file names differ in their folders alone.
    """
    passed: list[tuple[Array, Array]] = []
    differing = ""
    for name, one, other, are_alike in _told_apart(first, second):
        rows = _order(one, other)
        if rows is None and name == "index" and _repeats(one):
            return None, f"other samples, or in another order: their index names some more than once; {REMEDY}"
        if rows is not None and all(_ends(keys) == _ends(others[rows]) for keys, others in passed):
            return rows, f"matched by {name}"
        if are_alike:
            passed.append((one, other))
            differing = differing or f"other samples: their {name} differs"
    return (None, differing) if differing else (np.arange(len(first)), "")


def _told_apart(first: Predictions, second: Predictions) -> list[tuple[str, Array, Array, bool]]:
    """What may tell the same samples: (name, in the first file, in the second, whether it has to be the same).

    Columns of one name come first, then file names with file names and ids with ids, then one with the other, which
    may be the same or not; positions, which may be row numbers, last.
    """
    pairs = [(one, other, (one in FILES) == (other in FILES)) for one in first.keys for other in second.keys]
    pairs.sort(key=lambda pair: (pair[0] != pair[1], not pair[2]))
    found = [
        (" and ".join(dict.fromkeys((one, other))), first.keys[one], second.keys[other], are_alike)
        for one, other, are_alike in pairs
    ]
    if first.index is not None and second.index is not None:
        found.append(("index", first.index, second.index, True))
    return found


def _order(one: Array, other: Array) -> Array | None:
    """Where the values of `one` are in `other`, if they are the same and each is there once."""
    if np.array_equal(one, other):
        return np.arange(len(one))
    places, others = np.argsort(one, kind="stable"), np.argsort(other, kind="stable")
    ordered = one[places]
    if not np.array_equal(ordered, other[others]) or (ordered[1:] == ordered[:-1]).any():
        return None
    rows = np.empty(len(one), dtype=np.int64)
    rows[places] = others
    return rows


def _repeats(values: Array) -> bool:
    return len(np.unique(values)) < len(values)


def _ends(keys: Array) -> list[bytes]:
    """What follows the last slash.

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
    """Whether the labels of paired rows are the same classes; None where that cannot be told.

    Where both files name their classes the names count. If they have no name in common (cat and Katze), rows that
    are `matched` by something else must at least have one name for one name.
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
    number = {name: place for place, name in enumerate(dict.fromkeys([*names, *others]))}
    one, other = (np.array([number[name] for name in known]) for known in (names, others))
    return np.array_equal(one[first.label], other[label])

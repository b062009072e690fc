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
    if _identical(first.arrays(), second.arrays()):
        return np.arange(len(first)), "identical"
    if len(first) != len(second):
        return None, f"other samples: {len(first):,} and {len(second):,} predictions"
    rows, reason = _matched(first, second)
    if rows is None:
        return None, reason
    if first.label is not None and second.label is not None and _comparable(first, second):
        if not np.array_equal(first.label, second.label[rows]):
            return None, f"{reason}, but their labels differ" if reason else UNORDERED
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
    """Where the values of `one` are in `other`, if they are the same."""
    places, others = np.argsort(one, kind="stable"), np.argsort(other, kind="stable")
    if not np.array_equal(one[places], other[others]):
        return None
    rows = np.empty(len(one), dtype=np.int64)
    rows[places] = others
    return rows


def _ends(keys: Array) -> list[bytes]:
    """What follows the last slash.

    >>> _ends(np.array([b"a/b.png", b"C:\\\\b.png", b"7"]))
    [b'b.png', b'b.png', b'7']
    """
    return [key.replace(b"\\", b"/").rpartition(b"/")[2] for key in keys.tolist()]


def _identical(first: dict[str, Array], second: dict[str, Array]) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def _comparable(first: Predictions, second: Predictions) -> bool:
    """Label numbers mean the same unless both files name their classes differently."""
    return first.class_names == second.class_names or None in (first.class_names, second.class_names)

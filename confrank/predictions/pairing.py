"""Whether two files speak about the same samples, and in which order."""

import numpy as np

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
    rows, reason = np.arange(len(first)), ""
    if (columns := _told_apart(first, second)) is not None:
        name, (one, other) = columns
        places, others = np.argsort(one, kind="stable"), np.argsort(other, kind="stable")
        if not np.array_equal(one[places], other[others]):
            return None, f"other samples: their {name} differs"
        rows[places], reason = others, f"matched by {name}"
    if first.label is not None and second.label is not None and _comparable(first, second):
        if not np.array_equal(first.label, second.label[rows]):
            return None, f"{reason}, but their labels differ" if reason else UNORDERED
        reason = reason or "the labels agree row by row"
    if not reason:
        return None, f"neither an index nor labels tell whether their rows are the same samples; {REMEDY}"
    return rows, reason


def _told_apart(first: Predictions, second: Predictions) -> tuple[str, tuple[Array, Array]] | None:
    """What both files tell their samples apart by: file names and ids before positions, which may be row numbers."""
    if first.key is not None and second.key is not None:
        names = dict.fromkeys((first.key_name, second.key_name))
        return " and ".join(names), (first.key, second.key)
    if first.index is not None and second.index is not None:
        return "index", (first.index, second.index)
    return None


def _identical(first: dict[str, Array], second: dict[str, Array]) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def _comparable(first: Predictions, second: Predictions) -> bool:
    """Label numbers mean the same unless both files name their classes differently."""
    return first.class_names == second.class_names or None in (first.class_names, second.class_names)

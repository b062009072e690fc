"""Whether two files speak about the same samples, and in which order."""

import numpy as np

from confrank.predictions.schema import Array, Predictions


def pairing(first: Predictions, second: Predictions) -> tuple[Array | None, str]:
    """(rows of `second` in the order of `first`, how that is known), or (None, why they are different samples).

    >>> pairing(Predictions(index=np.array([4, 7])), Predictions(index=np.array([7, 4])))
    (array([1, 0]), 'matched by index')
    """
    if _identical(first.arrays(), second.arrays()):
        return np.arange(len(first)), "identical"
    if len(first) != len(second):
        return None, f"{len(first):,} and {len(second):,} predictions"
    rows, reason = np.arange(len(first)), ""
    if first.index is not None and second.index is not None:
        places, other = np.argsort(first.index, kind="stable"), np.argsort(second.index, kind="stable")
        if not np.array_equal(first.index[places], second.index[other]):
            return None, "their index differs"
        rows[places], reason = other, "matched by index"
    if first.label is not None and second.label is not None and _comparable(first, second):
        if not np.array_equal(first.label, second.label[rows]):
            return None, "their labels differ"
        reason = reason or "the labels agree row by row"
    if not reason:
        return None, "neither an index nor labels tell whether their rows are the same samples"
    return rows, reason


def _identical(first: dict[str, Array], second: dict[str, Array]) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def _comparable(first: Predictions, second: Predictions) -> bool:
    """Label numbers mean the same unless both files name their classes differently."""
    return first.class_names == second.class_names or None in (first.class_names, second.class_names)

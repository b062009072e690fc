"""Data sets in memory, and the wrapper that numbers anybody's samples."""

from collections.abc import Callable
from pathlib import Path

from confrank.data.digits import load_digits
from confrank.data.indexed import IndexedDataset
from confrank.data.sets import DataSet, Split, hold_out, split_of

LOADERS: dict[str, Callable[[Path | None], DataSet]] = {"digits": lambda root: load_digits()}


def load(name: str, root: str | Path | None = None) -> DataSet:
    """The data set of that name; published files are looked for in `root` and in `root/NAME`.

    >>> load("digits").train.images.shape
    (900, 8, 8, 1)
    """
    if name not in LOADERS:
        raise ValueError(f"expected a data set among {', '.join(LOADERS)}, but got {name!r}")
    return LOADERS[name](None if root is None else Path(root))


__all__ = ["LOADERS", "DataSet", "IndexedDataset", "Split", "hold_out", "load", "split_of"]

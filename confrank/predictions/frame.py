"""A data frame of pandas, polars or Arrow as the columns of a file; none of these is imported."""

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from confrank.metrics.inputs import cell_text, identifies, to_numpy
from confrank.predictions.content import Opened
from confrank.predictions.json_file import open_columns
from confrank.predictions.layout import check_distinct
from confrank.predictions.names import key_of, role_of
from confrank.predictions.schema import Array


def open_frame(frame: Any, wanted: Collection[str] = ()) -> Opened:
    """The columns of a data frame, or a series as a single one.

    Its index is one of them if its name is known or `wanted`, or if it has no name but distinct numbers other than
    those of the rows.
    """
    frame = _with_index(frame.to_frame() if hasattr(frame, "to_frame") else frame, wanted)
    names = getattr(frame, "column_names", getattr(frame, "columns", None))
    if names is None or callable(names):
        raise ValueError(f"expected the path of a file or a data frame, but got {type(frame).__name__}")
    header = [str(name) for name in names]
    check_distinct(header)
    return open_columns({text: _cells(frame[name]) for text, name in zip(header, names, strict=True)})


def _with_index(frame: Any, wanted: Collection[str]) -> Any:
    """A data frame of pandas with its index as a column, if it says something."""
    index: Any = getattr(frame, "index", None)
    if not hasattr(index, "equals"):
        return frame
    names, others = [str(name) for name in index.names if name is not None], {*map(str, frame.columns)}
    if names:
        is_used = any(key_of(name) or role_of(name) or name in wanted for name in names) and not others & {*names}
    else:
        is_used = identifies(index) and "index" not in others
    return frame.reset_index() if is_used else frame


def _cells(column: Any) -> Array | list[Any]:
    """Numbers or truth values as an array; otherwise the cells as JSON has them, with None for what is missing."""
    values = to_numpy(column)
    if values.dtype.kind in "fiub":
        return values if values.ndim == 1 else [row.tolist() for row in values]
    return [_plain(cell) for cell in values.tolist()] if values.dtype.kind in "OSU" else values.astype(str).tolist()


def _plain(cell: Any) -> Any:
    """A cell as text, truth value, number or list; None if it is missing.

    >>> _plain("cat"), _plain(np.array([0.5, 0.5])), _plain(math.nan)
    ('cat', [0.5, 0.5], None)
    """
    if isinstance(cell, str | bool | int | list):
        return cell
    if isinstance(cell, np.ndarray | np.generic):
        return _plain(cell.tolist())
    if isinstance(cell, float):
        return None if math.isnan(cell) else cell
    if hasattr(cell, "to_list"):  # a series, as polars has in columns of lists
        return cell.to_list()
    return cell_text(cell) or None

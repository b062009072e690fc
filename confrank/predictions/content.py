"""What every reader gives: the names of a file's columns, and on request their cells."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from confrank.predictions.cells import MISSING, Column, Text, number, select
from confrank.predictions.layout import Layout
from confrank.predictions.names import KEY_NAMES
from confrank.predictions.schema import Array

# Roles whose cells may be words.
WORDS = ("label", "prediction", "correct", "submitted")


@dataclass(frozen=True)
class Content:
    """The columns of a layout, by the names of `Layout.numbers`, and the class columns as a table [n, K].

    If `typed`, numbers in label and prediction are class numbers even if classes have numbers as names. `rows` [n]
    are the numbers of these rows in the file; None if it is all of them. `notes` say how it was read.
    """

    columns: dict[str, Column]
    table: Array | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    class_names: list[str] | None = None
    typed: bool = False
    rows: Array | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.table is None else len(self.table)

    def select(self, rows: Array) -> "Content":
        """The rows of these numbers or flags."""
        columns = {key: select(column, rows) for key, column in self.columns.items()}
        table = None if self.table is None else self.table[rows]
        numbers = np.arange(len(self)) if self.rows is None else self.rows
        return replace(self, columns=columns, table=table, rows=numbers[rows])


@dataclass(frozen=True)
class Opened:
    """A file of which the names of columns are known; `load` reads those of a layout.

    Columns among `lists` hold a list in each row. Without `bare`, unknown columns are never classes. `alone` gives
    the array of a file that has only one, without a name: labels if there is no `header`.
    """

    header: list[str]
    load: Callable[[Layout], Content]
    lists: frozenset[str] = frozenset()
    bare: bool = True
    alone: Callable[[], Array] | None = None


def may_be_named(role: str, layout: Layout) -> bool:
    """Whether a column may hold names that look like numbers: 01 is not 1."""
    return layout.class_names is not None and role in ("label", "prediction")


def key_numbers(layout: Layout) -> set[int]:
    """The numbers of columns that may identify samples."""
    return {column for role, column in layout.roles.items() if role in KEY_NAMES}


def by_role(columns: dict[int, Column], layout: Layout) -> dict[str, Column]:
    """Columns by role; words that are all numbers become numbers, except where they may be names of classes."""
    found = {}
    for role, column in layout.numbers().items():
        cells = columns[column]
        if isinstance(cells, Text) and role in WORDS and not may_be_named(role, layout):
            cells = _numbers_if_all(cells)
        found[role] = cells
    return found


def _numbers_if_all(text: Text) -> Column:
    numbers = [np.nan if value in MISSING else number(value) for value in text.values]
    if any(value is None for value in numbers) or all(value in MISSING for value in text.values):
        return text
    return np.array(numbers, dtype=np.float64)[text.codes]

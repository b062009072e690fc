"""The order of answers in time, from a column of numbers or of dates."""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from confrank.errors import InputError, counted, named
from confrank.metrics.inputs import Array, ArrayLike, Ints, cell_text, to_numpy

DAY = re.compile(r"\d{4}-\d\d-\d\d")
MISSING = ("", "nan", "nat", "none", "null", "na", "n/a", "inf", "-inf")


@dataclass(frozen=True)
class Chronology:
    """The positions of rows in the order of time, and the time of each row as text, in the order of the file.

    Rows of the same time, of which there are `num_tied`, stay in the order of the file.
    """

    order: Ints
    texts: list[str]
    num_tied: int

    @property
    def notes(self) -> list[str]:
        """A line if rows of the same time are finer than days, so that their order in the file matters."""
        if not self.num_tied or all(map(DAY.fullmatch, self.texts)):
            return []
        return [f"{counted(self.num_tied, 'row')} share their time with others; these stay in the order of the file"]


def chronology(values: ArrayLike, column: str = "time") -> Chronology:
    """Sort rows by a column of numbers, or of dates as in ISO 8601 or, day first, with points.

    >>> chronology(np.array(["2026-11-02", "2026-11-01T08:30", "2026-11-02"], dtype=object)).order.tolist()
    [1, 0, 2]
    >>> chronology(np.array(["2.11.2026", "30.10.2026 08:30"], dtype=object)).order.tolist()
    [1, 0]
    """
    texts = [*map(cell_text, to_numpy(values).tolist())]
    _refuse_missing(texts, column)
    times = _numbers(texts)
    if times is None:
        times = _dates(texts, column)
    order = np.argsort(times, kind="stable")
    _, count = np.unique(times, return_counts=True)
    return Chronology(order, texts, int(count[count > 1].sum()))


def _refuse_missing(texts: list[str], column: str) -> None:
    missing = [str(row) for row, text in enumerate(texts) if text.lower() in MISSING]
    if missing:
        raise InputError(
            f"expected a time in column {column!r} of every row, but it is missing in"
            f" {counted(len(missing), 'row')}: {named(missing)}",
            "fill them in, or leave out {time} if rows are in the order of time",
        )


def _numbers(texts: list[str]) -> Array | None:
    """The texts as numbers, with all digits of integers, such as nanoseconds since 1970; None if one is no number."""
    for kind in (int, float):
        with suppress(ValueError):
            return np.array([*map(kind, texts)])
    return None


def _iso(text: str) -> str:
    """A date with points, as in 30.11.2026 08:15, in the form of ISO 8601; other text as it is."""
    match = re.fullmatch(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(.*)", text)
    return f"{match[3]}-{int(match[2]):02d}-{int(match[1]):02d}{match[4]}" if match else text


def _dates(texts: list[str], column: str) -> Array:
    """Seconds since 1970; dates without a time zone are compared as they stand."""
    parsed: list[datetime] = []
    for row, text in enumerate(texts):
        try:
            parsed.append(datetime.fromisoformat(_iso(text)))
        except ValueError:
            raise InputError(
                "expected numbers or dates, as in 2026-11-30, 2026-11-30T08:15:00 or 30.11.2026, in column"
                f" {column!r}, but got {text[:40]!r} in row {row}",
                "rewrite the column, or leave out {time} if rows are in the order of time",
            ) from None
    zoned = {one.tzinfo is not None for one in parsed}
    if len(zoned) > 1:
        raise InputError(
            f"expected a time zone in every row of column {column!r} or in none, but only some have one",
            "give each time its zone",
        )
    start: Any = datetime(1970, 1, 1, tzinfo=None if zoned == {False} or not zoned else parsed[0].tzinfo)
    return np.array([(one - start).total_seconds() for one in parsed])

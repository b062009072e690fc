"""Columns of a file as cells: words, numbers, and what is missing.

Spaces around a cell never count. A number may be written as a percentage (83%) or with a decimal comma (0,83), if all
numbers of its column are.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from confrank.errors import InputError
from confrank.predictions.schema import Array

# What programs write for a missing value; a class of such a name has to be renamed.
MISSING = frozenset(
    ["", *"nan NaN NAN none None NONE null Null NULL na NA N/A n/a <NA> #N/A NaT".split()]  # noqa: SIM905
)
TRUTH = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
# What people write in a column `correct`; a label may be such a word.
CORRECT = TRUTH | {"y": True, "n": False, "right": True, "wrong": False, "correct": True, "incorrect": False}
NAME_CLASSES = (
    "name all class columns probability_NAME or logit_NAME, so that others are ignored, or name them with {columns},"
    " as in probability:NAME=COLUMN"
)
_PERCENT = re.compile(r"([-+]?[\d.,]+)\s?%")
_COMMA = re.compile(r"[-+]?\d*,\d+(?:[eE][-+]?\d+)?")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+")


@dataclass(frozen=True)
class Text:
    """A column of strings: the distinct values, and for each row the number of its value."""

    codes: Array
    values: list[str]

    def first_row(self, code: int) -> int:
        return int((self.codes == code).argmax())

    def __len__(self) -> int:
        return len(self.codes)


# Numbers [n], lists of numbers [n, K], keys [n] as bytes or numbers, or text.
Column = Array | Text


def joined_parts(parts: list[Array]) -> Array:
    """Concatenate the parts; each is freed as soon as it is copied."""
    whole: Array = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), dtype=np.result_type(*parts))
    start = len(whole)
    while parts:
        part = parts.pop()
        start -= len(part)
        whole[start : start + len(part)] = part
    return whole


def codes_of(words: Any, known: dict[str, int]) -> Array:
    """The number of each row's word in an Arrow dictionary array; new words get the next numbers."""
    numbers = [known.setdefault(word, len(known)) for word in words.dictionary.to_pylist()]
    codes: Array = np.array(numbers, dtype=np.int32)[words.indices.to_numpy(zero_copy_only=False)]
    return codes


def with_words(columns: dict[int, Array], words: dict[int, dict[str, int]]) -> dict[int, Column]:
    """The columns by number, with text in place of the numbers of words."""
    return {
        at: stripped(Text(values, list(words[at]))) if words.get(at) else values for at, values in columns.items()
    }


def text_of(cells: Iterable[str]) -> Text:
    """
    >>> text_of(["a", "b ", "a"])
    Text(codes=array([0, 1, 0]), values=['a', 'b'])
    """
    known: dict[str, int] = {}
    codes = np.array([known.setdefault(cell, len(known)) for cell in cells], dtype=np.int64)
    return stripped(Text(codes, list(known)))


def stripped(text: Text) -> Text:
    """The column without spaces around its cells."""
    return renamed(text, [value.strip() for value in text.values])


def select(column: Column, rows: Array) -> Column:
    """The cells in these rows (numbers or flags), in this order; text keeps only the values that occur."""
    if not isinstance(column, Text):
        return column[rows]
    occurring, codes = np.unique(column.codes[rows], return_inverse=True)
    return Text(codes, [column.values[code] for code in occurring.tolist()])


def is_missing(column: Column) -> Array:
    """Flags [n] of the cells without a value: empty ones, words such as None, and NaN."""
    if isinstance(column, Text):
        return np.array([value in MISSING for value in column.values], dtype=bool)[column.codes]
    with np.errstate(all="ignore"):  # a sum is NaN if a number is, or if it has both infinities
        if column.dtype.kind != "f" or not np.isnan(column.sum()):
            return np.zeros(len(column), dtype=bool)
    flags: Array = np.isnan(column).reshape(len(column), -1)
    return np.array(flags.any(axis=1))


def number(cell: str) -> float | None:
    """A number in ASCII digits; `float` would also accept 1_000 and digits of other scripts.

    >>> number(" 0.5"), number("1_000"), number("cat")
    (0.5, None, None)
    """
    if not cell.isascii() or "_" in cell:
        return None
    try:
        return float(cell)
    except ValueError:
        return None


def percentage(cell: str) -> float | None:
    """
    >>> percentage("71.7%"), percentage("71,7 %"), percentage("0.83")
    (0.717, 0.717, None)
    """
    match = _PERCENT.fullmatch(cell.strip())
    return number(f"{match[1].replace(',', '.')}e-2") if match else None


def comma_number(cell: str) -> float | None:
    """
    >>> comma_number("0,83"), comma_number("1"), comma_number("0.83")
    (0.83, 1.0, None)
    """
    cell = cell.strip()
    return number(cell.replace(",", ".")) if _COMMA.fullmatch(cell) or cell.lstrip("+-").isdigit() else None


_FORMS: tuple[Callable[[str], float | None], ...] = (number, percentage, comma_number)


def numbers_of(cells: Sequence[str], where: Callable[[int, str], str], forms: set[str] | None = None) -> Array:
    """Numbers [n], with NaN for what is missing; `where(cell number, cell)` words the error for a cell that is none.

    `forms` remembers how the earlier parts of a column write numbers: all of it must do so in one way.
    """
    forms = set() if forms is None else forms
    values, form = _plain_numbers(cells), number.__name__
    if values is None:
        values, form = _other_numbers(cells, where)
    if forms and form not in forms and not np.isnan(values).all():
        first = int((~np.isnan(values)).argmax())
        raise ValueError(where(first, cells[first]))
    if not np.isnan(values).all():
        forms.add(form)
    return values


def _plain_numbers(cells: Sequence[str]) -> Array | None:
    joined = "".join(cells)
    if not joined.isascii() or "_" in joined:
        return None
    try:
        return np.array(cells).astype(np.float64)
    except ValueError:
        return None


def _other_numbers(cells: Sequence[str], where: Callable[[int, str], str]) -> tuple[Array, str]:
    """Numbers [n] with missing ones among them, percentages, or numbers with a decimal comma; and which of these."""
    given = {position: cell for position, cell in enumerate(cells) if cell.strip() not in MISSING}
    parse = next((form for form in _FORMS if all(form(cell) is not None for cell in given.values())), number)
    values = np.full(len(cells), np.nan)
    for position, cell in given.items():
        value = parse(cell)
        if value is None:
            raise ValueError(where(position, cell))
        values[position] = value
    if parse is comma_number:
        commas = [cell for cell in given.values() if "," in cell]
        if all(_THOUSANDS.fullmatch(cell.strip()) for cell in commas):
            raise ValueError(
                f"expected a decimal point, but got {commas[0][:80]!r}, which may be a decimal comma or separate"
                " thousands; write numbers with a point"
            )
    return values, parse.__name__


def numbers_of_text(text: Text, role: str) -> Array:
    """Numbers [n] from a column of text."""

    def where(code: int, cell: str) -> str:
        return f"expected numbers in {role}, but got {cell[:80]!r} in row {text.first_row(code)}"

    return numbers_of(text.values, where)[text.codes]


def class_values(text: Text, name: str) -> Array:
    """Numbers [n] from the text of a class column."""
    try:
        return numbers_of_text(text, f"column {name[:80]!r}")
    except ValueError as error:
        raise InputError(str(error), NAME_CLASSES) from None


def raw_cells(column: Column) -> Array:
    """A column [n] as it is in the file: numbers, or text as an array of str objects.

    >>> raw_cells(Text(np.array([1, 0, 1]), ["a", "b"])).tolist()
    ['b', 'a', 'b']
    """
    if isinstance(column, Text):
        return np.array(column.values, dtype=object)[column.codes]
    if column.dtype.kind in "SO":
        cells = [cell.decode(errors="replace") if isinstance(cell, bytes) else str(cell) for cell in column.tolist()]
        return np.array(cells, dtype=object)
    return column.astype(object) if column.dtype.kind == "U" else column


def renamed(text: Text, values: list[str]) -> Text:
    """The column with new values, of which several may be equal."""
    if values == text.values:
        return text
    known: dict[str, int] = {}
    codes = np.array([known.setdefault(value, len(known)) for value in values], dtype=np.int64)
    return Text(codes[text.codes], list(known))

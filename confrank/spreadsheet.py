"""CSV that a spreadsheet opens as text: a cell such as =HYPERLINK(...) is written so that it is not executed."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

# What starts a formula in Excel, LibreOffice or Google Sheets, full-width forms included.
FORMULA = tuple("=+-@\t\r\n＝＋－＠")
LONGEST_FIELD = 1 << 30
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def csv_text(rows: Iterable[Sequence[object]], mark: str = ",") -> str:
    """The content of a CSV file with these rows; text that would be a formula gets a leading apostrophe.

    >>> csv_text([["path", "confidence"], ["=1+1.png", -0.5]])
    "path,confidence\\n'=1+1.png,-0.5\\n"
    """
    text = io.StringIO()
    cells = ([guarded(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    csv.writer(text, delimiter=mark, lineterminator="\n").writerows(cells)
    return text.getvalue()


def guarded(cell: str) -> str:
    """The cell as it is written; `unguarded` restores it.

    >>> [guarded(cell) for cell in ("cat", "@SUM(A1)", "-1.5", "-cat", "'=x", "'tis")]
    ['cat', "'@SUM(A1)", '-1.5', "'-cat", "''=x", "'tis"]
    """
    return f"'{cell}" if _is_formula(cell) else cell


def unguarded(cell: str) -> str:
    """The cell as it was before `guarded`: an apostrophe is removed only where `guarded` would have added it.

    >>> [unguarded(cell) for cell in ("cat", "'@SUM(A1)", "-1.5", "'-cat", "''=x", "'tis")]
    ['cat', '@SUM(A1)', '-1.5', '-cat', "'=x", "'tis"]
    """
    return cell[1:] if cell.startswith("'") and _is_formula(cell[1:]) else cell


@contextmanager
def long_fields() -> Iterator[None]:
    """Let `csv` read cells of more than 131,072 characters, such as texts."""
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _is_formula(cell: str) -> bool:
    # Apostrophes are looked through, so that a cell that already had one gets a second and keeps its own.
    text = cell.lstrip("'")
    return text.startswith(FORMULA) and not NUMBER.fullmatch(text)

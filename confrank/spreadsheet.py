"""CSV and other text as people write it, with a spreadsheet or by hand.

Text is in UTF-8 or UTF-16 with its mark; CSV is separated by commas, semicolons, tabs or bars and may begin with a
line sep=;. A cell such as =HYPERLINK(...) is written so that a spreadsheet shows it as text and does not execute it.
"""

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# What starts a formula in Excel, LibreOffice or Google Sheets, full-width forms included.
FORMULA = tuple("=+-@\t\r\n＝＋－＠")
LONGEST_FIELD = 1 << 30
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
CONVERT = "save it as UTF-8 (Excel: CSV UTF-8), or run iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW"


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


def decoded(content: bytes, *, cut: bool = False) -> str:
    """The text of a file, or of its start if it is `cut`; an error names the line that cannot be decoded."""
    is_marked = content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    if not is_marked and content[:4096].count(0) > len(content[:4096]) // 4:
        raise ValueError(
            "expected text in UTF-8, but this looks like UTF-16 without a byte order mark; save it as UTF-8, or run"
            " iconv -f UTF-16LE -t UTF-8 FILE > NEW"
        )
    try:
        decoder = codecs.getincrementaldecoder("utf-16" if is_marked else "utf-8-sig")()
        return decoder.decode(content, final=not cut)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        remedy = "this looks like a binary file, so give a text file" if 0 in content else CONVERT
        raise ValueError(
            f"expected text in UTF-8, but line {line} holds byte {content[error.start]:#04x}; {remedy}"
        ) from None


def mark_of(text: str, *, tabs: bool = False) -> str:
    """What separates the cells: the mark that splits the header into the most columns; with `tabs`, a tab if any.

    >>> mark_of("a;b;c,d\\n1;2;3\\n"), mark_of("a\\tb, c, d\\n", tabs=True)
    (';', '\\t')
    """
    counts = {mark: len(next(cells_of(text, mark), [])) for mark in ",;\t|"}
    return "\t" if tabs and counts["\t"] > 1 else max(counts, key=counts.__getitem__)


def cells_of(text: str, mark: str) -> Iterator[list[str]]:
    """The rows of cells that are not empty lines."""
    with long_fields():
        yield from filled(csv.reader(io.StringIO(text, newline=""), delimiter=mark, skipinitialspace=True))


def filled(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """The rows that are not empty lines, without a first line such as sep=; which Excel writes and reads."""
    for count, row in enumerate(row for row in rows if len(row) > 1 or (row and row[0].strip())):
        if count or not row[0].lower().startswith("sep=") or any(row[1:]):
            yield row


def form_of(path: Path) -> tuple[str, str]:
    """The mark that separates the cells of a CSV file, and the encoding to write another for the same spreadsheet."""
    content = path.read_bytes()
    is_marked = content[:2] in (b"\xef\xbb", b"\xff\xfe", b"\xfe\xff")
    return mark_of(decoded(content)), "utf-8-sig" if is_marked else "utf-8"


def csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line that is not empty, the header first, with the number of the line where they end."""
    text = decoded(path.read_bytes())
    with long_fields():
        reader = csv.reader(
            io.StringIO(text, newline=""), delimiter=mark_of(text), skipinitialspace=True, strict=True
        )
        try:
            for cells in filled(reader):
                yield reader.line_num, cells
        except csv.Error as error:
            raise ValueError(f"expected a CSV file, but it cannot be parsed: {error}") from None

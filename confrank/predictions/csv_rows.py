"""The rows of a small CSV file as text, however a spreadsheet writes it.

It may be in UTF-8 or UTF-16, separated by commas, semicolons, tabs or bars, and may begin with a line sep=;.
"""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from confrank.predictions.csv_file import filled, separator
from confrank.predictions.text_file import decoded, encoding_of, open_bytes, readable
from confrank.spreadsheet import long_fields


def form_of(path: Path) -> tuple[str, str]:
    """The separator of a CSV file, and the encoding to write another one that the same spreadsheet opens."""
    with readable("a CSV file"), open_bytes(path) as file:
        is_marked = file.read(2) in (b"\xef\xbb", b"\xff\xfe", b"\xfe\xff")
        return separator(path, encoding_of(path)), "utf-8-sig" if is_marked else "utf-8"


def csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line that is not empty, the header first, with the number of the line where they end."""
    with readable("a CSV file"), long_fields():
        text = io.StringIO(decoded(path), newline="")
        reader = csv.reader(text, delimiter=separator(path, encoding_of(path)), skipinitialspace=True, strict=True)
        for cells in filled(reader):
            yield reader.line_num, cells

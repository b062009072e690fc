"""Excel: the sheet of a workbook that has rows, with a header above them. Importing it needs openpyxl."""

import warnings
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from openpyxl import load_workbook

from confrank.errors import named
from confrank.predictions.content import Opened
from confrank.predictions.json_file import open_columns

Row = tuple[Any, ...]


def open_workbook(path: Path) -> Opened:
    """Read the only sheet with cells; a `ValueError` if several have some. Formulas have the values last computed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and extensions that do not matter here
            book = load_workbook(path, read_only=True, data_only=True)
            sheets = {sheet.title: _filled(sheet.iter_rows(values_only=True)) for sheet in book.worksheets}
            book.close()
    except Exception as error:  # openpyxl, zipfile and the XML parser raise errors of many types for broken files
        raise ValueError(f"expected an Excel workbook, but it cannot be read: {error}") from None
    sheets = {title: rows for title, rows in sheets.items() if rows}
    if len(sheets) != 1:
        found = f"{len(sheets)}: {named([*sheets])}" if sheets else "none"
        raise ValueError(f"expected one sheet with cells, but got {found}; save the one to read as CSV UTF-8")
    header, *rows = next(iter(sheets.values()))
    names = ["" if cell is None else str(cell) for cell in header]
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"expected distinct names in the first row, but got {twice[:80]!r} twice; rename one of them, or remove"
            " the rows above the names"
        )
    return open_columns({name: [row[number] for row in rows] for number, name in enumerate(names)})


def _filled(rows: Any) -> list[Row]:
    """The rows with cells, without the empty columns on the right."""
    found = [tuple(map(_plain, row)) for row in rows]
    found = [row for row in found if any(cell is not None for cell in row)]
    width = max((number + 1 for row in found for number, cell in enumerate(row) if cell is not None), default=0)
    return [(*row, *(width - len(row)) * (None,))[:width] for row in found]


def _plain(cell: Any) -> Any:
    if isinstance(cell, str):
        return cell.strip() or None
    return str(cell) if isinstance(cell, datetime | date | time | timedelta) else cell

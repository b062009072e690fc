"""A copy of a CSV file of predictions in which some columns have other values."""

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from confrank.predictions.csv_file import filled, separator
from confrank.predictions.text_file import encoding_of, open_text
from confrank.spreadsheet import csv_text, unguarded


def copied_csv(
    path: Path, rows: Sequence[int] | None, columns: Mapping[str, Sequence[Any]], without: Collection[str] = ()
) -> str:
    """These rows of a file (None: all), separated by commas, with columns replaced, or added at the end, or left out.

    The other cells stay as they are.
    """
    encoding = encoding_of(path)
    mark = separator(path, encoding)
    with open_text(path, encoding) as file:
        lines = filled(csv.reader(file, delimiter=mark, skipinitialspace=True))
        header = [unguarded(name) for name in next(lines)]
        content = [*lines]
    if rows is not None:
        content = [content[row] for row in rows]
    names = [name.strip() for name in header]
    new = [name for name in columns if name not in names]
    taken = [number for number, name in enumerate(names) if name not in without]
    return csv_text([[*(header[number] for number in taken), *new], *_cells(content, names, taken, columns, new)])


def _cells(
    content: Sequence[Sequence[str]],
    names: Sequence[str],
    taken: Sequence[int],
    columns: Mapping[str, Sequence[Any]],
    new: Sequence[str],
) -> Iterator[list[Any]]:
    for row, cells in enumerate(content):
        old = [columns[names[at]][row] if names[at] in columns else unguarded(cells[at]) for at in taken]
        yield [*old, *(columns[name][row] for name in new)]

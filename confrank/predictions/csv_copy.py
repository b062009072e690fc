"""A copy of a CSV file of predictions in which some columns have other values."""

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from confrank.phrasing import InputError
from confrank.predictions.csv_file import filled, separator
from confrank.predictions.text_file import encoding_of, open_text
from confrank.spreadsheet import csv_text, unguarded


def copied_csv(path: Path, num_rows: int, columns: Mapping[str, Sequence[Any]], without: Collection[str] = ()) -> str:
    """The file's rows, separated by commas, with these columns replaced, or added at the end, and others left out.

    The other cells stay as they are. It is an error if the file does not have `num_rows` rows: some were skipped.
    """
    encoding = encoding_of(path)
    mark = separator(path, encoding)
    with open_text(path, encoding) as file:
        rows = filled(csv.reader(file, delimiter=mark, skipinitialspace=True))
        header = [unguarded(name) for name in next(rows)]
        content = [*rows]
    if len(content) != num_rows:
        raise InputError(
            f"expected to copy the {len(content):,} rows of {path}, but {num_rows:,} of them were read",
            "choose an {out} that ends in .safetensors",
        )
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

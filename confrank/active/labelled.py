"""The labels so far: a CSV with the columns `path` (or `id`) and `label`, which grows from round to round."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confrank.data.pictures import SUFFIXES
from confrank.errors import InputError, about, named
from confrank.spreadsheet import csv_rows, unguarded

Note = Callable[[str], None]
# The column that names a sample; the first one that is there.
NAMES = ("path", "id")


@dataclass(frozen=True)
class Labelled:
    """`labels`: name -> label, in the file's order; `waiting`: names in the file without a label yet.

    `texts`: name -> text, if the file repeats the texts of a pool.
    """

    path: Path
    labels: Mapping[str, str]
    waiting: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def asked(self) -> set[str]:
        return {*self.labels, *self.waiting}


def read_labelled(path: Path, note: Note) -> Labelled:
    """Read and check the file. Other columns are ignored, so that a filled-in query can be appended.

    A path that is repeated with the same label gives a warning, with another label an error.
    """
    rows = list(_rows(path))
    labels: dict[str, str] = {}
    conflicts = []
    for name, label, _ in rows:
        if label and labels.setdefault(name, label) != label:
            conflicts.append(f"{name} ({labels[name]} and {label})")
    if conflicts:
        raise ValueError(f"expected one label for each sample in {path}, but got two for {named(conflicts)}")
    repeated = [name for name, number in Counter(name for name, label, _ in rows if label).items() if number > 1]
    if repeated:
        note(f"warning: {path} has {named(repeated)} more than once, with the same label; counted once")
    waiting = tuple(dict.fromkeys(name for name, _, _ in rows if name not in labels))
    return Labelled(path, labels, waiting, {name: text for name, _, text in rows if text})


def check_replaceable(path: Path, labelled: Labelled | None) -> None:
    """Raise if replacing this file by a new query would lose labels that are not in `labelled`."""
    if not path.is_file() or not path.stat().st_size:
        return
    known = {} if labelled is None else labelled.labels
    try:
        lost = [name for name, label, _ in _rows(path) if label and known.get(name) != label]
    except ValueError as error:
        raise InputError(
            f"expected {path} to be new or an earlier query, which is replaced, but {error}",
            "move the file, or choose another {out}",
        ) from None
    if lost:
        target = "the file of {labelled}" if labelled is None else labelled.path
        raise InputError(
            f"expected no new labels in {path}, which is replaced, but got {len(lost)}: {named(lost)}",
            f"append its rows to {target} first, or choose another {{out}}",
        )


def _is_joined(surplus: list[str], label: str) -> bool:
    """Whether a line looks like two: a row may have one number more than the header, and a label is not a picture."""
    filled = [cell for cell in surplus if cell]
    try:
        is_number = all(math.isfinite(float(cell)) for cell in filled)
    except ValueError:
        is_number = False
    return len(filled) > 1 or not is_number or Path(label).suffix.lower() in SUFFIXES


def _name_column(cells: Sequence[str]) -> str | None:
    """The column that names the samples, if these cells are a header."""
    return next((name for name in NAMES if name in cells), None) if "label" in cells else None


def _rows(path: Path) -> Iterable[tuple[str, str, str]]:
    """Name, label and text of each line; what is not there is empty."""
    if not path.is_file():
        raise ValueError(
            f"expected a CSV with the columns path and label (for texts, id and label), but {path} does not exist;"
            " create it with this header line if nothing is labelled yet"
        )
    with about(path):
        rows = csv_rows(path)
        header = [name.strip().lower() for name in next(rows, (0, []))[1]]
        column = _name_column(header)
        if column is None:
            raise ValueError(
                "expected the columns path and label (for texts, id and label),"
                f" but got {named(header) or 'nothing'}; rename the columns"
            )
        for line, row in rows:
            row = [unguarded(cell.strip()) for cell in row]
            names = [cell.lower() for cell in row]
            if (appended := _name_column(names)) is not None:  # the header of an appended file
                header, column = names, appended
                continue
            if len(row) == 1 < len(header) and (mark := re.search(r"[,;\t|]", row[0])):
                raise ValueError(
                    f"expected {len(header)} values in line {line}, as in the header, but got {row[0][:80]!r};"
                    f" use the separator of the first line, not {mark[0]!r}, in appended rows"
                )
            cells = dict(zip(header, row, strict=False))
            name, label = cells.get(column, ""), cells.get("label", "")
            if _is_joined(row[len(header) :], label):
                raise ValueError(
                    f"expected {len(header)} values in line {line}, as in the header, but got"
                    f" {', '.join(row)[:80]}; is a line break missing before appended rows?"
                )
            if not name:
                raise ValueError(f"expected a {column} in line {line}, but it is empty")
            yield name, label, cells.get("text", "")

"""The answers so far: a CSV with the columns `path` and `label`, which grows from round to round."""

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from confrank.data.pictures import SUFFIXES
from confrank.phrasing import named

Note = Callable[[str], None]
COLUMNS = {"path", "label"}


@dataclass(frozen=True)
class Labelled:
    """`labels`: path -> label, in the file's order; `waiting`: paths that were asked but have no label yet."""

    path: Path
    labels: Mapping[str, str]
    waiting: tuple[str, ...] = ()

    @property
    def asked(self) -> set[str]:
        return {*self.labels, *self.waiting}


def read_labelled(path: Path, note: Note) -> Labelled:
    """Read and check the file; other columns are ignored, so that the filled-in answer to a query can be appended.

    The same path twice with one label is noted, with two labels an error.
    """
    rows = list(_rows(path))
    labels: dict[str, str] = {}
    conflicts = []
    for name, label in rows:
        if label and labels.setdefault(name, label) != label:
            conflicts.append(f"{name} ({labels[name]} and {label})")
    if conflicts:
        raise ValueError(f"expected one label for each path in {path}, but got two for {named(conflicts)}")
    repeated = [name for name, number in Counter(name for name, label in rows if label).items() if number > 1]
    if repeated:
        note(f"warning: {path} names {named(repeated)} more than once, with the same label; counted once")
    waiting = tuple(dict.fromkeys(name for name, label in rows if name not in labels))
    return Labelled(path, labels, waiting)


def check_replaceable(path: Path, labelled: Labelled | None) -> None:
    """Raise if replacing this file by a new question would lose labels: those that `labelled` has not got."""
    if not path.is_file() or not path.stat().st_size:
        return
    known = {} if labelled is None else labelled.labels
    try:
        lost = [name for name, label in _rows(path) if label and known.get(name) != label]
    except ValueError as error:
        raise ValueError(
            f"expected {path} to be new or an earlier question, which is replaced, but {error};"
            " move it away, or give another --out"
        ) from None
    if lost:
        into = "the file that you give with --labelled" if labelled is None else labelled.path
        raise ValueError(
            f"expected no labels to lose in {path}, which is replaced, but got {len(lost)}: {named(lost)};"
            f" append its rows to {into} first, or give another --out"
        )


def _is_joined(surplus: list[str], label: str) -> bool:
    """Whether a line seems to be two: an answer may have a number more than the header, and no file is a label."""
    filled = [cell for cell in surplus if cell]
    try:
        is_number = all(math.isfinite(float(cell)) for cell in filled)
    except ValueError:
        is_number = False
    return len(filled) > 1 or not is_number or Path(label).suffix.lower() in SUFFIXES


def _rows(path: Path) -> Iterable[tuple[str, str]]:
    if not path.is_file():
        raise ValueError(
            f"expected a CSV with the columns path and label, but {path} does not exist;"
            " write one with that header line if nothing is labelled yet"
        )
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            if not {*header} >= COLUMNS:
                raise ValueError(
                    f"expected the columns path and label in {path}, but got {', '.join(header) or 'nothing'}"
                )
            for row in filter(None, reader):
                row = [cell.strip() for cell in row]
                if {*row} >= COLUMNS:  # an appended file begins
                    header = row
                    continue
                cells = dict(zip(header, row, strict=False))
                name, label = cells.get("path", ""), cells.get("label", "")
                if _is_joined(row[len(header) :], label):
                    raise ValueError(
                        f"expected {len(header)} values in line {reader.line_num} of {path}, as in the header,"
                        f" but got {', '.join(row)[:80]}; does a line before something appended lack its end?"
                    )
                if not name:
                    raise ValueError(f"expected a path in line {reader.line_num} of {path}, but it is empty")
                yield name, label
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"expected a CSV file in UTF-8, but {path} cannot be read: {error}") from None

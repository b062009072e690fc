"""A small table of what errors cost, by true class, by predicted class, or by both: a CSV or JSON file."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from confrank.errors import InputError, class_text, named
from confrank.files import distinct_names
from confrank.metrics.inputs import ArrayLike, Floats, as_classes, same_length
from confrank.metrics.samples import Samples
from confrank.spreadsheet import csv_rows, decoded

CLASSES = ("label", "prediction")
FORM = "a table with the column cost and a column label (the true class), prediction, or both"


@dataclass(frozen=True)
class CostTable:
    """The cost of an error for each class, or pair of classes, named in `columns` (label, prediction or both)."""

    columns: tuple[str, ...]
    costs: dict[tuple[str, ...], float]


def read_cost_table(path: str | Path) -> CostTable:
    """Read a CSV file with a header, or a JSON list of objects, with `cost` and with `label`, `prediction` or both.

    `label,cost` gives the cost of an error by the true class, `prediction,cost` by the predicted class, and
    `label,prediction,cost` for each pair of them.
    """
    path = Path(path)
    try:
        is_json = path.suffix.lower() == ".json"
        records = (
            json.loads(decoded(path.read_bytes()), object_pairs_hook=distinct_names)
            if is_json
            else _csv_records(path)
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"{path}: expected {FORM}, but it cannot be read: {reason}", "change {cost_table}") from None
    try:
        return cost_table(records)
    except ValueError as error:
        raise InputError(f"{path}: {error}", "change {cost_table}") from None


def _csv_records(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file; a number may have a decimal comma, if it cannot be a number of thousands."""
    lines = [*csv_rows(path)] or [(0, [])]
    header = [name.strip() for name in lines[0][1]]
    for line, cells in lines[1:]:
        if len(cells) != len(header):
            raise ValueError(f"line {line} has {len(cells)} values, the header {len(header)}")
    return [dict(zip(header, map(_with_point, cells), strict=True)) for _, cells in lines[1:]]


def _with_point(cell: str) -> str:
    cell = cell.strip()
    return cell.replace(",", ".") if re.fullmatch(r"\d+,\d{1,2}|0,\d+", cell) else cell


def cost_table(records: Any) -> CostTable:
    """A table from a list of records, as a CSV or JSON file holds them.

    >>> cost_table([{"label": "cat", "cost": 3}]).costs
    {('cat',): 3.0}
    """
    if not isinstance(records, list) or not records or not all(isinstance(record, dict) for record in records):
        raise ValueError(f"expected {FORM}, but got no rows")
    found = {str(name) for record in records for name in record}
    columns = tuple(name for name in CLASSES if name in found)
    if not columns or found != {*columns, "cost"}:
        raise ValueError(f"expected {FORM}, but got the columns {', '.join(sorted(found))}")
    costs: dict[tuple[str, ...], float] = {}
    for number, record in enumerate(records):
        key = tuple(str(record.get(name, "")).strip() for name in columns)
        if not all(key):
            raise ValueError(f"expected a class in each row of the table, but row {number} has none")
        if key in costs:
            raise ValueError(f"expected each class once, but got {' and '.join(key)} twice")
        costs[key] = _cost(record.get("cost"), number)
    return CostTable(columns, costs)


def _cost(value: Any, number: int) -> float:
    try:
        cost = float(value)
    except (TypeError, ValueError):
        cost = -1.0
    if not 0 <= cost < float("inf") or isinstance(value, bool):
        raise ValueError(f"expected a cost of at least 0 in each row of the table, but got {value!r} in row {number}")
    return cost


def error_costs(
    table: CostTable,
    label: ArrayLike,
    prediction: ArrayLike,
    *,
    class_names: Sequence[str] | None = None,
    default: float | None = None,
) -> Floats:
    """What each row costs if it is an error: as in the table, or `default` if its classes are not there. [n]

    The classes of the table are names, or numbers if there are no `class_names`.

    >>> error_costs(cost_table([{"label": "1", "cost": 3}]), [0, 1, 1], [1, 0, 1], default=2).tolist()
    [2.0, 3.0, 3.0]
    """
    classes = {"label": as_classes(label, "label"), "prediction": as_classes(prediction, "prediction")}
    same_length(**classes)
    _check_names(table, class_names)
    chosen = np.stack([classes[name] for name in table.columns], axis=1)
    groups, group_of = np.unique(chosen, axis=0, return_inverse=True)
    keys = [tuple(class_text(class_names, number) for number in group) for group in groups.tolist()]
    each = np.array([table.costs.get(key, np.nan if default is None else default) for key in keys])
    costs: Floats = each[group_of.reshape(-1)]
    missing = np.isnan(costs) & (classes["label"] != classes["prediction"])
    if missing.any():
        key = keys[int(group_of.reshape(-1)[missing.argmax()])]
        named_key = " and ".join(f"{column} {name}" for column, name in zip(table.columns, key, strict=True))
        problem = f"expected the cost of each error, but the table has none of {named_key}"
        raise InputError(problem, "give {cost_error} for all others")
    return np.nan_to_num(costs)  # right predictions cost nothing


def _check_names(table: CostTable, class_names: Sequence[str] | None) -> None:
    if class_names is None:
        return
    unknown = sorted({name for key in table.costs for name in key} - {*class_names})
    if unknown:
        raise InputError(
            f"expected classes among {named(list(class_names))}, but the table has {named(unknown)}",
            "change {cost_table}",
        )


def costs_of_rows(
    path: str, samples: Samples, class_names: Sequence[str] | None, default: float | None, file: str
) -> Floats:
    """What each row of a file costs if it is an error, by the table in another. [n]"""
    table = read_cost_table(path)
    if samples.label is None or samples.prediction is None:
        raise InputError(
            f"expected labels and predictions for a table of costs, but {file} has none", "use {cost_error} alone"
        )
    return error_costs(table, samples.label, samples.prediction, class_names=class_names, default=default)

"""JSON as a table: a list of objects, an object of columns, what pandas writes, or an object in each line."""

import json
from typing import Any

import numpy as np

from confrank.files import distinct_names
from confrank.predictions.roles import PREFIXES, role_of
from confrank.predictions.tables import Array, Column, Columns, Table, Wanted, check_distinct, class_values, words_of

# Objects with more names, or deeper in others, stay as they are: a table of tokens would be a column for each.
MOST_NESTED, DEEPEST = 50, 3
EXPECTED = "a list of objects, or an object of columns"
Cells = dict[str, list[Any]]


def of_json(text: str, has_lines: bool) -> Table:
    """The columns of a text; several objects are one in each line, whatever the name of the file says."""
    try:
        document = _lines(text) if has_lines else _parsed(text)
    except RecursionError:
        raise ValueError(f"expected {EXPECTED}, but it is nested too deeply") from None
    cells, nested = _flattened(_with_scores(_columns(document)))
    if not cells or not len(next(iter(cells.values()))):
        raise ValueError("expected rows of predictions, but there are none")
    lists = frozenset(name for name, column in cells.items() if any(isinstance(cell, list) for cell in column))

    def load(wanted: Wanted) -> Columns:
        named: dict[str, Column] = {}
        for name in wanted.names:
            is_table = name in lists and name not in {*wanted.words, *wanted.keys}
            named[name] = _table(cells[name], name) if is_table else _column(cells[name])
        table = [class_values(_column(cells[name]), name).astype(np.float64) for name in wanted.classes]
        return Columns(named, np.stack(table, axis=1) if table else None)

    return Table([*cells], load, lists, lists.union(nested))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=distinct_names)
    except json.JSONDecodeError as error:
        if "Extra data" in str(error) and text.lstrip().startswith("{"):
            return _lines(text)
        raise ValueError(f"expected JSON, but it cannot be parsed: {error}") from None


def _lines(text: str) -> list[Any]:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                rows.append(json.loads(line, object_pairs_hook=distinct_names))
            except json.JSONDecodeError as error:
                why = f"{error.msg} at column {error.colno}"
                raise ValueError(f"expected JSON, but it cannot be parsed in line {number}: {why}") from None
    return rows


def _columns(document: Any) -> Cells:
    if isinstance(document, list):
        return _of_rows(document)
    if not isinstance(document, dict):
        raise ValueError(f"expected {EXPECTED}, but got {type(document).__name__}")
    if {"columns", "data"} <= {*document}:  # pandas, orient="split"
        return _of_split(document["columns"], document["data"])
    lists = [value for value in document.values() if isinstance(value, list)]
    if len(lists) == 1 and lists[0] and isinstance(lists[0][0], dict):  # {"predictions": [...], "model": ...}
        return _of_rows(lists[0])
    objects = [value for value in document.values() if isinstance(value, dict)]
    are_objects = bool(objects) and len(objects) == len(document) and not any(map(role_of, document))
    if are_objects and not all(name.isdigit() for name in objects[0]):  # rows by name, or pandas, orient="index"
        is_numbered = [*document] == [str(number) for number in range(len(document))]
        keys = {} if is_numbered or "key" in objects[0] else {"key": [*document]}
        return keys | _of_rows(objects)
    columns: Cells = {name: value for name, value in document.items() if isinstance(value, list)}
    for name, value in document.items():
        if isinstance(value, dict):  # pandas, by default: an object from rows to cells
            first = objects[0]
            if missing := [row for row in first if row not in value]:
                raise ValueError(
                    f"expected the same rows in each column, but {name[:80]!r} lacks {missing[0][:80]!r}"
                )
            columns[name] = [value[row] for row in (first if len(value) == len(first) else value)]
    if len({*map(len, columns.values())}) > 1:
        shown = ", ".join(f"{len(cells)} in {name}" for name, cells in columns.items())
        raise ValueError(f"expected the same number of rows in each column, but got {shown}")
    return columns


def _of_rows(rows: list[Any]) -> Cells:
    """Columns of all names that occur, with None where a row lacks one."""
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise ValueError(
                f"expected an object in each row, but got {'a list' if isinstance(row, list) else 'others'} in row"
                f" {number};"
                ' write rows such as {"label": "cat", "prediction": "dog", "confidence": 0.7}'
            )
    names = dict.fromkeys(name for row in rows for name in row)
    if {"doc_id", "filtered_resps"} <= names.keys():
        raise ValueError(
            "expected a confidence, but got a log of lm-evaluation-harness; write rows such as"
            ' {"id": 1, "label": 2, "logits": [-3.1, -1.2, -0.7]} from doc_id, target and filtered_resps'
        )
    return {name: [row.get(name) for row in rows] for name in names}


def _of_split(names: Any, rows: Any) -> Cells:
    if not isinstance(names, list) or not isinstance(rows, list):
        raise ValueError("expected lists under columns and data, but got others")
    check_distinct([*map(str, names)])
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(names):
            raise ValueError(f"expected a list of {len(names)} values in each row, but row {number} is another")
    return {str(name): [row[column] for row in rows] for column, name in enumerate(names)}


def _with_scores(columns: Cells) -> Cells:
    """The scores of all classes as columns: objects such as {"cat": 0.9, "dog": 0.1} under a name of probabilities or
    logits, or lists of {"label": ..., "score": ...}, as pipelines of transformers write them, or BigQuery with prob.
    """
    for name, cells in columns.items():
        kind = role_of(name) or ""
        if not cells or not all(cells) or not all(isinstance(cell, dict | list) for cell in cells):
            continue
        if kind in PREFIXES and all(isinstance(cell, dict) for cell in cells):
            scores, prefix = cells, PREFIXES[kind][0]
        elif all(isinstance(item, dict) and "label" in item for cell in cells for item in cell):
            scores = [{item["label"]: item.get("score", item.get("prob")) for item in cell} for cell in cells]
            prefix = "probability_"
        else:
            continue
        classes = dict.fromkeys(label for row in scores for label in row)
        others = {other: values for other, values in columns.items() if other != name}
        return others | {f"{prefix}{label}": [row.get(label) for row in scores] for label in classes}
    return columns


def _flattened(columns: Cells, prefix: str = "") -> tuple[Cells, list[str]]:
    """Columns of objects as columns such as judge.confidence, and the names of these."""
    plain: Cells = {}
    nested: list[str] = []
    for name, cells in columns.items():
        is_object = bool(cells) and all(isinstance(cell, dict) for cell in cells)
        inner = dict.fromkeys(key for cell in cells for key in cell) if is_object else {}
        if not 0 < len(inner) <= MOST_NESTED or prefix.count(".") >= DEEPEST:
            plain[prefix + name] = cells
            nested += [prefix + name] if prefix else []
            continue
        more, names = _flattened({key: [cell.get(key) for cell in cells] for key in inner}, f"{prefix}{name}.")
        if twice := sorted(more.keys() & {*plain, *(prefix + other for other in columns)}):
            raise ValueError(f"expected distinct columns, but {twice[0]!r} is also in the object {prefix + name!r}")
        plain |= more
        nested += names
    return plain, nested


def _column(cells: list[Any]) -> Column:
    """Flags or numbers [n] if all cells are (NaN for null), otherwise words."""
    given = [cell for cell in cells if cell is not None]
    if given and all(isinstance(cell, bool) for cell in cells):
        return np.array(cells, dtype=bool)
    if given and all((type(cell) in (int, float) and abs(cell) < 2**53) or cell != cell for cell in given):
        return np.array(cells, dtype=np.float64) if len(given) < len(cells) else np.array(cells)
    words = ["" if cell is None else cell if isinstance(cell, str) else json.dumps(cell) for cell in cells]
    return words_of(words)


def _table(cells: list[Any], name: str) -> Array:
    """Lists of numbers as [n, K]."""
    lengths = {len(cell) if isinstance(cell, list) else 0 for cell in cells}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError(f"expected lists of one length in {name[:80]!r}, but got lengths {sorted(lengths)[:5]}")
    flat = [value for cell in cells for value in cell]
    if not all(type(value) in (int, float) for value in flat):
        raise ValueError(f"expected lists of numbers in {name[:80]!r}, but got other values")
    try:
        return np.array(flat, dtype=np.float64).reshape(len(cells), -1)
    except OverflowError:
        raise ValueError(f"expected numbers in {name[:80]!r}, but got one that is too large") from None

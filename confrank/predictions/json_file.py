"""JSON: a list of objects, an object of columns, or one object in each line; compressed or not."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from confrank.predictions import lm_eval
from confrank.predictions.cells import Column, Text, class_values, text_of
from confrank.predictions.content import Content, Opened, by_role, key_numbers
from confrank.predictions.layout import Layout, check_distinct
from confrank.predictions.names import PREFIXES, role_of
from confrank.predictions.schema import Array
from confrank.predictions.text_file import distinct_names, encoding_of, open_text, readable, suffix_of

LINES = (".jsonl", ".ndjson")
# Objects with more names, or deeper in others, stay as they are: a table of tokens would be a column for each.
MOST_NESTED, DEEPEST = 50, 3
EXPECTED = "a list of objects, or an object of columns"
Columns = dict[str, list[Any]]
# Columns of numbers may be arrays.
Cells = Mapping[str, list[Any] | Array]


def open_json(path: Path) -> Opened:
    """Read a JSON or JSON Lines file; a `ValueError` says where it is broken."""
    with readable("JSON"):
        try:
            columns = _of_lines(path) if _has_lines(path) else _of_document(path)
        except RecursionError:
            raise ValueError(f"expected {EXPECTED}, but it is nested too deeply") from None
    columns = lm_eval.answers(columns) if lm_eval.is_log(columns) else _with_scores(columns)
    plain, nested = _flattened(columns)
    return open_columns(plain, nested)


def open_columns(columns: Cells, nested: Collection[str] = ()) -> Opened:
    """Columns of flags, numbers, text or lists of numbers, with None for what is missing.

    Those that were `nested` in others are never classes.
    """
    if not columns or not len(next(iter(columns.values()))):
        raise ValueError("expected rows of predictions, but there are none")
    lists = frozenset(
        name
        for name, cells in columns.items()
        if isinstance(cells, list) and any(isinstance(cell, list) for cell in cells)
    )
    return Opened(list(columns), lambda layout: _loaded(columns, lists, layout), lists.union(nested))


def _loaded(columns: Cells, lists: frozenset[str], layout: Layout) -> Content:
    header, keys = list(columns), key_numbers(layout)
    cells: dict[int, Column] = {}
    for number in layout.numbers().values():
        name = header[number]
        values, text = columns[name], number in keys or number in layout.extra.values()
        if isinstance(values, np.ndarray):
            cells[number] = values
        elif name in lists and not text:
            cells[number] = _table(values, name)
        else:
            cells[number] = _column(values, text=text)
    table = [_numbers(columns[header[number]], header[number]) for number in layout.table]
    for number in keys:
        if isinstance(column := cells[number], Text):
            cells[number] = np.array([value.encode() for value in column.values], dtype=object)[column.codes]
    return Content(by_role(cells, layout), np.stack(table, axis=1) if table else None)


def _has_lines(path: Path) -> bool:
    """Whether the name says so, or the first line is an object and more follows."""
    if suffix_of(path) in LINES:
        return True
    with open_text(path, encoding_of(path)) as file:
        first, second = (next((line for line in file if line.strip()), "") for _ in range(2))
    try:
        return bool(second) and isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _of_lines(path: Path) -> Columns:
    rows = []
    with open_text(path, encoding_of(path)) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                rows.append(_parsed(line, f" in line {number}"))
    return _of_rows(rows)


def _of_document(path: Path) -> Columns:
    with open_text(path, encoding_of(path)) as file:
        document = _parsed(file.read(), "")
    if isinstance(document, list):
        return _of_rows(document)
    if not isinstance(document, dict):
        raise ValueError(f"expected {EXPECTED}, but got {_kind(document)}")
    if {"columns", "data"} <= {*document}:  # pandas, orient="split"
        return _of_split(document["columns"], document["data"])
    rows = [value for value in document.values() if isinstance(value, list) and value and isinstance(value[0], dict)]
    others = [value for value in document.values() if isinstance(value, list) and value not in rows]
    if len(rows) == 1 and not others:  # {"predictions": [...], "model": ...}
        return _of_rows(rows[0])
    if _are_rows(document):
        return _of_named_rows(document)
    columns = _of_columns({name: value for name, value in document.items() if isinstance(value, list | dict)})
    lengths = {name: len(cells) for name, cells in columns.items()}
    if len({*lengths.values()}) > 1:
        shown = ", ".join(f"{length} in {name}" for name, length in lengths.items())
        raise ValueError(f"expected the same number of rows in each column, but got {shown}")
    return columns


def _of_columns(document: dict[str, Any]) -> Columns:
    """Lists by name; an object from rows to cells becomes a list in the order of the first such object."""
    columns, first = {}, next((value for value in document.values() if isinstance(value, dict)), {})
    for name, value in document.items():
        if isinstance(value, dict) and len(value) == len(first):
            if missing := [row for row in first if row not in value]:
                raise ValueError(
                    f"expected the same rows in each column, but {name[:80]!r} lacks {missing[0][:80]!r}"
                )
            value = {row: value[row] for row in first}
        columns[name] = [*value.values()] if isinstance(value, dict) else value
    return columns


def _are_rows(document: dict[str, Any]) -> bool:
    """Whether an object has an object for each row: {"a.png": {"label": ...}}, or pandas, orient="index".

    If it has one for each column, the names of columns are outside, or those inside are numbers of rows.
    """
    rows = [*document.values()]
    if not rows or not all(isinstance(row, dict) for row in rows) or any(map(role_of, document)):
        return False
    return not all(name.isdigit() for name in rows[0])


def _of_named_rows(rows: dict[str, dict[str, Any]]) -> Columns:
    """Columns from rows by name, which identifies them unless the rows are merely numbered."""
    columns = _of_rows([*rows.values()])
    numbered = [*rows] == [str(number) for number in range(len(rows))]
    return columns if numbered or "key" in columns else {"key": [*rows]} | columns


def _flattened(columns: Columns, prefix: str = "") -> tuple[Columns, list[str]]:
    """Columns of objects as columns such as judge.confidence, and the names of these."""
    plain: Columns = {}
    nested: list[str] = []
    for name, cells in columns.items():
        inner = dict.fromkeys(key for cell in cells for key in cell) if _are_objects(cells) else {}
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


def _are_objects(cells: list[Any]) -> bool:
    return bool(cells) and all(isinstance(cell, dict) for cell in cells)


def _of_split(names: Any, rows: Any) -> Columns:
    if not isinstance(names, list) or not isinstance(rows, list):
        raise ValueError("expected lists under columns and data, but got others")
    check_distinct([*map(str, names)])
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(names):
            raise ValueError(f"expected a list of {len(names)} values in each row, but row {number} is another")
    return {str(name): [row[column] for row in rows] for column, name in enumerate(names)}


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=distinct_names)
    except json.JSONDecodeError as error:
        raise ValueError(f"expected JSON, but it cannot be parsed{where}: {error}") from None


def _of_rows(rows: list[Any]) -> Columns:
    """Columns of all names that occur, with None where a row lacks one."""
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise ValueError(
                f"expected an object in each row, but got {_kind(row)} in row {number};"
                ' write rows such as {"label": "cat", "prediction": "dog", "confidence": 0.7}'
            )
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _with_scores(columns: Columns) -> Columns:
    """The scores of all classes as columns: objects such as {"cat": 0.9, "dog": 0.1} under a name of probabilities or
    logits, or lists of {"label": ..., "score": ...}, as pipelines of transformers write them, or BigQuery with prob.
    """
    for name, cells in columns.items():
        is_named = role_of(name) in PREFIXES and all(isinstance(cell, dict) for cell in cells)
        if cells and (is_named or all(_is_scores(cell) for cell in cells)):
            scores = cells if is_named else [{item["label"]: _score(item) for item in cell} for cell in cells]
            prefix = PREFIXES[role_of(name) or ""][0] if is_named else "probability_"
            classes = dict.fromkeys(label for row in scores for label in row)
            table = {f"{prefix}{label}": [row.get(label) for row in scores] for label in classes}
            return {other: values for other, values in columns.items() if other != name} | table
    return columns


def _is_scores(cell: Any) -> bool:
    return (
        isinstance(cell, list)
        and bool(cell)
        and all(isinstance(i, dict) and "label" in i and {"score", "prob"} & {*i} for i in cell)
    )


def _score(item: dict[str, Any]) -> Any:
    return item["score"] if "score" in item else item["prob"]


def _column(cells: list[Any], *, text: bool = False) -> Column:
    """Flags or numbers [n] if all cells are (NaN for null), otherwise text."""
    given = [cell for cell in cells if cell is not None]
    if given and not text:
        if all(isinstance(cell, bool) for cell in cells):
            return np.array(cells, dtype=bool)
        if all((type(cell) in (int, float) and abs(cell) < 2**53) or cell != cell for cell in given):
            return np.array(cells, dtype=np.float64) if len(given) < len(cells) else np.array(cells)
    return text_of(_word(cell) for cell in cells)


def _word(cell: Any) -> str:
    if isinstance(cell, str):
        return cell
    return "" if cell is None else json.dumps(cell)


def _numbers(cells: list[Any] | Array, name: str) -> Array:
    column = cells if isinstance(cells, np.ndarray) else _column(cells)
    if isinstance(column, Text):
        return class_values(column, name)
    return column.astype(np.float64)


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


def _kind(value: Any) -> str:
    numbers = dict.fromkeys((int, float), "a number")
    names = {str: "text", bool: "true or false", list: "a list", dict: "an object"} | numbers
    return names.get(type(value), "null")

"""Read predictions from files of any supported format, and write them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from confrank.atomic import canonical_safetensors, write_atomically
from confrank.metrics.arrays import Classes, HasArray, to_numpy
from confrank.metrics.frames import cell_text
from confrank.phrasing import InputError, about, similar_path
from confrank.predictions.arrays import (
    open_arrays,
    open_npy,
    open_npz,
    open_safetensors,
    open_table,
    read_npy,
    with_label_rows,
)
from confrank.predictions.columns import predictions_of
from confrank.predictions.content import Opened
from confrank.predictions.cost import check_cost
from confrank.predictions.csv_file import open_csv
from confrank.predictions.frame import open_frame
from confrank.predictions.json_file import open_json
from confrank.predictions.layout import Layout, layout_of
from confrank.predictions.names import KEY_NAMES, holds_class_names
from confrank.predictions.reading import PLAIN, Kind, Reading, Scale, recalled, record_of
from confrank.predictions.schema import Array, Predictions
from confrank.predictions.signature import refuse_other_format
from confrank.predictions.text_file import suffix_of
from confrank.predictions.truth import with_truth


def _open_parquet(path: Path) -> Opened:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ValueError("expected pyarrow to read Parquet, but it is missing: pip install pyarrow") from None
    from confrank.predictions.parquet import open_parquet

    return open_parquet(path)


def _open_workbook(path: Path) -> Opened:
    try:
        import openpyxl  # noqa: F401
    except ImportError:
        raise ValueError(
            "expected openpyxl to read an Excel workbook, but it is missing: pip install openpyxl, or save the sheet"
            " as CSV UTF-8"
        ) from None
    from confrank.predictions.workbook import open_workbook

    return open_workbook(path)


def _open_tensors(path: Path) -> Opened:
    tensors = _read_tensors(path)
    return open_arrays(tensors, {}) if isinstance(tensors, dict) else open_table(tensors)


def _read_tensors(path: Path) -> dict[str, Array] | Array:
    try:
        from confrank.predictions.tensor_file import read_tensors
    except ImportError:
        raise ValueError("expected torch to read its files, but it is missing: pip install torch") from None
    return read_tensors(path)


TENSORS = (".pt", ".pth")
READERS: dict[str, Callable[[Path], Opened]] = {
    ".safetensors": open_safetensors,
    ".npz": open_npz,
    ".npy": open_npy,
    **dict.fromkeys(TENSORS, _open_tensors),
    ".csv": open_csv,
    ".tsv": open_csv,
    ".parquet": _open_parquet,
    ".xlsx": _open_workbook,
    ".json": open_json,
    ".jsonl": open_json,
    ".ndjson": open_json,
}
# What to do with files of other kinds; pickled objects are never opened.
_SHEET = "save the sheet as CSV UTF-8"
_PICKLE = "write the table with DataFrame.to_csv or to_parquet"
OTHER_KINDS = {
    **dict.fromkeys((".xls", ".ods", ".numbers"), _SHEET),
    **dict.fromkeys((".pkl", ".pickle", ".feather", ".h5"), _PICKLE),
    ".txt": "rename it to .csv if it has columns",
}
SCORES = ("probabilities", "logits", "submitted", "confidence")
COMPRESSED = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")


def load_predictions(path: str | Path) -> Predictions:
    """Read a file of predictions that needs no explanation; see `read`."""
    return read(path)


def read(
    path: str | Path | HasArray,
    columns: Mapping[str, str] | None = None,
    truth: str | Path | HasArray | None = None,
    on: str | None = None,
    positive: str | None = None,
    scale: Scale | None = None,
    *,
    logits: bool = False,
    probabilities: bool = False,
    skip_missing: bool = False,
    keep: Sequence[str] = (),
    max_gigabytes: float | None = None,
    labelled: bool = True,
    classes: Classes | None = None,
    like: Mapping[str, Any] | None = None,
) -> Predictions:
    """Read predictions from a file in any of the formats in `READERS`, the text formats also compressed (.gz).

    `path` and `truth` may also be data frames of pandas, polars or Arrow, whose columns are those of a file.

    Columns are recognised by their names; `columns` says what is what otherwise, from role to name:
    `{"label": "gold", "confidence": "conf"}`, with `probability:NAME` or `logit:NAME` for the column of a class. The
    labels may be in another file, `truth`, joined by a column that both have, or `on`. `positive` names the class
    whose probability the score is. Probabilities or confidences are divided by `scale`, or are logarithms if it is
    "log". `logits` and `probabilities` say what class columns hold; `skip_missing` drops rows without a label,
    prediction or score. The columns named in `keep` are in `.extra` of the result, as they are in the file.
    A compressed file that unpacks to more than `max_gigabytes` (default: 2) is refused before it is unpacked.
    With `labelled=False`, the file needs no labels, and those it has are not read. `classes` are the names of the
    classes, so that columns with other names are not taken for classes. `like` is the `.reading` of another file,
    which a policy records: what was said about that file counts here too, unless you say otherwise.

    A `ValueError` says what was expected and what settles a doubt.
    """
    if logits and probabilities:
        raise InputError("expected logits or probabilities, but got both", "choose {logits} or {probabilities}")
    if on is not None and truth is None:
        raise InputError(f"expected a file of labels to join by {on!r}, but got none", "add {truth}")
    kind: Kind | None = "logits" if logits else "probabilities" if probabilities else None
    known = None if classes is None else [cell_text(name) for name in to_numpy(classes).tolist()]
    reading = Reading(tuple(keep), dict(columns or {}), positive, scale, kind, skip_missing, labelled, known)
    name, truth_name = _name_of(path), "" if truth is None else _name_of(truth, " of labels")
    wanted = {*reading.columns.values(), *reading.keep, *(on or "").split("=")}
    notes: list[str] = []
    with about(name):
        opened = _open(path, max_gigabytes, wanted)
        if on is None and isinstance(path, str | Path) and isinstance(truth, str | Path):
            by_row = _joined_by_row(Path(path), Path(truth))
            if by_row is not None:
                opened, truth, notes = by_row, None, ["labels joined by row"]
        labels = None
        if truth is not None:
            with about(truth_name):
                labels = _open(truth, max_gigabytes, wanted)
        header = [*opened.header, *([] if labels is None else labels.header)]
        reading, recalled_notes = recalled(reading, like or {}, header)
        if labels is None:
            layout = layout_of(opened.header, lists=opened.lists, reading=reading, bare=opened.bare)
            content = opened.load(layout)
        else:
            layout, content, notes = with_truth(opened, labels, reading, on, truth_name)
        predictions = predictions_of(content, layout, reading)
    if not len(predictions):
        raise ValueError(f"{name}: expected rows of predictions, but there are none")
    roles = _roles(opened.header, layout, predictions)
    if content.class_names and (names := next(filter(holds_class_names, opened.header), None)):
        roles[names] = "names of the classes"
    values = [opened.header[column] for column in layout.table]
    values += [layout.names[role] for role in SCORES if role in layout.names]
    notes += recalled_notes
    record = record_of(reading, values)
    return replace(predictions, notes=(*notes, *predictions.notes), roles=roles, reading=record)


def _name_of(source: str | Path | HasArray, of: str = "") -> str:
    return str(source) if isinstance(source, str | Path) else f"the data frame{of}"


def _open(source: str | Path | HasArray, max_gigabytes: float | None, wanted: Collection[str]) -> Opened:
    if isinstance(source, str | Path):
        return open_file(Path(source), max_gigabytes)
    return open_frame(source, wanted)


def _joined_by_row(path: Path, labels: Path) -> Opened | None:
    """A table and its labels, if each file is one array without names; the rows must be in the same order."""
    if not {path.suffix.lower(), labels.suffix.lower()} <= {".npy", *TENSORS} or not labels.is_file():
        return None
    table = _read_array(path)
    with about(labels):
        refuse_other_format(labels)
        label = _read_array(labels)
    if isinstance(table, dict) or isinstance(label, dict):
        return None
    return with_label_rows(table, label, labels)


def _read_array(path: Path) -> dict[str, Array] | Array:
    return _read_tensors(path) if path.suffix.lower() in TENSORS else read_npy(path)


def open_file(path: Path, max_gigabytes: float | None = None) -> Opened:
    """The columns of a file of any format; a `ValueError` if there is no such file."""
    if not path.exists():
        raise ValueError(f"expected a predictions file, but it does not exist{similar_path(path)}")
    if path.is_dir():
        run = next((item.parent for item in sorted(path.glob("*/config.yaml"))), None)
        hint = "" if run is None else f"; give a run folder in it, such as {run}"
        raise ValueError(f"expected a predictions file, but it is a folder{hint}")
    suffix = suffix_of(path)
    if suffix not in READERS or (path.suffix.lower() == ".gz" and suffix not in COMPRESSED):
        remedy = OTHER_KINDS.get(suffix)
        raise ValueError(
            f"expected a file ending in {', '.join(READERS)} or {', '.join(COMPRESSED)} with .gz"
            f"{f', but got {path.suffix}; {remedy}' if remedy else ''}"
        )
    if path.stat().st_size == 0:
        raise ValueError("expected a predictions file, but it is empty")
    refuse_other_format(path)
    check_cost(path, max_gigabytes)
    return READERS[suffix](path)


def _roles(header: Sequence[str], layout: Layout, predictions: Predictions) -> dict[str, str]:
    """What each column was taken for."""
    roles = dict.fromkeys(header, "ignored")
    names = layout.class_names or [str(number) for number in range(len(layout.table))]
    kind = "logit" if predictions.logits is not None else "probability"
    single = len(layout.table) == 1
    for number, column in enumerate(layout.table):
        roles[header[column]] = f"{kind} of class {1 if single else names[number]}"
    for role, column in layout.roles.items():
        is_key = role in KEY_NAMES
        roles[header[column]] = ("key" if role in predictions.keys else "ignored (not unique)") if is_key else role
    for name, column in layout.extra.items():
        if column < len(header) and roles[header[column]] == "ignored":
            roles[header[column]] = f"kept as {name}"
    return roles


def save_predictions(path: str | Path, predictions: Predictions) -> None:
    """Write a safetensors file of predictions atomically, after checking that `load_predictions` can read it."""
    path = Path(path)
    if path.suffix.lower() != ".safetensors":
        raise ValueError(f"expected a predictions file ending in .safetensors to write, but got {path}")
    checked = predictions.arrays()
    checked.pop("key", None)
    opened = open_arrays(checked, predictions.metadata)
    layout = layout_of(opened.header, lists=opened.lists, bare=False)
    predictions_of(opened.load(layout), layout, PLAIN)
    arrays = {name: np.ascontiguousarray(value) for name, value in predictions.arrays().items()}
    arrays.pop("key", None)
    for name, keys in predictions.keys.items():  # the format has no strings
        if name not in KEY_NAMES:
            raise ValueError(f"expected keys to be named one of {', '.join(KEY_NAMES)}, but got {name!r}")
        arrays[name] = np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), -1)
    write_atomically(path, canonical_safetensors(save(arrays, metadata=predictions.metadata)))

"""Read predictions from files of any supported format, and write them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from confrank.errors import InputError, about, class_text, similar_path
from confrank.files import canonical_safetensors, write_atomically
from confrank.metrics.inputs import Classes, HasArray, as_classes, cell_text, to_numpy
from confrank.predictions.arrays import (
    open_arrays,
    open_npy,
    open_npz,
    open_safetensors,
    open_table,
    refuse_alone,
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
from confrank.predictions.parts import open_parts, part_files
from confrank.predictions.reading import PLAIN, Kind, Reading, Scale, recalled, record_of
from confrank.predictions.schema import Predictions
from confrank.predictions.signature import refuse_other_format
from confrank.predictions.text_file import PACKED, suffix_of
from confrank.predictions.truth import with_truth
from confrank.spreadsheet import csv_text


def _open_parquet(path: Path) -> Opened:
    _check_pyarrow("Parquet")
    from confrank.predictions.parquet import open_parquet

    return open_parquet(path)


def _open_arrow(path: Path) -> Opened:
    _check_pyarrow("Arrow files")
    from confrank.predictions.arrow_file import open_arrow

    return open_arrow(path)


def _check_pyarrow(what: str) -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ValueError(f"expected pyarrow to read {what}, but it is missing: pip install pyarrow") from None


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
    try:
        from confrank.predictions.tensor_file import read_tensors
    except ImportError:
        raise ValueError("expected torch to read its files, but it is missing: pip install torch") from None
    tensors = read_tensors(path)
    return open_arrays(tensors, {}) if isinstance(tensors, dict) else open_table(tensors)


READERS: dict[str, Callable[[Path], Opened]] = {
    ".safetensors": open_safetensors,
    ".npz": open_npz,
    ".npy": open_npy,
    **dict.fromkeys((".pt", ".pth"), _open_tensors),
    ".csv": open_csv,
    ".tsv": open_csv,
    ".parquet": _open_parquet,
    **dict.fromkeys((".arrow", ".feather", ".ipc"), _open_arrow),
    ".xlsx": _open_workbook,
    ".json": open_json,
    ".jsonl": open_json,
    ".ndjson": open_json,
}
# What to do with files of other kinds; pickled objects are never opened.
_SHEET = "save the sheet as CSV UTF-8"
_PICKLE = "write tables with DataFrame.to_csv or to_parquet, and arrays with np.savez"
_ARRAYS = "write its arrays with np.savez('predictions.npz', logits=logits, label=label)"
OTHER_KINDS = {
    **dict.fromkeys((".xls", ".ods", ".numbers"), _SHEET),
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), _PICKLE),
    ".mat": f"read it with scipy.io.loadmat, and {_ARRAYS}",
    **dict.fromkeys((".h5", ".hdf5"), f"read it with h5py, and {_ARRAYS}"),
    **dict.fromkeys((".dta", ".sav", ".sas7bdat", ".orc"), "read it with pandas, and write it with DataFrame.to_csv"),
    **dict.fromkeys((".rds", ".rdata", ".rda"), "in R, run write.csv(predictions, 'predictions.csv')"),
    **dict.fromkeys(
        (".db", ".sqlite", ".sqlite3"), "run sqlite3 -header -csv FILE 'SELECT * FROM TABLE_NAME' > predictions.csv"
    ),
    ".duckdb": "run duckdb FILE -c \"COPY TABLE_NAME TO 'predictions.parquet'\"",
    **dict.fromkeys((".zip", ".gz", ".bz2", ".xz", ".zst"), "name it after what it holds, as in predictions.csv.zip"),
    **dict.fromkeys((".tar", ".tgz", ".7z", ".rar"), "unpack it"),
    ".txt": "rename it to .csv if it has columns",
}
SCORES = ("probabilities", "logits", "outputs", "submitted", "confidence")
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
    """Read predictions from a file in any of the formats in `READERS`, or a folder of its numbered parts.

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
        labels = None
        if truth is not None:
            with about(truth_name):
                labels = _open(truth, max_gigabytes, wanted)
            if on is None and opened.alone is not None and labels.alone is not None:
                opened, labels = with_label_rows(opened.alone(), labels.alone(), truth_name), None
                notes = ["labels joined by row"]
        refuse_alone(opened)
        if labels is not None:
            refuse_alone(labels)
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


def open_file(path: Path, max_gigabytes: float | None = None) -> Opened:
    """The columns of a file of any format, or of a folder of its parts; a `ValueError` if there is no such file."""
    if not path.exists():
        raise ValueError(f"expected a predictions file, but it does not exist{similar_path(path)}")
    if path.is_dir():
        run = next((item.parent for item in sorted(path.glob("*/config.yaml"))), None)
        if run is not None:
            raise ValueError(
                f"expected a predictions file, but it is a folder; give a run folder in it, such as {run}"
            )
        files = part_files(path)
        for file in files:
            with about(file.name):
                _check_kind(file)
        check_cost(files, max_gigabytes)
        return open_parts(files, lambda file: READERS[suffix_of(file)](file))
    _check_kind(path)
    check_cost([path], max_gigabytes)
    return READERS[suffix_of(path)](path)


def _check_kind(path: Path) -> None:
    """Raise if the ending of a file, or what it begins with, is of no kind that can be read."""
    suffix = suffix_of(path)
    is_packed = path.suffix.lower() in PACKED
    if suffix not in READERS or (is_packed and suffix not in COMPRESSED):
        if remedy := OTHER_KINDS.get(suffix if is_packed and suffix else path.suffix.lower()):
            raise ValueError(f"expected a predictions file, but got one ending in {path.suffix}; {remedy}")
        endings = f"{', '.join(READERS)}, or {', '.join(COMPRESSED)} with {', '.join(PACKED)}"
        raise ValueError(f"expected a file ending in {endings}, but got {path.suffix or 'no ending'}")
    if path.stat().st_size == 0:
        raise ValueError("expected a predictions file, but it is empty")
    refuse_other_format(path)


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
    """Write predictions as .safetensors, or as .csv, atomically, after checking that `load_predictions` reads them.

    A CSV file has a column for each key, `index`, `label`, `prediction`, `correct` and `confidence`, and
    `probability_NAME` or `logit_NAME` for each class. It does not say which model the predictions are of.
    """
    path = Path(path)
    if path.suffix.lower() not in (".safetensors", ".csv"):
        raise ValueError(f"expected a predictions file ending in .safetensors or .csv to write, but got {path}")
    checked = predictions.arrays()
    checked.pop("key", None)
    opened = open_arrays(checked, predictions.metadata)
    layout = layout_of(opened.header, lists=opened.lists, bare=False)
    predictions_of(opened.load(layout), layout, PLAIN)
    if path.suffix.lower() == ".csv":
        columns = _columns(predictions)
        write_atomically(path, csv_text([[*columns], *zip(*columns.values(), strict=True)]))
        return
    arrays = {name: np.ascontiguousarray(value) for name, value in predictions.arrays().items()}
    arrays.pop("key", None)
    for name, keys in predictions.keys.items():  # the format has no strings
        if name not in KEY_NAMES:
            raise ValueError(f"expected keys to be named one of {', '.join(KEY_NAMES)}, but got {name!r}")
        arrays[name] = np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), -1)
    write_atomically(path, canonical_safetensors(save(arrays, metadata=predictions.metadata)))


def _columns(predictions: Predictions) -> dict[str, list[Any]]:
    """The columns of predictions in a CSV file, with classes by name if they have names."""
    names, arrays = predictions.class_names, predictions.arrays()
    columns: dict[str, list[Any]] = {}
    for name, keys in predictions.keys.items():
        columns[name] = [bytes(key).decode(errors="surrogateescape") for key in keys]
    for name in ("index", "label", "prediction", "correct", "confidence"):
        if name in arrays:
            columns[name] = (arrays[name] * 1).tolist()  # 1 or 0 for True or False
    for name in ("label", "prediction"):
        if name in arrays:
            columns[name] = [class_text(names, number) for number in as_classes(arrays[name], name).tolist()]
    for name, kind in (("logits", "logit"), ("probabilities", "probability")):
        if name in arrays:
            columns |= {f"{kind}_{class_text(names, k)}": values.tolist() for k, values in enumerate(arrays[name].T)}
    return columns

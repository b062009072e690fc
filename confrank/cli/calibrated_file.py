"""Calibrated predictions as a file: safetensors, or CSV with the columns of the CSV file that they came from."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confrank.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from confrank.metrics import Samples
    from confrank.predictions import Predictions

    Floats = NDArray[np.float64]
Columns = dict[str, Sequence[Any]]
UNCHANGED = ("label", "index", "key", "other_keys")
# What a column that holds the probability or logit of a single class is taken for.
SINGLE = ("probability of class 1", "submitted", "logit of class 1")


def calibrated_predictions(
    predictions: "Predictions", samples: "Samples", values: "Floats", metadata: Mapping[str, str]
) -> "Predictions":
    """The predictions with calibrated logits [n, K], or with a calibrated confidence [n] instead of a table."""
    from confrank.metrics.samples import with_largest
    from confrank.predictions import Predictions

    unchanged = {name: getattr(predictions, name) for name in UNCHANGED}
    # Both classes are there now, and a confidence is that of the prediction.
    known = {key: value for key, value in predictions.metadata.items() if key != "binary"} | dict(metadata)
    if values.ndim == 2:
        is_given = predictions.prediction is not None or predictions.correct is not None
        prediction = with_largest(samples.prediction, values) if is_given and samples.prediction is not None else None
        return Predictions(logits=values, prediction=prediction, **unchanged, metadata=known)
    if samples.label is None or samples.prediction is None:
        return Predictions(confidence=values, correct=samples.correct, **unchanged | {"label": None}, metadata=known)
    return Predictions(confidence=values, prediction=samples.prediction, **unchanged, metadata=known)


def write_calibrated(
    out: Path, source: Path, given: "Predictions", result: "Predictions", reading: Mapping[str, Any]
) -> None:
    """Write the calibrated predictions `result` of those `given` in the file `source`, read as `reading` says."""
    from confrank.files import write_atomically
    from confrank.predictions import save_predictions
    from confrank.predictions.csv_copy import copied_csv
    from confrank.predictions.text_file import suffix_of
    from confrank.spreadsheet import csv_text

    if out.suffix == ".safetensors":
        save_predictions(out, result)
    elif suffix_of(source) in (".csv", ".tsv") and source.is_file():
        columns, without = _replaced(given, result, reading)
        rows = None if given.rows is None else given.rows.tolist()
        write_atomically(out, copied_csv(source, rows, columns, without))
    else:
        columns = _columns(given, result)
        write_atomically(out, csv_text([[*columns], *zip(*columns.values(), strict=True)]))


def _table(given: "Predictions", logits: "Floats") -> tuple[str, list[str], "Floats"]:
    """What the file has of each class (logit or probability), the names of the classes, and the calibrated table."""
    from confrank.metrics.proper import probabilities_of

    names = given.class_names or [str(number) for number in range(logits.shape[1])]
    if given.logits is not None:
        return "logit", names, logits
    return "probability", names, probabilities_of(logits)


def _named(classes: "NDArray[Any]", names: Sequence[str] | None) -> list[Any]:
    """Class numbers by name."""
    return [names[k] if names and 0 <= k < len(names) else k for k in classes.tolist()]


def _columns(given: "Predictions", result: "Predictions") -> Columns:
    """All columns of a file that had none."""
    columns: Columns = {name: [bytes(key).decode() for key in keys] for name, keys in result.keys.items()}
    if result.index is not None:
        columns["index"] = result.index.tolist()
    if result.label is not None:
        columns["label"] = _named(result.label, given.class_names)
    if result.logits is not None:
        kind, names, table = _table(given, result.logits)
        return columns | {f"{kind}_{name}": table[:, number].tolist() for number, name in enumerate(names)}
    if result.prediction is not None:
        columns["prediction"] = _named(result.prediction, given.class_names)
    if result.correct is not None:
        columns["correct"] = [int(right) for right in result.correct]
    assert result.confidence is not None, "a calibrator of confidence gives one"
    return columns | {"confidence": result.confidence.tolist()}


def _replaced(given: "Predictions", result: "Predictions", reading: Mapping[str, Any]) -> tuple[Columns, list[str]]:
    """The columns of a CSV file that have other values now, or are new, and those to leave out."""
    by_role = {role: name.strip() for name, role in given.roles.items()}
    classes = [name.strip() for name, role in given.roles.items() if " of class " in role or role == "submitted"]
    if result.logits is None:
        assert result.confidence is not None, "a calibrator of confidence gives one"
        name = by_role.get("confidence", "confidence")
        columns: Columns = _changed_answers(given, result.prediction, by_role)
        columns[name] = _rescaled(result.confidence, name, reading)
        return columns, [] if given.table is None else [other for other in classes if other != name]
    columns, answers = _class_columns(given, result.logits, by_role, reading), {"prediction", "correct"} & {*by_role}
    changed = _changed_answers(given, result.prediction, by_role)
    return columns | {name: changed[name] for role in answers if (name := by_role[role]) in changed}, []


def _changed_answers(given: "Predictions", used: "NDArray[Any] | None", by_role: Mapping[str, str]) -> Columns:
    """The columns prediction and correct, if the predictions that were used [n] are not those of the file."""
    columns: Columns = {}
    if used is not None and (given.prediction is None or (used != given.prediction).any()):
        columns[by_role.get("prediction", "prediction")] = _named(used, given.class_names)
    if used is not None and given.correct is not None and ((used == given.label) != given.correct).any():
        columns[by_role["correct"]] = [int(right) for right in used == given.label]
    return columns


def _class_columns(
    given: "Predictions", logits: "Floats", by_role: Mapping[str, str], reading: Mapping[str, Any]
) -> Columns:
    """The columns of a CSV file with the logits or probabilities of classes."""
    from confrank.metrics.proper import largest_probability

    kind, names, table = _table(given, logits)
    columns: Columns = {}
    is_single = reading["positive"] is not None or "binary" in given.metadata
    if is_single:
        column = next((by_role[role] for role in (*SINGLE, "confidence") if role in by_role), None)
        number = 1 if reading["positive"] is None else names.index(reading["positive"])
        if column is not None and kind == "logit":
            columns = {column: (table[:, 1] - table[:, 0]).tolist()}
        elif column is not None:
            columns = {column: _rescaled(table[:, number], column, reading)}
    else:
        for number, name in enumerate(names):
            if (column := by_role.get(f"{kind} of class {name}")) is not None:
                columns[column] = (
                    table[:, number].tolist() if kind == "logit" else _rescaled(table[:, number], column, reading)
                )
        if "confidence" in by_role:
            columns[by_role["confidence"]] = _rescaled(largest_probability(logits), by_role["confidence"], reading)
    if len(columns) < (1 if is_single else len(names)):
        raise InputError(
            "expected a column for each class to write calibrated values to, but the file has none",
            "choose an {out} that ends in .safetensors",
        )
    return columns


def _rescaled(values: "Floats", column: str, reading: Mapping[str, Any]) -> list[float]:
    """Probabilities as the column has them: multiplied by the scale, or as logarithms."""
    import numpy as np

    from confrank.predictions.names import LOG_NAMES

    scale = reading["scale"]
    if scale == "log" or (scale is None and column.lower() in LOG_NAMES):
        logarithms: list[float] = np.log(np.maximum(values, np.finfo(np.float64).tiny)).tolist()
        return logarithms
    scaled: list[float] = (values if scale is None else values * scale).tolist()
    return scaled

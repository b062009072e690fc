"""The computation of a policy: predictions -> table -> confidence -> accepted answers and sets.

Everything is computed for all rows of a file; commands select rows afterwards, so that `apply` and the command that
made a part agree bit for bit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from confrank.decisions.calibrators import Calibrator
from confrank.decisions.group_thresholds import accepted_by_group
from confrank.decisions.policy_parts import CalibratorPart, Part, ScorePart, SetsPart, ThresholdPart
from confrank.errors import InputError, aligned, class_text, counted
from confrank.metrics.groups import rows_by_group
from confrank.metrics.inputs import Array, Flags, Ints, as_scores, at_or_above
from confrank.metrics.samples import predicted_values
from confrank.predictions import Predictions
from confrank.scores import score

# Answers that are printed.
MOST_ROWS = 10


@dataclass(frozen=True)
class Answers:
    """For each row: the predicted class [n] (None if unknown), its confidence [n], and what the policy decides.

    `accepted` [n] is None if the policy has no acceptance rule; `sets` [n, K] flags the classes in each set, and is
    None if it has no sets. `unknown` counts the rows of groups that the policy does not know, `unknown_names`.
    """

    prediction: Array | None
    confidence: Array
    accepted: Flags | None = None
    sets: Flags | None = None
    class_names: list[str] | None = None
    unknown: int = 0
    unknown_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.confidence)

    def __repr__(self) -> str:
        columns = {name: values[:MOST_ROWS] for name, values in self.columns().items()}
        columns["confidence"] = [f"{value:.4g}" for value in columns["confidence"]]
        rows = [[str(row), *map(str, cells)] for row, cells in enumerate(zip(*columns.values(), strict=True))]
        count = counted(len(self), "answer")
        if self.accepted is not None:
            count += f", {np.count_nonzero(self.accepted):,} accepted"
        if self.unknown:
            count += f", {self.unknown:,} of unknown groups"
        more = len(self) - len(rows)
        return f"{count}\n{aligned([['', *columns], *rows])}" + (f"\nand {more:,} more" if more else "")

    def name(self, number: int) -> str:
        """The name of a class, or its number as text."""
        return class_text(self.class_names, number)

    def columns(self) -> dict[str, list[Any]]:
        """What is known of each row, by column, for a file or a data frame."""
        columns: dict[str, list[Any]] = {}
        if self.prediction is not None:
            columns["prediction"] = [self.name(number) for number in self.prediction.tolist()]
        columns["confidence"] = self.confidence.tolist()
        if self.accepted is not None:
            columns["accepted"] = self.accepted.tolist()
        if self.sets is not None:
            names = [self.name(number).replace("|", "\\|") for number in range(self.sets.shape[1])]
            columns["set"] = ["|".join(names[number] for number in np.flatnonzero(row).tolist()) for row in self.sets]
        return columns


def calibrated_table(part: CalibratorPart | None, predictions: Predictions) -> dict[str, Array]:
    """The table [n, K] under its kind: as in the file, or the logits after calibration."""
    tables = {"logits": predictions.logits, "probabilities": predictions.probabilities}
    given = {name: np.ascontiguousarray(table) for name, table in tables.items() if table is not None}
    if part is None:
        return given
    return {"logits": Calibrator(part.method, dict(part.parameters)).apply(**given)}


def refuse_other_scale(parts: Mapping[str, Part], confidence: Array) -> None:
    """Raise if the median of confidences [n] is outside [0, 1], unlike the quantiles that a part was certified on.

    Single values may be outside, as they may have been in that file.
    """
    references = [part.rows.reference for part in parts.values() if part.rows is not None]
    values = [value for reference in references if reference is not None for value in reference.values]
    middle = float(np.median(as_scores(confidence))) if len(confidence) else 0.5
    if values and min(values) >= 0 and max(values) <= 1 and not 0 <= middle <= 1:
        raise InputError(
            "expected confidences in [0, 1], like those that the policy was made on, but got values from"
            f" {confidence.min():g} to {confidence.max():g} with a median of {middle:g}",
            "divide them with {scale}, or make a policy from confidences like these",
        )


def ranking_confidence(
    calibrator: CalibratorPart | None,
    score_part: ScorePart | None,
    ranked: Array | None,
    table: dict[str, Array],
    prediction: Array | None = None,
) -> tuple[Array | None, Array]:
    """The predicted classes [n], if known, and the confidence [n]: a score of the table, or `ranked`.

    Without both it is the largest probability. The calibrator acts on the confidence. Where several classes have the
    largest value, `prediction` [n] decides.
    """
    if score_part is not None:
        ranked = score(score_part.name, **table, **score_part.parameters)
    prediction, confidence = predicted_values(**table, confidence=ranked, prediction=prediction)
    if calibrator is not None:
        confidence = Calibrator(calibrator.method, dict(calibrator.parameters)).apply(confidence)
    return prediction, confidence


def accepted_by(part: ThresholdPart, confidence: Array, values: Array | None) -> Flags:
    """Which rows [n] a threshold part accepts; `values` [n] are those of `distinguished`."""
    if values is None:
        return at_or_above(confidence, np.inf if part.threshold is None else part.threshold)
    return accepted_by_group(confidence, values, part.thresholds)


def distinguished(part: ThresholdPart | SetsPart, predictions: Predictions, prediction: Array | None) -> Array | None:
    """The group or the name of the predicted class of each row [n]; None if that does not matter to the part."""
    if part.per == "group":
        return group_of(part.column or "group", predictions)
    if part.per == "all" or isinstance(part, SetsPart):
        return None
    if prediction is None:
        raise InputError(
            "expected the predicted class of each row, which the policy distinguishes, but there is none",
            "name it with {columns}, as in prediction=COLUMN",
        )
    return class_texts(prediction, predictions.class_names)


def unknown_groups(part: ThresholdPart | SetsPart, values: Array | None) -> dict[str, Ints]:
    """The values that the part does not know, and their rows."""
    known = part.thresholds if isinstance(part, ThresholdPart) else part.quantiles
    groups = {} if values is None else rows_by_group(values)
    return {value: rows for value, rows in groups.items() if value not in known}


def group_of(column: str, predictions: Predictions) -> Array:
    """The values of a column [n]; an error if there is none."""
    if column in predictions.extra:
        return predictions.extra[column]
    raise InputError(
        f"expected the column {column!r}, whose groups the policy distinguishes, but there is none",
        "name it with {columns}, as in group=COLUMN" if column == "group" else "add it to the file",
    )


def class_texts(numbers: Array, names: list[str] | None) -> Array:
    """The names of classes [n], or their numbers as text."""
    different, codes = np.unique(numbers, return_inverse=True)
    texts: Array = np.array([class_text(names, number) for number in different.tolist()], dtype=object)
    return texts[codes]


def row_keys(predictions: Predictions) -> Array | None:
    """What identifies rows [n]: their keys or their index; None if only their content does."""
    return predictions.key if predictions.key is not None else predictions.index

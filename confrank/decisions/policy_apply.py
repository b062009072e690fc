"""The computation of a policy: predictions -> table -> confidence -> accepted answers and sets.

Everything is computed for all rows of a file; commands select rows afterwards, so that `apply` and the command that
made a part agree bit for bit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confrank.decisions.calibrators import Calibrator
from confrank.decisions.policy_parts import CalibratorPart, ThresholdPart
from confrank.metrics.arrays import Array, at_or_above
from confrank.metrics.groups import rows_by_group
from confrank.phrasing import InputError
from confrank.predictions import Predictions

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Answers:
    """For each row: the predicted class [n] (None if unknown), its confidence [n], and what the policy decides.

    `accepted` [n] is None if the policy has no acceptance rule; `sets` [n, K] flags the classes in each set, and is
    None if it has no sets. `unknown` counts the rows of groups that the policy does not know.
    """

    prediction: Array | None
    confidence: Array
    accepted: Flags | None = None
    sets: Flags | None = None
    class_names: list[str] | None = None
    unknown: int = 0

    def __len__(self) -> int:
        return len(self.confidence)

    def name(self, number: int) -> str:
        """The name of a class, or its number as text."""
        return class_text(self.class_names, number)

    def columns(self) -> dict[str, list[Any]]:
        """What is known of each row, by column, for a file."""
        columns: dict[str, list[Any]] = {}
        if self.prediction is not None:
            columns["prediction"] = [self.name(number) for number in self.prediction.tolist()]
        columns["confidence"] = self.confidence.tolist()
        if self.accepted is not None:
            columns["accepted"] = ["true" if sure else "false" for sure in self.accepted.tolist()]
        if self.sets is not None:
            names = [self.name(number).replace("|", "\\|") for number in range(self.sets.shape[1])]
            columns["set"] = ["|".join(names[number] for number in np.flatnonzero(row).tolist()) for row in self.sets]
        return columns


def class_text(names: list[str] | None, number: int) -> str:
    return names[number] if names and 0 <= number < len(names) else str(number)


def calibrated_table(part: CalibratorPart | None, predictions: Predictions) -> dict[str, Array]:
    """The table [n, K] under its kind: as in the file, or the logits after calibration."""
    tables = {"logits": predictions.logits, "probabilities": predictions.probabilities}
    given = {name: np.ascontiguousarray(table) for name, table in tables.items() if table is not None}
    if part is None:
        return given
    return {"logits": Calibrator(part.method, dict(part.parameters)).apply(**given)}


def accepted_by(part: ThresholdPart, confidence: Array, values: Mapping[str, Array]) -> tuple[Flags, int]:
    """Which rows [n] a threshold part accepts, and the number of rows of a value that it does not know.

    `values` are the positions of the rows of each class or group.
    """
    if part.per == "all":
        return at_or_above(confidence, _limit(part.threshold)), 0
    limits, unknown = np.full(len(confidence), np.inf), 0
    for value, rows in values.items():
        limits[rows] = _limit(part.thresholds.get(value))
        unknown += 0 if value in part.thresholds else len(rows)
    return at_or_above(confidence, limits), unknown


def _limit(threshold: float | None) -> float:
    return np.inf if threshold is None else threshold


def rows_by_value(
    per: str, column: str | None, predictions: Predictions, prediction: Array | None
) -> dict[str, Array]:
    """The rows of each predicted class, by its name, or of each value of a column; empty for one rule for all."""
    if per == "group":
        assert column is not None, "a part per group has a column"
        if column not in predictions.extra:
            raise InputError(
                f"expected the column {column!r}, whose groups the policy distinguishes, but there is none",
                "name it with {columns}, as in group=COLUMN" if column == "group" else "add it to the file",
            )
        return dict(rows_by_group(predictions.extra[column], column))
    if per == "class":
        if prediction is None:
            raise InputError(
                "expected the predicted class of each row, which the policy distinguishes, but there is none",
                "give {columns} prediction=COLUMN",
            )
        names = predictions.class_names
        return {
            class_text(names, number): np.flatnonzero(prediction == number)
            for number in np.unique(prediction).tolist()
        }
    return {}

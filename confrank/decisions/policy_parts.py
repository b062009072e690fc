"""The parts of a policy: what each decided, on which rows, and what it guarantees.

All values are plain JSON values. `rows` are those that a part was fitted, chosen or certified on; None if it used no
data. `promise` is a sentence: what is guaranteed, to whom, under which assumption; "" for a part without a guarantee.
`settings` are what was asked for and measured, for readers; applying a policy does not use them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np

from confrank.decisions.calibrators import CALIBRATION_METHODS
from confrank.decisions.conformal import ConformalSets, Per
from confrank.decisions.rows import UsedRows
from confrank.errors import InputError, joined, named, sentence
from confrank.metrics.inputs import as_classes
from confrank.predictions import Predictions

Values = Mapping[str, Any]
Kind = Literal["logits", "probabilities", "confidence"]


@dataclass(frozen=True)
class Input:
    """What a policy takes: a table of `num_classes` classes, or a confidence alone.

    If `ranked`, the confidence in the file ranks; otherwise it is computed from the table. `temperature` (as text)
    and `calibrator` are what the file says it was calibrated with before. `reading` is what was said about its
    columns, to read new files like it; {} if nothing.
    """

    kind: Kind
    ranked: bool
    num_classes: int | None = None
    class_names: tuple[str, ...] | None = None
    temperature: str | None = None
    calibrator: str | None = None
    reading: Values = field(default_factory=dict)

    @classmethod
    def of(cls, predictions: Predictions) -> "Input":
        names, table = predictions.class_names, predictions.table
        kind: Kind = (
            "confidence" if table is None else "logits" if predictions.logits is not None else "probabilities"
        )
        return cls(
            kind,
            ranked=predictions.confidence is not None,
            num_classes=None if table is None else table.shape[1],
            class_names=None if table is None or names is None else tuple(names),
            temperature=predictions.metadata.get("temperature"),
            calibrator=predictions.metadata.get("calibrator"),
            reading=predictions.reading,
        )

    @property
    def calibrated_by(self) -> str:
        """How the file says that it was calibrated before; "" if it does not."""
        method = "" if self.calibrator is None else f"the method {self.calibrator}"
        return method if self.temperature is None else f"the temperature {self.temperature}"


@dataclass(frozen=True)
class CalibratorPart:
    """A calibrator: a temperature of the logits, or an isotonic map of the confidence of the predicted class."""

    method: str
    parameters: Values = field(default_factory=dict)
    rows: UsedRows | None = None
    promise: str = ""
    settings: Values = field(default_factory=dict)
    date: str = ""

    @property
    def slot(self) -> str:
        if self.method not in CALIBRATION_METHODS:
            raise ValueError(f"expected a calibrator among {', '.join(CALIBRATION_METHODS)}, but got {self.method!r}")
        return "table_calibrator" if self.method == "temperature" else "confidence_calibrator"


@dataclass(frozen=True)
class ScorePart:
    """The score of the table that ranks predictions."""

    name: str
    parameters: Values = field(default_factory=dict)
    rows: UsedRows | None = None
    promise: str = ""
    settings: Values = field(default_factory=dict)
    date: str = ""
    slot = "score"

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name.replace("_", "-"))


@dataclass(frozen=True)
class ThresholdPart:
    """Accept confidence >= threshold: one for all, or one per predicted class or per group of `column`.

    The keys of `thresholds` are class names (numbers as text if classes have no names) or group values as
    `rows_by_group` words them. None accepts nothing.
    """

    threshold: float | None
    rows: UsedRows | None = None
    promise: str = ""
    per: Per = "all"
    column: str | None = None
    thresholds: Mapping[str, float | None] = field(default_factory=dict)
    settings: Values = field(default_factory=dict)
    date: str = ""
    slot = "threshold"


@dataclass(frozen=True)
class SetsPart:
    """Conformal sets: the fields of `ConformalSets`, and the column of the groups.

    A quantile of None means too few rows: every set holds the class, or all classes.
    """

    method: str
    level: float
    num_classes: int
    per: Per
    quantiles: Mapping[str, float | None]
    counts: Mapping[str, int]
    rows: UsedRows | None = None
    promise: str = ""
    column: str | None = None
    seed: int = 0
    penalty: float = 0.0
    free_rank: int = 0
    settings: Values = field(default_factory=dict)
    date: str = ""
    slot = "sets"

    @classmethod
    def of(cls, sets: ConformalSets, rows: UsedRows | None = None, column: str | None = None) -> "SetsPart":
        """The part that builds sets as `sets` does; `column` names the groups, if there are any."""
        promise = sentence(sets.promise() if column is None else sets.promise(column))
        return cls(**sets.as_dict(), rows=rows, promise=promise, column=column)

    def conformal(self) -> ConformalSets:
        """What builds the sets."""
        names = [item.name for item in fields(ConformalSets) if item.compare]
        return ConformalSets.from_dict({name: getattr(self, name) for name in names})


Part = CalibratorPart | ScorePart | ThresholdPart | SetsPart
# The slots of a policy in the order of the computation, each with what is put there.
SLOTS: dict[str, type[Part]] = {
    "table_calibrator": CalibratorPart,
    "score": ScorePart,
    "confidence_calibrator": CalibratorPart,
    "threshold": ThresholdPart,
    "sets": SetsPart,
}
# Whose input a part in the slot changes.
FEEDS: dict[str, tuple[str, ...]] = {
    "table_calibrator": ("score", "confidence_calibrator", "threshold", "sets"),
    "score": ("confidence_calibrator", "threshold"),
    "confidence_calibrator": ("threshold",),
}
WORDS = {
    "table_calibrator": "a calibrator of logits",
    "score": "a score",
    "confidence_calibrator": "a calibrator of confidence",
    "threshold": "a threshold",
    "sets": "conformal sets",
}


def the_parts(slots: Sequence[str]) -> str:
    """
    >>> the_parts(["score", "threshold"])
    'the score and the threshold'
    """
    return joined([f"the {WORDS[slot].removeprefix('a ')}" for slot in slots])


def matched(policy: Input, predictions: Predictions) -> Predictions:
    """The predictions with their classes in the order of the policy; an error if they are of another kind.

    Predictions without class names get those of the policy.
    """
    if policy.kind == "confidence" and "positive" in policy.reading:
        predictions = _as_confidence(predictions)
    new = Input.of(predictions)
    if policy.kind != new.kind:
        of_two = policy.num_classes == 2 and new.kind == "confidence"
        raise InputError(
            f"expected {_kind(policy)}, as in the file that the policy was made on, but got {_kind(new)}",
            ("use {positive} CLASS if it is the probability of a class, " if of_two else "")
            + "give predictions in that form, not the answers of a policy, or make a policy from ones like these",
        )
    if policy.num_classes != new.num_classes:
        raise InputError(
            f"expected {policy.num_classes} classes, as in the file that the policy was made on, but got"
            f" {new.num_classes}",
            "make a policy from predictions with these classes",
        )
    if new.calibrated_by and new.calibrated_by != policy.calibrated_by:
        before = f"calibrated by {policy.calibrated_by}" if policy.calibrated_by else "that were not calibrated"
        raise InputError(
            f"expected predictions {before}, like those that the policy was made on, but these were calibrated by"
            f" {new.calibrated_by}",
            "give predictions in the same form, or put the calibrator into the policy",
        )
    return _in_order(policy.class_names, new.class_names, predictions)


def _as_confidence(predictions: Predictions) -> Predictions:
    """The probability of the predicted class, as `read` gives it where another class may be more probable."""
    table, prediction = predictions.probabilities, predictions.prediction
    if table is None or prediction is None:
        return predictions
    return replace(predictions, probabilities=None, confidence=table[np.arange(len(table)), prediction])


def _kind(item: Input) -> str:
    return "a confidence without probabilities" if item.kind == "confidence" else item.kind


def _in_order(
    expected: tuple[str, ...] | None, given: tuple[str, ...] | None, predictions: Predictions
) -> Predictions:
    if expected is None or expected == given:
        return predictions
    metadata = predictions.metadata | {"class_names": json.dumps(expected)}
    if given is None:
        return replace(predictions, metadata=metadata)
    if unknown := [name for name in given if name not in expected]:
        missing = [name for name in expected if name not in given]
        raise InputError(
            f"expected the classes that the policy was made on, but got {named(unknown)} instead of {named(missing)}",
            "make a policy from predictions with these classes",
        )
    if missing := [name for name in expected if name not in given]:
        twice = next(name for name in given if given.count(name) > 1)
        raise InputError(
            f"expected the classes that the policy was made on, each once, but got {twice} twice and no {missing[0]}",
            "make a policy from predictions with these classes",
        )
    order = np.array([given.index(name) for name in expected])
    logits, probabilities = (
        None if table is None else np.ascontiguousarray(table[:, order])
        for table in (predictions.logits, predictions.probabilities)
    )
    label, prediction = (
        None if classes is None else np.argsort(order)[as_classes(classes, name)]
        for name, classes in (("label", predictions.label), ("prediction", predictions.prediction))
    )
    changed: Any = {"logits": logits, "probabilities": probabilities, "label": label, "prediction": prediction}
    return replace(predictions, **changed, metadata=metadata)

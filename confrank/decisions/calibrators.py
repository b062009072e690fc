"""Calibrators: fitted to labelled predictions, stored as plain numbers, applied to new ones.

A temperature acts on the logits of all classes. The isotonic map acts on the confidence of the predicted class and
gives its probability of being right; it needs no table. No prediction changes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from confrank.decisions.temperature import as_logits, fit_temperature, scaled_logits, zero_floor
from confrank.errors import InputError
from confrank.metrics.inputs import (
    Array,
    ArrayLike,
    Classes,
    Floats,
    Ints,
    as_probabilities,
    as_scores,
    check_columns,
    column_names,
    labels_for,
    scores_and_flags,
    to_numpy,
)

Parameters = dict[str, Any]
CALIBRATION_METHODS = ("temperature", "isotonic")


@dataclass(frozen=True)
class Calibrator:
    """A fitted calibrator: a method of `CALIBRATION_METHODS` and its parameters, which are plain JSON values.

    `notes` say what was changed to fit it, such as probabilities of zero.
    """

    method: str
    parameters: Parameters
    notes: tuple[str, ...] = field(default=(), compare=False)
    # The columns of the data frame that it was fitted to; policies check names by themselves.
    columns: list[Any] | None = field(default=None, compare=False)

    @property
    def acts_on_table(self) -> bool:
        """Whether it maps the logits of all classes; otherwise it maps the confidence."""
        return self.method == "temperature"

    def apply(
        self,
        confidence: ArrayLike | None = None,
        *,
        logits: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
    ) -> Floats:
        """Calibrated logits [n, K] from logits or probabilities [n, K], or probabilities [n] from a confidence [n].

        >>> Calibrator("temperature", {"temperature": 2.0}).apply(logits=[[3, 0]]).tolist()
        [[1.5, 0.0]]
        """
        if self.acts_on_table:
            if confidence is not None or (logits is None) == (probabilities is None):
                raise ValueError(f"expected logits or probabilities for the method {self.method}, but got others")
            check_columns(probabilities if logits is None else logits, self.columns)
            table, _ = as_logits(logits=logits, probabilities=probabilities, floor=self.parameters.get("floor"))
            return scaled_logits(table, self.parameters["temperature"])
        if confidence is None or logits is not None or probabilities is not None:
            raise ValueError(f"expected a confidence for the method {self.method}, but got others")
        scores = as_scores(confidence).astype(np.float64)
        return np.interp(scores, self.parameters["confidence"], self.parameters["probability"])


def calibrate(
    method: str = "temperature",
    *,
    logits: ArrayLike | None = None,
    probabilities: ArrayLike | None = None,
    label: Classes | None = None,
    confidence: ArrayLike | None = None,
    correct: ArrayLike | None = None,
) -> Calibrator:
    """Fit a calibrator: to `label` with logits or probabilities [n, K], or to confidence [n] and `correct` [n].

    "temperature" takes the former. "isotonic" takes the latter: the increasing step function nearest to `correct`,
    joined by straight lines, as scikit-learn fits it.

    >>> calibrator = calibrate("isotonic", confidence=[0.9, 0.9, 0.9, 0.9], correct=[1, 1, 1, 0])
    >>> calibrator.apply([0.9, 0.5]).tolist()
    [0.75, 0.75]
    """
    if method not in CALIBRATION_METHODS:
        raise InputError(
            f"expected a method among {', '.join(CALIBRATION_METHODS)}, but got {method!r}", "change {method}"
        )
    if method == "temperature":
        if label is None or (logits is None) == (probabilities is None):
            raise ValueError(f"expected label with logits or probabilities for the method {method}, but got others")
        table, notes = as_logits(logits=logits, probabilities=probabilities)
        given = probabilities if logits is None else logits
        labels = labels_for(label, given, predictions=table)
        parameters: Parameters = {"temperature": fit_temperature(table, labels)}
        if probabilities is not None:
            parameters["floor"] = float(zero_floor(as_probabilities(probabilities)))
        return Calibrator(method, parameters, tuple(notes), column_names(given))
    if confidence is None or correct is None:
        raise ValueError(f"expected confidence and correct for the method {method}, but got others")
    scores, flags = scores_and_flags(confidence, correct, f"predictions to fit the method {method} to")
    from sklearn.isotonic import IsotonicRegression  # slow to import

    fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores.astype(np.float64), flags)
    points = {"confidence": fitted.X_thresholds_.tolist(), "probability": fitted.y_thresholds_.tolist()}
    return Calibrator(method, points)


def cross_calibrated(method: str, folds: Iterable[tuple[Ints, Ints]], **arrays: ArrayLike) -> Floats:
    """What `Calibrator.apply` gives for each row, by a calibrator fitted to other rows.

    `folds` are (rows to fit to, rows to apply it to), and `arrays` are those of `calibrate`.
    """
    given: dict[str, Array] = {name: to_numpy(values) for name, values in arrays.items()}
    inputs = [name for name in given if name not in ("label", "correct")]
    result: Floats = np.full(given[inputs[0]].shape, np.nan)
    for rows, others in folds:
        calibrator = calibrate(method, **{name: values[rows] for name, values in given.items()})
        result[others] = calibrator.apply(**{name: given[name][others] for name in inputs})
    return result

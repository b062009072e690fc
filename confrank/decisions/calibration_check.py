"""Fit a calibrator, and measure what it changes on rows that it was not fitted to."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from confrank.decisions.calibrators import Calibrator, calibrate, cross_calibrated
from confrank.decisions.operating import random_folds, random_split
from confrank.metrics import Evaluation, Samples, adaptive_ece, classwise_ece, evaluation_of, sample_values
from confrank.metrics.inputs import Array, Floats
from confrank.predictions import Predictions

FOLDS = 5
Errors = dict[str, float | None]


@dataclass(frozen=True)
class CheckedCalibration:
    """A calibrator, and the metrics of `num_measured` rows before and after, none of them fitted to.

    With `folds`, each fold was measured with a calibrator fitted to the others, and `calibrator` is fitted to all
    rows; with 0 folds, it is fitted to the rows that were not measured. `errors` are further calibration errors
    before and after, None if undefined: `adaptive_ece`, and `classwise_ece` for a temperature.
    """

    calibrator: Calibrator
    evaluations: dict[str, Evaluation]
    errors: dict[str, Errors]
    num_fitted: int
    num_measured: int
    folds: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        method, parameters = self.calibrator.method, self.calibrator.parameters
        temperature = {"temperature": parameters["temperature"]} if method == "temperature" else {}
        fit = {"method": method, "parameters": parameters, "num_fitted": self.num_fitted, "folds": self.folds}
        metrics = {name: evaluation.as_dict() for name, evaluation in self.evaluations.items()}
        return {**temperature, **fit, **metrics, "calibration": self.errors}


def checked_calibration(
    method: str,
    samples: Samples,
    *,
    logits: Array | None = None,
    probabilities: Array | None = None,
    folds: int = FOLDS,
    split: float | None = None,
    seed: int = 0,
) -> CheckedCalibration:
    """Fit a method of `calibrate` and measure it by cross-fitting, or on a share `split` of the rows.

    A temperature needs the logits or probabilities [n, K] of the samples; the isotonic map uses their confidence.
    """
    if len(samples) < 2:
        raise ValueError(f"expected at least 2 predictions, to fit and to measure, but got {len(samples)}")
    arrays = calibrator_inputs(method, samples, logits=logits, probabilities=probabilities)
    fitted, measured = np.arange(len(samples)), np.arange(len(samples))
    if split is None:
        folds = min(folds, len(samples))
        values = cross_calibrated(method, random_folds(len(samples), folds, seed), **arrays)
    else:
        folds = 0
        fitted, measured = random_split(len(samples), split, seed)
        values = cross_calibrated(method, [(fitted, measured)], **arrays)[measured]
    pairs = {
        "before": _before(method, samples.select(measured), arrays, measured),
        "after": _after(samples.select(measured), values),
    }
    return CheckedCalibration(
        calibrate(method, **{name: each[fitted] for name, each in arrays.items()}),
        {name: evaluation_of(each) for name, (each, _) in pairs.items()},
        {name: _errors(*pair) for name, pair in pairs.items()},
        len(fitted),
        len(measured),
        folds,
    )


def calibrator_inputs(
    method: str, samples: Samples, *, logits: Array | None = None, probabilities: Array | None = None
) -> dict[str, Array]:
    """The arrays of `calibrate` that a method takes."""
    if method != "temperature":
        return {"confidence": samples.confidence, "correct": samples.correct}
    if samples.label is None or (logits is None and probabilities is None):
        raise ValueError(f"expected label with logits or probabilities for the method {method}, but got others")
    table = {"logits": logits} if logits is not None else {"probabilities": probabilities}
    return {name: each for name, each in table.items() if each is not None} | {"label": samples.label}


def _before(method: str, samples: Samples, arrays: dict[str, Array], rows: Array) -> tuple[Samples, dict[str, Array]]:
    """Samples ranked by what the method calibrates, and their table."""
    if method == "temperature":
        assert samples.probability is not None, "there is a table"
        table = {name: each[rows] for name, each in arrays.items() if name != "label"}
        return replace(samples, confidence=samples.probability), table
    inside = bool(len(samples)) and samples.confidence.min() >= 0 and samples.confidence.max() <= 1
    return replace(samples, probability=samples.confidence if inside else None, nll=None, brier=None), {}


def _after(samples: Samples, values: Floats) -> tuple[Samples, dict[str, Array]]:
    if values.ndim == 2:
        assert samples.label is not None, "a temperature needs labels"
        return sample_values(logits=values, label=samples.label, prediction=samples.prediction), {"logits": values}
    return replace(samples, confidence=values, probability=values, nll=None, brier=None), {}


def _errors(samples: Samples, table: dict[str, Array]) -> Errors:
    """Calibration errors that are not among the metrics of an evaluation."""
    from scipy.special import softmax

    known = samples.probability
    errors: Errors = {"adaptive_ece": None if known is None else adaptive_ece(known, samples.correct)}
    if table and samples.label is not None:
        shares = softmax(table["logits"].astype(np.float64), axis=1) if "logits" in table else table["probabilities"]
        errors["classwise_ece"] = classwise_ece(shares, samples.label)
    return errors


def calibrated_predictions(
    calibrator: Calibrator, predictions: Predictions, samples: Samples, earlier: str | None = None
) -> Predictions:
    """The predictions with calibrated logits [n, K], or with a calibrated confidence [n] instead of a table.

    `earlier` is the temperature that the logits were already divided by, as text.
    """
    tables = {name: each for name in ("logits", "probabilities") if (each := getattr(predictions, name)) is not None}
    inputs = calibrator_inputs(calibrator.method, samples, **tables)
    values = calibrator.apply(**{name: inputs[name] for name in inputs if name not in ("label", "correct")})
    # Both classes are there now, and a confidence is that of the prediction.
    metadata = {key: value for key, value in predictions.metadata.items() if key != "binary"}
    if calibrator.method == "temperature":
        metadata["temperature"] = repr(calibrator.parameters["temperature"] * float(earlier or 1))
    else:
        metadata["calibrator"] = calibrator.method
    changes: dict[str, Any] = dict.fromkeys(("logits", "probabilities", "confidence", "correct", "prediction"))
    if values.ndim == 2:
        is_given = predictions.prediction is not None or predictions.correct is not None
        changes |= {"logits": values, "prediction": samples.prediction if is_given else None}
    elif samples.label is None or samples.prediction is None:
        changes |= {"confidence": values, "correct": samples.correct, "label": None}
    else:
        changes |= {"confidence": values, "prediction": samples.prediction}
    return replace(predictions, **changes, metadata=metadata)

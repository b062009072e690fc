"""Thresholds and calibrators in words."""

import math
from collections.abc import Mapping
from contextlib import suppress

from confrank.decisions import Calibrator, CostThreshold, OperatingPoint
from confrank.decisions.calibration_check import CheckedCalibration
from confrank.errors import counted
from confrank.method_facts import facts_of
from confrank.predictions import Predictions
from confrank.report.scales import SHOWN, shown
from confrank.report.verdict import percent

NAMES = {"temperature": "temperature scaling", "isotonic": "isotonic regression"}
CALIBRATION_ERRORS = {
    "adaptive_ece": ("adaptive ECE %", "the same with 15 bins of equal numbers of predictions"),
    "classwise_ece": ("classwise ECE %", "mean over classes of the ECE of the probability of the class"),
}


def threshold_lines(point: OperatingPoint, risk: float | None, delta: float) -> list[str]:
    """What a threshold does to the predictions it was chosen on, and what it guarantees."""
    lines = [
        f"accept      confidence >= {point.threshold!r}",
        f"coverage    {point.coverage:.2%} ({point.accepted:,} of {counted(point.num_samples, 'prediction')})",
        f"error rate  {_rate(point)}",
    ]
    if risk is not None and point.bound is not None:
        lines.append(
            f"guarantee   the error rate among accepted is at most {risk:g}, with probability {1 - delta:.12g} over"
            f" draws of these {counted(point.num_samples, 'row')} (bound {point.bound:.6g}), if new answers are drawn"
            " independently from the same distribution"
        )
    return lines


def classifier_lines(
    point: OperatingPoint, confidence: str | None, temperature: str | None, *, averaged: bool
) -> list[str]:
    """How to apply the threshold to a network, if its confidence is known by name."""
    if averaged:
        return ["python      not with SelectiveClassifier(model, ...): this confidence averages several predictions"]
    if confidence is None:
        return []
    divided = f", temperature={temperature}" if temperature else ""
    options = f'threshold={point.threshold!r}, confidence="{confidence}"{divided}'
    return [f"python      SelectiveClassifier(model, {options})"]


def cost_lines(rule: CostThreshold, checked: str, cost_of_others: float | None = None) -> list[str]:
    """The threshold of least cost, what it costs, and what it costs on rows that it was not chosen on.

    `cost_of_others` is the cost of the errors that are not in a table of costs.
    """
    lines = threshold_lines(OperatingPoint(rule.threshold, rule.accepted, rule.wrong, rule.num_samples), None, 0)
    if rule.threshold == math.inf:
        lines = ["accept      nothing: rejecting every prediction costs least"]
    elif rule.threshold == -math.inf:
        lines[0] = "accept      everything: accepting every prediction costs least"
    others = "" if cost_of_others is None else f" ({cost_of_others:g} if it is not there)"
    error = f"what the table says{others}" if rule.cost_error is None else f"{rule.cost_error:g}"
    lines.append(
        f"cost        {rule.cost:.4g} per prediction; an error costs {error}, a rejection {rule.cost_reject:g}"
    )
    lines.append(f"            accepting all would cost {rule.accept_all:.4g}, rejecting all {rule.cost_reject:.4g}")
    if rule.held_out is not None:
        low, high = rule.held_out.low, rule.held_out.high
        limits = "no interval with weights" if low is None else f"95% interval {low:.4g} to {high:.4g}"
        lines.append(f"new rows    {rule.held_out.value:.4g} per prediction ({limits}), {checked}")
    return lines


def check_lines(point: OperatingPoint, risk: float | None) -> list[str]:
    """What the threshold does to rows that it was not chosen on."""
    others = counted(point.num_samples, "other row")
    lines = [f"check       on {others}: coverage {point.coverage:.2%}, error rate {_rate(point)}"]
    if risk is not None and point.risk is not None and point.risk > risk:
        lines.append(
            f"            this is above {risk:g}: by chance, or because these rows differ from those it was chosen on"
        )
    return lines


def _rate(point: OperatingPoint) -> str:
    if point.risk is None:
        return "undefined: nothing is accepted"
    return f"{percent(point.risk, 3)} among accepted ({point.wrong:,} of {point.accepted:,} wrong)"


def calibrator_line(checked: CheckedCalibration) -> str:
    """The calibrator, the rows it was fitted to, and the rows that the metrics describe."""
    if checked.folds:
        measured = f"the metrics below are cross-fitted: each of {checked.folds} folds by a fit to the others"
    else:
        measured = f"the metrics below are those of the other {counted(checked.num_measured, 'row')}"
    return f"{_parameters(checked.calibrator)}, fitted to {counted(checked.num_fitted, 'row')}; {measured}"


def _parameters(calibrator: Calibrator) -> str:
    values = calibrator.parameters
    if calibrator.method == "temperature":
        word = "overconfident" if values["temperature"] > 1 else "underconfident"
        return f"temperature {values['temperature']:.6g} (the model was {word})"
    return f"{NAMES['isotonic']} ({counted(len(values['probability']), 'point')})"


def calibration_rows(errors: Mapping[str, Mapping[str, float | None]]) -> list[list[str]]:
    """Further calibration errors for the table of metrics: a heading, a cell per column, and the meaning."""
    rows = []
    for key, (heading, meaning) in CALIBRATION_ERRORS.items():
        values = [column.get(key) for column in errors.values()]
        if any(value is not None for value in values):
            rows.append([heading, *("-" if value is None else f"{100 * value:.3f}" for value in values), meaning])
    return rows


def worse_lines(checked: CheckedCalibration) -> list[str]:
    """A warning if the calibrator made the probabilities worse on the measured rows."""
    before, after, changes = checked.evaluations["before"], checked.evaluations["after"], []
    for key in ("ece", "brier"):
        old, new = before.metrics[key], after.metrics[key]
        if old is not None and new is not None and new > old and shown(key, old) != shown(key, new):
            changes.append(f"{SHOWN[key].heading} went up from {shown(key, old)} to {shown(key, new)}")
    name = NAMES[checked.calibrator.method]
    return [f"warning: {' and '.join(changes)}; {name} does not help these predictions"] if changes else []


def confidence_rule(predictions: Predictions) -> tuple[str | None, bool]:
    """The confidence that ranks, where it is known by name, and whether it is that of an average."""
    facts = facts_of(predictions.metadata.get("method", ""))
    if "calibrator" in predictions.metadata:  # SelectiveClassifier applies no calibrator but a temperature
        return None, False
    if "members" in predictions.metadata or facts.averaged:
        return None, True
    if predictions.table is not None and predictions.confidence is None:
        return "max_probability", False
    return facts.confidence, False


def temperature_of(predictions: Predictions, file: str) -> str | None:
    """The temperature that the logits were already divided by, as written in the file's metadata."""
    text = predictions.metadata.get("temperature")
    if text is None:
        return None
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return text
    raise ValueError(f"expected the temperature recorded in {file} to be a positive number, but got {text[:80]!r}")

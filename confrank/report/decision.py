"""A decision rule in words."""

from confrank.decisions import OperatingPoint
from confrank.metrics import Evaluation
from confrank.report.scales import SHOWN, shown
from confrank.report.verdict import percent


def threshold_lines(point: OperatingPoint, risk: float | None, delta: float) -> list[str]:
    """What a threshold does to the predictions it was chosen on, and what is guaranteed."""
    lines = [
        f"accept confidence >= {point.threshold!r}",
        f"coverage  {point.coverage:.2%} ({point.accepted:,} of {point.num_samples:,} predictions)",
        f"risk      {_rate(point)}",
    ]
    if risk is not None and point.bound is not None:
        lines.append(
            f"guarantee an error rate of at most {risk:g} among accepted predictions, with probability"
            f" {1 - delta:.12g} (bound {point.bound:.6g})"
        )
    return lines


def classifier_lines(
    point: OperatingPoint, confidence: str | None, temperature: str | None, *, averaged: bool
) -> list[str]:
    """How to apply the threshold to a network, where the confidence is known by name or cannot be repeated."""
    if averaged:
        return [
            "python    this confidence is that of an average, which SelectiveClassifier(model, ...) cannot repeat"
        ]
    if confidence is None:
        return []
    divided = f", temperature={temperature}" if temperature else ""
    options = f'threshold={point.threshold!r}, confidence="{confidence}"{divided}'
    return [f"python    SelectiveClassifier(model, {options})"]


def check_lines(point: OperatingPoint, risk: float | None) -> list[str]:
    """What the threshold does to the rows that were kept out of choosing it."""
    lines = [f"on {point.num_samples:,} rows kept aside: coverage {point.coverage:.2%}, risk {_rate(point)}"]
    if risk is not None and point.risk is not None and point.risk > risk:
        lines.append(
            f"there the observed rate is above {risk:g}: chance in these rows, or rows unlike those it was chosen on"
        )
    return lines


def _rate(point: OperatingPoint) -> str:
    if point.risk is None:
        return "undefined, nothing is accepted"
    return f"{percent(point.risk, 3)} ({point.wrong:,} wrong of {point.accepted:,} accepted)"


def temperature_line(temperature: float, num_fitted: int, num_checked: int) -> str:
    """What was fitted to what, and what the numbers below are about."""
    word = "too sure of itself" if temperature > 1 else "not sure enough"
    return (
        f"temperature {temperature:.6g} (the model was {word}), fitted to {num_fitted:,} rows;"
        f" the metrics are those of the other {num_checked:,} rows"
    )


def worse_lines(before: Evaluation, after: Evaluation) -> list[str]:
    """A warning if a temperature made the probabilities worse on the rows kept aside."""
    changes = []
    for key in ("ece", "brier"):
        old, new = before.metrics[key], after.metrics[key]
        if old is not None and new is not None and new > old and shown(key, old) != shown(key, new):
            changes.append(f"{SHOWN[key].heading} went up from {shown(key, old)} to {shown(key, new)}")
    return [f"warning: {' and '.join(changes)}; a temperature does not help these predictions"] if changes else []

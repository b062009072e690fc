"""How metrics are shown: headings, factors, and numbers as text."""

from collections.abc import Mapping
from dataclasses import dataclass

from confrank.metrics import Evaluation, Interval


@dataclass(frozen=True)
class Shown:
    """A metric's heading, the factor it is scaled by, whether lower is better, and its meaning."""

    heading: str
    factor: float
    lower_is_better: bool
    meaning: str


SHOWN: dict[str, Shown] = {
    "acc": Shown("accuracy %", 100, False, "share of right predictions"),
    "aurc": Shown("AURC ×10³", 1000, True, "mean error rate among accepted, over all coverages"),
    "e_aurc": Shown("E-AURC ×10³", 1000, True, "approximately how far AURC is above that of a perfect ranking"),
    "naurc": Shown("NAURC %", 100, True, "AURC from 0, a perfect ranking, to 100, a random one"),
    "augrc": Shown("AUGRC ×10³", 1000, True, "mean share of undetected errors over all coverages"),
    "aupr_error": Shown("AUPR-Err %", 100, False, "average precision of low confidence as a detector of errors"),
    "fpr95": Shown("FPR-95%-TPR %", 100, True, "share of errors accepted when 95% of right predictions are"),
    "auroc": Shown("AUROC %", 100, False, "chance that a right prediction has higher confidence than a wrong one"),
    "ece": Shown("ECE %", 100, True, "mean gap between confidence and accuracy, 15 bins"),
    "nll": Shown("NLL ×10", 10, True, "mean negative log-likelihood of the label"),
    "brier": Shown("Brier %", 100, True, "mean squared distance of the probabilities to the label"),
    "nll_correct": Shown("NLL of being right ×10", 10, True, "mean negative log-likelihood of right and wrong"),
    "brier_correct": Shown("Brier of being right %", 100, True, "mean squared distance of the confidence to 1 or 0"),
}

# Groups are rows of a table: these columns would make it too wide.
GROUP_METRICS = [key for key in SHOWN if key not in ("naurc", "nll_correct", "brier_correct")]

# Metrics of out-of-distribution detection; AUROC and FPR at 95% TPR have the headings above.
DETECTION_SHOWN: dict[str, Shown] = {
    "detection_error": Shown("detection error %", 100, True, "mean of both error rates at the best threshold"),
    "aupr_in": Shown("AUPR-In %", 100, False, "average precision with in-distribution images as positives"),
    "aupr_out": Shown("AUPR-Out %", 100, False, "average precision with out-of-distribution images as positives"),
}

ALL_SHOWN = SHOWN | DETECTION_SHOWN

PAPER_METRICS = ("acc", "aurc", "e_aurc", "aupr_error", "fpr95", "ece", "nll", "brier")


def keys_of(*evaluations: Evaluation) -> list[str]:
    """The metrics to show of these: all but those that only a bare confidence has, unless one of them does."""
    return [key for key in SHOWN if any(key in one.metrics for one in evaluations)]


def shown(key: str, value: float | None, digits: int = 2) -> str:
    """
    >>> shown("aurc", 0.0713), shown("nll", None)
    ('71.30', '-')
    """
    return "-" if value is None else f"{value * SHOWN[key].factor:.{digits}f}"


def metric_text(key: str, metrics: Mapping[str, float | None], intervals: Mapping[str, Interval | None]) -> str:
    """For the terminal: a metric, and its interval in brackets if it has one."""
    limits = intervals.get(key)
    behind = "" if limits is None else f" ({shown(key, limits.low)}, {shown(key, limits.high)})"
    return shown(key, metrics.get(key), 3) + behind


def metric_cell(key: str, evaluation: Evaluation, intervals: Mapping[str, Interval | None]) -> dict[str, str | None]:
    """For the page: a metric, the limits of its interval, and why it is undefined."""
    limits = intervals.get(key)
    return {
        "value": shown(key, evaluation.metrics.get(key)),
        "limits": None if limits is None else f"{shown(key, limits.low)} to {shown(key, limits.high)}",
        "why": evaluation.undefined.get(key),
    }


def with_spread(mean: float, spread: float | None, factor: float = 1, *, mark: str = "±", sign: str = "") -> str:
    """
    >>> with_spread(0.0713, 0.0002, 1000), with_spread(0.5, None, sign="+")
    ('71.30±0.20', '+0.50')
    """
    return f"{mean * factor:{sign}.2f}" + ("" if spread is None else f"{mark}{spread * factor:.2f}")

"""From predictions to a decision rule: which answers to accept, and how sure to sound."""

from confrank.decisions.classifier import ABSTAIN, SelectiveClassifier
from confrank.decisions.guarantee import UnreachableError, guaranteed_threshold, risk_bound
from confrank.decisions.operating import OperatingPoint, measured_at, random_split, threshold_for_coverage
from confrank.decisions.temperature import fit_temperature, scaled_logits

__all__ = [
    "ABSTAIN",
    "OperatingPoint",
    "SelectiveClassifier",
    "UnreachableError",
    "fit_temperature",
    "guaranteed_threshold",
    "measured_at",
    "random_split",
    "risk_bound",
    "scaled_logits",
    "threshold_for_coverage",
]

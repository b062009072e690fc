"""From predictions to a decision rule: which answers to accept, and how sure to sound."""

from confrank.selective.classifier import ABSTAIN, SelectiveClassifier
from confrank.selective.guarantee import UnreachableError, guaranteed_threshold, risk_bound
from confrank.selective.operating import OperatingPoint, measured_at, random_split, threshold_for_coverage
from confrank.selective.temperature import fit_temperature, scaled_logits

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

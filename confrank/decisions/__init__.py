"""From predictions to decisions: which answers to accept, and calibrated probabilities."""

from typing import TYPE_CHECKING

from confrank.decisions.guarantee import UnreachableError, guaranteed_threshold, risk_bound
from confrank.decisions.operating import OperatingPoint, measured_at, random_split, threshold_for_coverage
from confrank.decisions.temperature import fit_temperature, scaled_logits

if TYPE_CHECKING:
    from confrank.decisions.classifier import ABSTAIN, SelectiveClassifier

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


if not TYPE_CHECKING:  # a type checker that saw this function would accept any name

    def __getattr__(name: str) -> object:
        """The names that need torch, imported on first use: decisions on files do without it."""
        if name not in ("ABSTAIN", "SelectiveClassifier"):
            raise AttributeError(f"module 'confrank.decisions' has no attribute {name!r}")
        from confrank.decisions import classifier

        return getattr(classifier, name)

"""Numbers that say how good a classifier's confidence is. Raw fractions, float64, `None` where undefined."""

from confrank.metrics.calibration import ReliabilityBins, ece, reliability_bins
from confrank.metrics.evaluation import KEYS, Evaluation, evaluate
from confrank.metrics.proper import accuracy, brier, nll
from confrank.metrics.ranking import (
    RiskCoverageCurve,
    augrc,
    aupr_error,
    aurc,
    auroc,
    e_aurc,
    fpr_at_tpr,
    risk_coverage_curve,
)

__all__ = [
    "KEYS",
    "Evaluation",
    "ReliabilityBins",
    "RiskCoverageCurve",
    "accuracy",
    "augrc",
    "aupr_error",
    "aurc",
    "auroc",
    "brier",
    "e_aurc",
    "ece",
    "evaluate",
    "fpr_at_tpr",
    "nll",
    "reliability_bins",
    "risk_coverage_curve",
]

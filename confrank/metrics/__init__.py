"""Metrics of a classifier's confidence: raw fractions in float64, `None` if undefined."""

from confrank.metrics.calibration import ReliabilityBins, adaptive_ece, classwise_ece, ece, reliability_bins
from confrank.metrics.curve import RiskCoverageCurve, coverage_at_risk, risk_at_coverage, risk_coverage_curve
from confrank.metrics.evaluation import KEYS, Evaluation, evaluation_of
from confrank.metrics.groups import ClassSummary, class_summaries
from confrank.metrics.inputs import ArrayLike, at_or_above
from confrank.metrics.intervals import Interval, IntervalMethod, ece_interval, intervals_of
from confrank.metrics.ranking_metrics import AurcEstimator, augrc, aupr_error, aurc, auroc, e_aurc, fpr_at_tpr, naurc
from confrank.metrics.resampling import PairedDifference, bootstrap, paired_differences
from confrank.metrics.samples import Samples, accuracy, brier, nll, sample_values
from confrank.metrics.separation import AuprEstimator, Detection, RocCurve, detection, roc_curve

__all__ = [
    "KEYS",
    "ArrayLike",
    "AuprEstimator",
    "AurcEstimator",
    "ClassSummary",
    "Detection",
    "Evaluation",
    "Interval",
    "IntervalMethod",
    "PairedDifference",
    "ReliabilityBins",
    "RiskCoverageCurve",
    "RocCurve",
    "Samples",
    "accuracy",
    "adaptive_ece",
    "at_or_above",
    "augrc",
    "aupr_error",
    "aurc",
    "auroc",
    "bootstrap",
    "brier",
    "class_summaries",
    "classwise_ece",
    "coverage_at_risk",
    "detection",
    "e_aurc",
    "ece",
    "ece_interval",
    "evaluation_of",
    "fpr_at_tpr",
    "intervals_of",
    "naurc",
    "nll",
    "paired_differences",
    "reliability_bins",
    "risk_at_coverage",
    "risk_coverage_curve",
    "roc_curve",
    "sample_values",
]

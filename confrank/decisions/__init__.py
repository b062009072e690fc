"""From predictions to decisions: which answers to accept, and calibrated probabilities."""

from importlib import import_module
from typing import TYPE_CHECKING

from confrank.decisions.calibrators import Calibrator, calibrate, cross_calibrated
from confrank.decisions.conformal import ConformalSets, conformal_sets
from confrank.decisions.cost_tables import CostTable, cost_table, error_costs, read_cost_table
from confrank.decisions.costs import CostThreshold, MeanCost, cost_at, cost_threshold
from confrank.decisions.group_thresholds import GroupThreshold, GroupThresholds, accepted_by_group, group_thresholds
from confrank.decisions.guarantee import UnreachableError, guaranteed_threshold, risk_bound
from confrank.decisions.monitor import Monitored, monitor
from confrank.decisions.operating import (
    OperatingPoint,
    measured_at,
    random_folds,
    random_split,
    threshold_for_coverage,
)
from confrank.decisions.policy import Answers, Policy
from confrank.decisions.selection import Selection, select_with_fdr
from confrank.decisions.temperature import fit_temperature, scaled_logits

if TYPE_CHECKING:
    from confrank.decisions.classifier import ABSTAIN, SelectiveClassifier
    from confrank.decisions.export import export_onnx, export_program

__all__ = [
    "ABSTAIN",
    "Answers",
    "Calibrator",
    "ConformalSets",
    "CostTable",
    "CostThreshold",
    "GroupThreshold",
    "GroupThresholds",
    "MeanCost",
    "Monitored",
    "OperatingPoint",
    "Policy",
    "Selection",
    "SelectiveClassifier",
    "UnreachableError",
    "accepted_by_group",
    "calibrate",
    "conformal_sets",
    "cost_at",
    "cost_table",
    "cost_threshold",
    "cross_calibrated",
    "error_costs",
    "export_onnx",
    "export_program",
    "fit_temperature",
    "group_thresholds",
    "guaranteed_threshold",
    "measured_at",
    "monitor",
    "random_folds",
    "random_split",
    "read_cost_table",
    "risk_bound",
    "scaled_logits",
    "select_with_fdr",
    "threshold_for_coverage",
]


_NEED_TORCH = {
    "ABSTAIN": "classifier",
    "SelectiveClassifier": "classifier",
    "export_onnx": "export",
    "export_program": "export",
}

if not TYPE_CHECKING:  # a type checker that saw this function would accept any name

    def __getattr__(name: str) -> object:
        """The names that need torch, imported on first use: decisions on files do without it."""
        if name not in _NEED_TORCH:
            raise AttributeError(f"module 'confrank.decisions' has no attribute {name!r}")
        return getattr(import_module(f"confrank.decisions.{_NEED_TORCH[name]}"), name)

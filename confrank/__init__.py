"""confrank: classifiers that know what they do not know.

The public names are imported on first use: `import confrank` is fast, and each name needs only its own dependencies.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from confrank import metrics
    from confrank.analysis import Comparison, compare
    from confrank.confidence import ConfidenceName
    from confrank.decisions import SelectiveClassifier
    from confrank.distributed import SharedHistory, SharedRing, leave_counters_alone
    from confrank.evaluation import evaluate
    from confrank.history import Audit, CorrectnessHistory
    from confrank.indexed import IndexedDataset
    from confrank.loss import CorrectnessRanking, CorrectnessRankingLoss, ranking_loss
    from confrank.metrics import ArrayLike, Evaluation

_NAMES = {
    "analysis": ("Comparison", "compare"),
    "confidence": ("ConfidenceName",),
    "decisions": ("SelectiveClassifier",),
    "distributed": ("SharedHistory", "SharedRing", "leave_counters_alone"),
    "evaluation": ("evaluate",),
    "history": ("Audit", "CorrectnessHistory"),
    "indexed": ("IndexedDataset",),
    "loss": ("CorrectnessRanking", "CorrectnessRankingLoss", "ranking_loss"),
    "metrics": ("ArrayLike", "Evaluation"),
}

__all__ = [
    "ArrayLike",
    "Audit",
    "Comparison",
    "ConfidenceName",
    "CorrectnessHistory",
    "CorrectnessRanking",
    "CorrectnessRankingLoss",
    "Evaluation",
    "IndexedDataset",
    "SelectiveClassifier",
    "SharedHistory",
    "SharedRing",
    "compare",
    "evaluate",
    "leave_counters_alone",
    "metrics",
    "ranking_loss",
]

if not TYPE_CHECKING:  # a type checker that saw this function would accept any name

    def __getattr__(name: str) -> object:
        if name == "metrics":
            return import_module("confrank.metrics")
        for module, names in _NAMES.items():
            if name in names:
                return getattr(import_module(f"confrank.{module}"), name)
        raise AttributeError(f"module 'confrank' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

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
    from confrank.history import Audit, CorrectnessHistory
    from confrank.indexed import IndexedDataset
    from confrank.loss import CorrectnessRanking, CorrectnessRankingLoss, ranking_loss
    from confrank.metrics import ArrayLike, Evaluation, evaluate

_MODULE_OF = {
    "ArrayLike": "confrank.metrics",
    "Audit": "confrank.history",
    "Comparison": "confrank.analysis",
    "ConfidenceName": "confrank.confidence",
    "CorrectnessHistory": "confrank.history",
    "CorrectnessRanking": "confrank.loss",
    "CorrectnessRankingLoss": "confrank.loss",
    "Evaluation": "confrank.metrics",
    "IndexedDataset": "confrank.indexed",
    "SelectiveClassifier": "confrank.decisions",
    "SharedHistory": "confrank.distributed",
    "SharedRing": "confrank.distributed",
    "compare": "confrank.analysis",
    "evaluate": "confrank.metrics",
    "leave_counters_alone": "confrank.distributed",
    "ranking_loss": "confrank.loss",
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
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'confrank' has no attribute {name!r}")
        return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

"""confrank: classifiers that know what they do not know.

The public names are imported on first use, so that `import confrank` and `confrank --help` stay fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from confrank.analysis import compare
    from confrank.decisions import SelectiveClassifier
    from confrank.distributed import SharedHistory
    from confrank.history import CorrectnessHistory
    from confrank.indexed import IndexedDataset
    from confrank.loss import CorrectnessRankingLoss
    from confrank.metrics import Evaluation, evaluate

_HOME = {
    "CorrectnessHistory": "confrank.history",
    "CorrectnessRankingLoss": "confrank.loss",
    "Evaluation": "confrank.metrics",
    "IndexedDataset": "confrank.indexed",
    "SelectiveClassifier": "confrank.decisions",
    "SharedHistory": "confrank.distributed",
    "compare": "confrank.analysis",
    "evaluate": "confrank.metrics",
}

__all__ = [
    "CorrectnessHistory",
    "CorrectnessRankingLoss",
    "Evaluation",
    "IndexedDataset",
    "SelectiveClassifier",
    "SharedHistory",
    "compare",
    "evaluate",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'confrank' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

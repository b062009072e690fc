"""Detectors of out-of-distribution inputs for any classifier. Higher = more in-distribution, for each of them."""

from importlib import import_module
from typing import TYPE_CHECKING

from confrank.ood.protocol import DETECTORS, Protocol
from confrank.ood.results import OodResult, read_results

if TYPE_CHECKING:
    from confrank.ood.examination import Classifier, examine
    from confrank.ood.logits import LogitDetector
    from confrank.ood.mahalanobis import Mahalanobis
    from confrank.ood.neighbours import NearestNeighbours
    from confrank.ood.odin import Odin

# Imported on first use: a table of results needs no torch.
_HOME = {
    "Classifier": "examination", "LogitDetector": "logits", "Mahalanobis": "mahalanobis",
    "NearestNeighbours": "neighbours", "Odin": "odin", "examine": "examination",
}  # fmt: skip

__all__ = [
    "DETECTORS", "Classifier", "LogitDetector", "Mahalanobis", "NearestNeighbours", "Odin", "OodResult", "Protocol",
    "examine", "read_results",
]  # fmt: skip

if not TYPE_CHECKING:  # a type checker that saw this function would accept any name

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)

"""Detectors of foreign inputs on anybody's classifier. Higher = more in-distribution, for every one of them."""

from confrank.ood.logits import LogitDetector
from confrank.ood.mahalanobis import Mahalanobis
from confrank.ood.neighbours import NearestNeighbours
from confrank.ood.odin import Odin
from confrank.ood.protocol import DETECTORS, Classifier, Outcome, Protocol, examine

__all__ = [
    "DETECTORS",
    "Classifier",
    "LogitDetector",
    "Mahalanobis",
    "NearestNeighbours",
    "Odin",
    "Outcome",
    "Protocol",
    "examine",
]

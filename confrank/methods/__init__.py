"""The methods by name, and predictions of a trained network for a complete split."""

from confrank.methods.method import METHODS, Method, Output, average, get
from confrank.methods.prediction import (
    evaluating,
    joined,
    mirrored_probabilities,
    normalise,
    normalised,
    penultimate,
    predict_split,
)

__all__ = [
    "METHODS",
    "Method",
    "Output",
    "average",
    "evaluating",
    "get",
    "joined",
    "mirrored_probabilities",
    "normalise",
    "normalised",
    "penultimate",
    "predict_split",
]

"""Predictions: what they are, and how they are read from any source and written."""

from confrank.predictions.joining import common_samples, pairing
from confrank.predictions.predictions import ARRAYS, Array, Predictions, as_predictions
from confrank.predictions.read import load_predictions, read, save_predictions

__all__ = [
    "ARRAYS",
    "Array",
    "Predictions",
    "as_predictions",
    "common_samples",
    "load_predictions",
    "pairing",
    "read",
    "save_predictions",
]

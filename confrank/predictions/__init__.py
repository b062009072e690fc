"""File 2: what a model said about a split, for anyone to evaluate; and readers of other people's files."""

from confrank.predictions.io import READERS, load_predictions, save_predictions
from confrank.predictions.pairing import pairing
from confrank.predictions.schema import ARRAYS, Array, Predictions

__all__ = [
    "ARRAYS",
    "READERS",
    "Array",
    "Predictions",
    "load_predictions",
    "pairing",
    "save_predictions",
]

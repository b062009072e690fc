"""The predictions file: schema, reading and writing, and readers for files from other tools."""

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

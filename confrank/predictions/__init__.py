"""The predictions file: schema, reading and writing, and readers for files from other tools."""

from confrank.predictions.io import READERS, load_predictions, read, save_predictions
from confrank.predictions.pairing import common_samples, pairing
from confrank.predictions.schema import ARRAYS, Array, Predictions, as_predictions

__all__ = [
    "ARRAYS",
    "READERS",
    "Array",
    "Predictions",
    "as_predictions",
    "common_samples",
    "load_predictions",
    "pairing",
    "read",
    "save_predictions",
]

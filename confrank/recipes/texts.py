"""Training on texts: which data sets hold them, its defaults, and what a recipe cannot do there."""

import os
from typing import Any

TEXT_SUFFIXES = (".csv", ".tsv", ".jsonl")
# SGD hardly moves the vectors of rare words, CRL harms (docs/when-to-use.md), and of 5, 20, 60 and 200 epochs on
# 4,000 reviews, 20 ranked best (experiments/when_imdb_epyc-2core_202611.md).
TEXT_DEFAULTS = {"model": "bag-of-embeddings", "method": "baseline", "optimizer": "adamw", "lr": 0.003}
TEXT_TRAINING: dict[str, Any] = {**TEXT_DEFAULTS, "epochs": 20}
# The settings of recipes that texts do without, each with the reason in words.
WITHOUT = {
    "epochs": f"texts are trained for {TEXT_TRAINING['epochs']}",
    "mix": "texts cannot be mixed",
}


def holds_texts(dataset: str) -> bool:
    """Whether a data set is a file of texts, by its ending.

    >>> holds_texts("reviews.csv"), holds_texts("cifar10")
    (True, False)
    """
    return os.path.splitext(dataset)[1].lower() in TEXT_SUFFIXES

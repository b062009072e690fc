"""Training on texts: which data sets hold them, its defaults, and what a recipe cannot do there."""

import math
import os
from typing import Any

TEXT_SUFFIXES = (".csv", ".tsv", ".jsonl")
# SGD hardly moves the vectors of rare words, CRL harms (docs/when-to-use.md), and of 5, 20, 60 and 200 epochs on
# 4,000 reviews, 20 ranked best (experiments/when_imdb_epyc-2core_202611.md).
TEXT_DEFAULTS = {"model": "bag-of-embeddings", "method": "baseline", "optimizer": "adamw", "lr": 0.003}
TEXT_TRAINING: dict[str, Any] = {**TEXT_DEFAULTS, "epochs": 20}
# With fewer steps, the network is still near its random start: on 80, 240 and 800 texts, about 400 steps gave a
# lower NLL than 20 epochs, and many more did not help (experiments/text_epochs_epyc-2core_202611.md).
MIN_STEPS = 400
# The settings of recipes that texts do without, each with the reason in words.
WITHOUT = {
    "epochs": f"texts are trained for {TEXT_TRAINING['epochs']}",
    "mix": "texts cannot be mixed",
}


def text_epochs(num_texts: int, batch_size: int) -> int:
    """Passes over this many training texts: the default, or more for few texts.

    >>> text_epochs(80, 128), text_epochs(800, 128), text_epochs(20_000, 128)
    (400, 58, 20)
    """
    steps = max(1, math.ceil(num_texts / max(1, batch_size)))
    return max(int(TEXT_TRAINING["epochs"]), math.ceil(MIN_STEPS / steps))


def holds_texts(dataset: str) -> bool:
    """Whether a data set is a file of texts, by its ending.

    >>> holds_texts("reviews.csv"), holds_texts("cifar10")
    (True, False)
    """
    return os.path.splitext(dataset)[1].lower() in TEXT_SUFFIXES

"""Which samples to label next: scores or features of unlabelled samples -> row numbers, most useful first."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confrank import confidence
from confrank.active.centres import Features, k_center_greedy
from confrank.active.strategies import Rows, Strategy, get
from confrank.data import Split
from confrank.methods import penultimate
from confrank.metrics.inputs import as_probabilities, as_scores, to_numpy
from confrank.predictions import Array
from confrank.runs.trained import Trained


def select(
    strategy: str,
    *,
    scores: Array | Tensor | None = None,
    features: Features | None = None,
    labelled_features: Features | None = None,
    count: int,
    seed: int = 0,
    device: torch.device | None = None,
) -> Rows:
    """The rows of `count` samples to label, the most useful first.

    `scores` are probabilities [n, K], from which the strategy computes its confidence, or that confidence itself [n]
    (higher = surer). `core-set` needs `features` [n, d] and starts from the centres `labelled_features` [m, d];
    `random` needs either, for the number of samples. The same seed gives the same choice; it breaks ties.

    >>> select("margin", scores=np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]]), count=2).tolist()
    [1, 2]
    """
    wanted = get(strategy)
    if wanted.needs == "features":
        if features is None:
            raise ValueError(f"expected features [n, d] for {strategy}, but got none")
        return k_center_greedy(features, count, centres=labelled_features, seed=seed, device=device)
    if wanted.needs == "scores":
        if scores is None:
            raise ValueError(f"expected scores (probabilities [n, K] or confidence [n]) for {strategy}, but got none")
        return lowest(checked_confidence(wanted, to_numpy(scores)), count, seed)
    given = scores if scores is not None else features
    if given is None:
        raise ValueError("expected scores or features, whose number random draws from, but got neither")
    return lowest(np.zeros(len(given)), count, seed)


def values_of(
    strategy: Strategy, trained: Trained, split: Split, *, batch_size: int = 1000, seed: int = 0
) -> Array | Tensor:
    """What a strategy chooses by: features [n, d] on the network's device, confidence [n], or zeros [n]."""
    if strategy.needs == "nothing" or not len(split):
        return np.zeros(len(split))
    if strategy.needs == "features":
        record = trained.provenance
        return penultimate(trained.network, split, record.mean, record.std, batch_size=batch_size)
    predictions = trained.predict(split, batch_size=batch_size, seed=seed)
    return confidence_of(strategy, logits=predictions.logits, probabilities=predictions.probabilities)


def draw(rows: Rows, count: int | None, seed: int) -> Rows:
    """`count` random rows out of `rows`, in random order; all if there are fewer."""
    size = len(rows) if count is None else min(count, len(rows))
    return np.random.default_rng((seed, 1)).choice(rows, size, replace=False)


def lowest(values: NDArray[Any], count: int, seed: int = 0) -> Rows:
    """The rows of the `count` lowest values [n], lowest first; equal ones in an order drawn from `seed`.

    >>> lowest(np.array([3.0, 1.0, 2.0]), 2).tolist()
    [1, 2]
    """
    if not 1 <= count <= len(values):
        raise ValueError(f"expected to choose within 1..{len(values)} samples, but got {count}")
    order = np.random.default_rng(seed).permutation(len(values))
    ranked: Rows = order[np.argsort(values[order], kind="stable")]
    return ranked[:count]


def confidence_of(strategy: Strategy, *, logits: Array | None = None, probabilities: Array | None = None) -> Array:
    """The confidence [n] in float64 that a strategy ranks by, from either table [n, K]."""
    assert strategy.confidence and (logits is None) != (probabilities is None)
    table = torch.from_numpy(np.array(logits if probabilities is None else probabilities, dtype=np.float64))
    return confidence.get(strategy.confidence)(table if probabilities is None else table.log()).numpy()


def checked_confidence(strategy: Strategy, scores: Array) -> Array:
    """The confidence [n] of probabilities [n, K] or confidence [n] that a user gives; raises if they are neither."""
    if scores.ndim == 2:
        return confidence_of(strategy, probabilities=as_probabilities(scores))
    return as_scores(scores, "scores (confidence [n], or else probabilities [n, K])")

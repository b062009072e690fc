"""What to ask next: scores or features of unlabelled samples -> the rows to label, most wanted first."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confrank import confidence
from confrank.active.centres import Features, k_center_greedy
from confrank.metrics.arrays import as_probabilities, as_scores, to_numpy
from confrank.predictions import Array

Needs = Literal["nothing", "scores", "features"]


@dataclass(frozen=True)
class Strategy:
    """What a strategy looks at, the confidence it asks the lowest of, and the method that trains its network."""

    name: str
    needs: Needs
    method: str
    confidence: str = ""


STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Strategy("random", "nothing", "baseline"),
        Strategy("entropy", "scores", "baseline", "negative_entropy"),
        Strategy("margin", "scores", "baseline", "margin"),
        Strategy("core-set", "features", "baseline"),
        Strategy("mc-entropy", "scores", "mcdropout", "negative_entropy"),
        Strategy("least-confidence", "scores", "crl-softmax", "max_probability"),
    )
}


def get(name: str) -> Strategy:
    """The strategy of that name, or an error that lists the names."""
    if name not in STRATEGIES:
        raise ValueError(f"expected a strategy among {', '.join(STRATEGIES)}, but got {name!r}")
    return STRATEGIES[name]


def select(
    strategy: str,
    *,
    scores: Array | Tensor | None = None,
    features: Features | None = None,
    labelled_features: Features | None = None,
    count: int,
    seed: int = 0,
    device: torch.device | None = None,
) -> NDArray[np.int64]:
    """The rows of `count` samples to label, the most wanted first.

    `scores` are probabilities [n, K], from which the strategy takes its confidence, or that confidence itself [n]
    (higher = surer). `core-set` takes `features` [n, d] and, as its first centres, `labelled_features` [m, d];
    `random` takes either, for their number. The same seed gives the same choice, and breaks ties.

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
        return lowest(_confidence(wanted, to_numpy(scores)), count, seed)
    given = scores if scores is not None else features
    if given is None:
        raise ValueError("expected scores or features, whose number is what random draws from, but got neither")
    return lowest(np.zeros(len(given)), count, seed)


def lowest(values: NDArray[Any], count: int, seed: int = 0) -> NDArray[np.int64]:
    """The rows of the `count` lowest values [n], lowest first; equal ones in an order drawn from `seed`.

    >>> lowest(np.array([3.0, 1.0, 2.0]), 2).tolist()
    [1, 2]
    """
    if not 1 <= count <= len(values):
        raise ValueError(f"expected to choose within 1..{len(values)} samples, but got {count}")
    order = np.random.default_rng(seed).permutation(len(values))
    ranked: NDArray[np.int64] = order[np.argsort(values[order], kind="stable")]
    return ranked[:count]


def confidence_of(strategy: Strategy, *, logits: Array | None = None, probabilities: Array | None = None) -> Array:
    """The confidence [n] in float64 that a strategy ranks by, from either table [n, K]."""
    assert strategy.confidence and (logits is None) != (probabilities is None)
    table = torch.from_numpy(np.array(logits if probabilities is None else probabilities, dtype=np.float64))
    return confidence.get(strategy.confidence)(table if probabilities is None else table.log()).numpy()


def _confidence(strategy: Strategy, scores: Array) -> Array:
    if scores.ndim == 2:
        return confidence_of(strategy, probabilities=as_probabilities(scores))
    return as_scores(scores, "scores (confidence [n], or else probabilities [n, K])")

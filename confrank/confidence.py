"""Confidence of a prediction: logits [n, K] -> confidence [n] in [0, 1], higher = more confident.

Log-probabilities are logits too (the softmax of log p is p), so methods that end in probabilities use the
same functions; exact zeros (log p = -inf) are allowed. Half precision becomes float32; float64 stays float64.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Confidence = Callable[[Tensor], Tensor]
ConfidenceName = Literal["max_probability", "max-probability", "negative_entropy", "negative-entropy", "margin"]


def max_probability(logits: Tensor) -> Tensor:
    """The largest softmax probability.

    >>> max_probability(torch.tensor([[2.0, 2.0], [0.0, 99.0]])).tolist()
    [0.5, 1.0]
    """
    return torch.softmax(_lifted(logits), dim=-1).max(dim=-1).values


def margin(logits: Tensor) -> Tensor:
    """The largest minus the second largest softmax probability.

    >>> margin(torch.tensor([[2.0, 2.0], [0.0, 99.0]])).tolist()
    [0.0, 1.0]
    """
    first, second = torch.softmax(_lifted(logits), dim=-1).topk(2, dim=-1).values.unbind(dim=-1)
    return first - second


def negative_entropy(logits: Tensor) -> Tensor:
    """1 - H(p) / ln K: one for a certain prediction, zero for a uniform one, for any number of classes.

    >>> negative_entropy(torch.tensor([[2.0, 2.0], [0.0, 99.0]])).tolist()
    [0.0, 1.0]
    """
    log_probability = torch.log_softmax(_lifted(logits), dim=-1)
    # An exact zero has log-probability -inf; p log p is 0 there, and so is its gradient. The bound itself is finite
    # in float32 too, to which ONNX export rounds it, and far below every log p with p > 0.
    finite = log_probability.clamp_min(-1e30)
    relative = (log_probability.exp() * finite).sum(dim=-1) / math.log(logits.shape[-1])
    # Rounding can raise the entropy of a uniform prediction above ln K.
    return (1 + relative).clamp_min(0)


CONFIDENCES: dict[str, Confidence] = {
    "max_probability": max_probability,
    "negative_entropy": negative_entropy,
    "margin": margin,
}


def get(name: str) -> Confidence:
    """The confidence function with this name, `max_probability` or `max-probability`; an error lists all names."""
    if name.replace("-", "_") not in CONFIDENCES:
        raise ValueError(f"expected a confidence among {', '.join(CONFIDENCES)}, but got {name!r}")
    return CONFIDENCES[name.replace("-", "_")]


def _lifted(logits: Tensor) -> Tensor:
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"expected logits to be a torch tensor, but got {type(logits).__name__}; convert them with"
            " torch.as_tensor(logits)"
        )
    if logits.ndim == 0 or logits.shape[-1] < 2:
        raise ValueError(
            f"expected logits with at least 2 classes in the last dimension, but got shape {tuple(logits.shape)};"
            " a single sigmoid output z has the two-class logits [0, z]"
        )
    if not logits.is_floating_point():
        raise ValueError(f"expected floating-point logits, but got {logits.dtype}")
    return logits if logits.dtype == torch.float64 else logits.float()

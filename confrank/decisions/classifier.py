"""A classifier that answers if it is confident enough, and abstains otherwise."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from confrank import confidence as confidences
from confrank.confidence import ConfidenceName
from confrank.decisions.policy import Policy
from confrank.decisions.policy_network import network_rule
from confrank.metrics.inputs import TOLERANCE, ArrayLike, describe, to_numpy

ABSTAIN = -1


class SelectiveClassifier(nn.Module):
    """Wraps a model that returns logits [n, K]: the label where confidence >= threshold, else `ABSTAIN` (-1).

    Confidence is computed in float64 from logits / temperature, as `confrank evaluate` does, so that a threshold
    from there means the same here. `threshold` may be K numbers, one for each predicted class; infinity accepts none.

    >>> model = SelectiveClassifier(nn.Identity(), threshold=0.8)
    >>> model(torch.tensor([[4.0, 0.0], [0.0, 0.5]])).tolist()
    [0, -1]
    """

    def __init__(
        self,
        model: nn.Module,
        threshold: float | ArrayLike,
        confidence: ConfidenceName = "max_probability",
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        given: Any = threshold
        limits = to_numpy(given)
        if limits.ndim > 1 or limits.dtype.kind not in "fiu":
            raise ValueError(f"expected a threshold, or one for each class, but got {describe(limits)}")
        if np.isnan(limits).any():
            raise ValueError("expected a threshold to compare confidence with, but got NaN")
        if not temperature > 0:
            raise ValueError(f"expected a positive temperature, but got {temperature}")
        self.model, self.temperature = model, float(temperature)
        self.threshold: float | tuple[float, ...] = tuple(map(float, limits)) if limits.ndim else float(limits)
        self.policy: Policy | None = None
        self._confidence = confidences.get(confidence)

    @classmethod
    def from_policy(cls, model: nn.Module, policy: Policy | str | Path) -> "SelectiveClassifier":
        """A model that decides as a policy (or the policy in a file) does on the predictions of that model.

        The policy must consist of a threshold, for all answers or for each class, on the largest probability, the
        margin or the entropy of one pass, calibrated by a temperature or not; an error says what else it has. For
        other policies, apply them to predictions: `Policy.load(path).apply({"logits": ...})`.
        """
        policy = policy if isinstance(policy, Policy) else Policy.load(policy)
        classifier = cls(model, *network_rule(policy))
        classifier.policy = policy
        return classifier

    def forward(self, inputs: Tensor) -> Tensor:
        """Labels [n], `ABSTAIN` where the model is not sure enough."""
        label, _, accepted = self.decide(inputs)
        return torch.where(accepted, label, ABSTAIN)

    def decide(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For each input, accepted or not: label [n], confidence [n] in float64, and whether it is accepted [n].

        >>> label, confidence, accepted = SelectiveClassifier(nn.Identity(), 0.8).decide(torch.tensor([[0.0, 0.5]]))
        >>> label.tolist(), [round(value, 3) for value in confidence.tolist()], accepted.tolist()
        ([1], [0.622], [False])
        """
        logits: Tensor = self.model(inputs)
        _check_logits(logits)
        if self.policy is not None and logits.shape[-1] != self.policy.input.num_classes:
            raise ValueError(
                f"expected a model with the {self.policy.input.num_classes} classes of the policy, but got"
                f" {logits.shape[-1]}"
            )
        label, confidence = logits.argmax(dim=-1), self.confidence(logits)
        if isinstance(self.threshold, float):
            return label, confidence, confidence >= _exact(self.threshold - TOLERANCE)
        if logits.shape[-1] != len(self.threshold):
            raise ValueError(
                f"expected a threshold for each of {logits.shape[-1]} classes, but got {len(self.threshold)}"
            )
        limits = torch.tensor(self.threshold, dtype=torch.float64, device=label.device) - TOLERANCE
        return label, confidence, confidence >= limits[label]

    def confidence(self, logits: Tensor) -> Tensor:
        """The confidence [n] that is compared with the threshold."""
        return self._confidence(logits.detach().double() / _exact(self.temperature))


def _check_logits(logits: object) -> None:
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"expected a model that returns logits [n, K], but got {type(logits).__name__}; wrap it in a module that"
            " returns its logits alone"
        )
    if logits.ndim != 2:
        raise ValueError(
            f"expected a model that returns logits [n, K], but got shape {tuple(logits.shape)}; wrap it in a module"
            " that returns logits.flatten(0, -2) of [n, tokens, K], or logits.movedim(1, -1).flatten(0, -2) of"
            " [n, K, h, w]"
        )


def _exact(value: float) -> Tensor:
    """A number as a float64 tensor, since ONNX export rounds plain numbers to float32; combines with any device."""
    return torch.tensor(value, dtype=torch.float64, device="cpu")

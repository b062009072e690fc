"""Methods that average the predictions of several networks: AES snapshots and deep ensembles."""

from collections.abc import Sequence

import numpy as np
import torch

from confrank import confidence
from confrank.method_facts import facts_of
from confrank.metrics.inputs import as_probabilities, as_table
from confrank.predictions import Array, Predictions


def average(members: Sequence[Predictions]) -> Predictions:
    """Mean probability of the members (in float64); one member is returned as is.

    Its confidence is the one that ranks a single member: entropy for crl-entropy, margin for crl-margin, else the
    maximum. The members must have predicted the same samples in the same order.
    """
    if not members:
        raise ValueError("expected at least one member to average, but got none")
    first = members[0]
    if len(members) == 1:
        return first
    for number, member in enumerate(members):
        other_keys = member.key is not None and first.key is not None and not _same(member.key, first.key)
        if other_keys or not _same(member.index, first.index) or not _same(member.label, first.label):
            raise ValueError(
                f"expected members that predict the same samples in the same order, but member {number} differs"
            )
        names, other = first.class_names, member.class_names
        if names and other and names != other:
            raise ValueError(
                "expected members with the same classes in the same order, but member"
                f" {number} has {', '.join(other[:5])}, and the first {', '.join(names[:5])}"
            )
    mean = _probabilities(first)
    for member in members[1:]:
        probabilities = _probabilities(member)
        if probabilities.shape != mean.shape:
            shapes = " and ".join(f"{rows} of {width} classes" for rows, width in (mean.shape, probabilities.shape))
            raise ValueError(f"expected members with equal numbers of predictions and classes, but got {shapes}")
        mean += probabilities
    mean /= len(members)
    confidence_of = confidence.get(facts_of(first.metadata.get("method", "")).confidence or "max_probability")
    return Predictions(
        probabilities=mean,
        confidence=confidence_of(torch.from_numpy(mean).log()).numpy(),
        label=first.label,
        index=first.index,
        key=first.key,
        other_keys=first.other_keys,
        metadata={**first.metadata, "members": str(len(members))},
    )


def _probabilities(member: Predictions) -> Array:
    """A new table in float64."""
    if member.logits is not None:
        # A copy: torch rejects negative strides and other byte orders.
        logits = torch.from_numpy(as_table(member.logits, "logits").astype(np.float64))
        return torch.softmax(logits, dim=1).numpy()
    if member.probabilities is None:
        raise ValueError("expected members with logits or probabilities, but got one without")
    return as_probabilities(member.probabilities.astype(np.float64))


def _same(one: Array | None, other: Array | None) -> bool:
    return (one is None and other is None) or (one is not None and other is not None and np.array_equal(one, other))

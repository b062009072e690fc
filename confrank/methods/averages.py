"""Methods that average the predictions of several networks: AES snapshots and deep ensembles."""

from collections.abc import Sequence

import numpy as np
import torch

from confrank.confidence import max_probability
from confrank.predictions import Array, Predictions


def average(members: Sequence[Predictions], metadata: dict[str, str] | None = None) -> Predictions:
    """Mean probability of the members (in float64) with its maximum as confidence; one member gives itself back.

    The members must have predicted the same samples in the same order.
    """
    if not members:
        raise ValueError("expected at least one member to average, but got none")
    first = members[0]
    for place, member in enumerate(members):
        if not _same(member.index, first.index) or not _same(member.label, first.label):
            raise ValueError(
                f"expected members that predict the same samples in the same order, but member {place} differs"
            )
    mean = np.mean([_probabilities(member) for member in members], axis=0)
    confidence = first.confidence if len(members) == 1 else None
    if confidence is None:
        alone = first.logits if len(members) == 1 else None
        table = torch.from_numpy(mean).log() if alone is None else torch.tensor(alone).double()
        confidence = max_probability(table).numpy()
    return Predictions(
        probabilities=mean,
        confidence=confidence,
        label=first.label,
        index=first.index,
        metadata=first.metadata if metadata is None else metadata,
    )


def _probabilities(member: Predictions) -> Array:
    if member.logits is not None:
        probabilities: Array = torch.softmax(torch.tensor(member.logits).double(), dim=1).numpy()
        return probabilities
    if member.probabilities is None:
        raise ValueError("expected members with logits or probabilities, but got one without")
    return member.probabilities.astype(np.float64)


def _same(one: Array | None, other: Array | None) -> bool:
    return (one is None and other is None) or (one is not None and other is not None and np.array_equal(one, other))

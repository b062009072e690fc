"""The strategies by name: what each needs of a sample, and which method trains its network. Needs no torch."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Numbered = tuple[Rows, NDArray[np.int64]]  # rows and their class numbers
Needs = Literal["nothing", "scores", "features"]


@dataclass(frozen=True)
class Strategy:
    """What a strategy needs of each sample, the confidence it ranks by, and the method that trains its network."""

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

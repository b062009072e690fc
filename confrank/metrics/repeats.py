"""Mean, spread and paired differences over repeated runs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation (n - 1) of n values; the deviation of one value is None."""

    mean: float
    std: float | None
    n: int


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences (second minus first) and its standard error."""

    mean: float
    standard_error: float | None
    n: int


def summarise(values: Sequence[float]) -> Summary:
    """
    >>> summarise([1.0, 2.0, 3.0])
    Summary(mean=2.0, std=1.0, n=3)
    """
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Summary(float(np.mean(values)), std, len(values))


def paired_difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """
    >>> paired_difference([1.0, 2.0], [2.0, 5.0])
    Difference(mean=2.0, standard_error=1.0, n=2)
    """
    gaps = np.subtract(second, first)
    error = float(np.std(gaps, ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else None
    return Difference(float(np.mean(gaps)), error, len(gaps))


@dataclass(frozen=True)
class Cell:
    """The paper's number and ours (None if missing), unscaled; `deviations` is the gap in the paper's std.

    `elsewhere` are other numbers that the paper gives for the same cell in another table.
    """

    dataset: str
    model: str
    method: str
    out_set: str
    metric: str
    paper: Summary | None
    ours: Summary | None
    elsewhere: tuple[Summary, ...] = ()

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        return self.dataset, self.model, self.method, self.out_set, self.metric

    @property
    def deviations(self) -> float | None:
        if self.ours is None or self.paper is None or not self.paper.std:
            return None
        return (self.ours.mean - self.paper.mean) / self.paper.std

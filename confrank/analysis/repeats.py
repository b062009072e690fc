"""Methods over several seeds: means, standard deviations, and differences paired by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from confrank.metrics import Evaluation, Samples, evaluation_of
from confrank.metrics.curve import curve_of
from confrank.metrics.inputs import Floats
from confrank.metrics.ranking import ranked

# The coverages at which the curves of several runs are averaged.
GRID = np.linspace(0.005, 1, 400)


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


@dataclass(frozen=True)
class Repeats:
    """Methods trained with the same seeds: of each, evaluations and risks at `GRID` [seeds, 400], seed by seed."""

    evaluations: dict[str, list[Evaluation]]
    risks: dict[str, Floats]

    @property
    def num_seeds(self) -> int:
        return len(next(iter(self.evaluations.values())))

    def summary(self, method: str, key: str) -> Summary | None:
        """Mean and standard deviation of a metric over the seeds in which all methods define it; None without any."""
        values = self._values(key)[method]
        return summarise(values) if values else None

    def difference(self, method: str, key: str, other: str | None = None) -> Difference | None:
        """A method minus another, the first by default, paired by seed, with its standard error."""
        values = self._values(key)
        known = values[next(iter(values)) if other is None else other]
        return paired_difference(known, values[method]) if known else None

    def _values(self, key: str) -> dict[str, list[float]]:
        """By method, a metric of each seed in which all methods define it."""
        seeds = zip(*self.evaluations.values(), strict=True)
        values = [[value for run in seed if (value := run.metrics[key]) is not None] for seed in seeds]
        known = [seed for seed in values if len(seed) == len(self.evaluations)]
        return {name: [seed[number] for seed in known] for number, name in enumerate(self.evaluations)}


def repeats_of(samples: Mapping[str, Sequence[Samples]]) -> Repeats:
    """Several seeds of several methods, as {method: [samples of each seed]} with the seeds in the same order.

    >>> runs = [Samples(np.array([0.9, 0.8]), np.array([True, right])) for right in (False, True)]
    >>> repeats_of({"baseline": runs}).summary("baseline", "acc")
    Summary(mean=0.75, std=0.3535533905932738, n=2)
    """
    if len({len(runs) for runs in samples.values()}) != 1:
        counts = ", ".join(f"{len(runs)} of {name}" for name, runs in samples.items())
        raise ValueError(f"expected as many runs of each method, but got {counts or 'none'}")
    evaluations = {name: [evaluation_of(run) for run in runs] for name, runs in samples.items()}
    return Repeats(evaluations, {name: risks_on_grid(runs) for name, runs in samples.items()})


def risks_on_grid(runs: Sequence[Samples]) -> Floats:
    """The error rate among accepted at each coverage of `GRID`, run by run: [runs, 400]."""
    curves = [curve_of(ranked(run.confidence, run.correct, run.weight)) for run in runs]
    return np.array([np.interp(GRID, curve.coverage, curve.risk) for curve in curves])

"""Methods over several seeds: means, standard deviations, and differences paired by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from confrank.metrics import Evaluation, Samples, evaluation_of
from confrank.metrics.arrays import Floats
from confrank.metrics.curve import curve_of
from confrank.metrics.ranking import ranked
from confrank.metrics.repeats import Difference, Summary, paired_difference, summarise

# The coverages at which the curves of several runs are averaged.
GRID = np.linspace(0.005, 1, 400)


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

"""Several models next to each other: metrics, intervals and paired differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confrank.analysis.model import Analysis, analyse, with_keys
from confrank.metrics import (
    Interval,
    PairedDifference,
    Samples,
    bootstrap,
    intervals_of,
    paired_differences,
    sample_values,
)
from confrank.metrics.arrays import ArrayLike, to_numpy
from confrank.metrics.intervals import default_resamples
from confrank.phrasing import InputError
from confrank.predictions import ARRAYS, Array, Predictions, pairing

# With fewer resamples, a 95% interval means little and p cannot fall below 0.05.
FEWEST_RESAMPLES = 100
Resampled = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Comparison:
    """Several models. Each property has one entry per model; differences are of each later model to the first."""

    models: tuple[Analysis, ...]

    @property
    def metrics(self) -> tuple[dict[str, float | None], ...]:
        return tuple(model.evaluation.metrics for model in self.models)

    @property
    def intervals(self) -> tuple[dict[str, Interval | None], ...]:
        """95% intervals; empty without resamples."""
        return tuple(model.intervals for model in self.models)

    @property
    def differences(self) -> tuple[dict[str, PairedDifference | None], ...]:
        """Each later model minus the first, on the same samples; empty where `pairings` gives the reason."""
        return tuple(model.differences for model in self.models[1:])

    @property
    def pairings(self) -> tuple[str, ...]:
        """How the rows of each later model were matched with those of the first, or why they were not."""
        return tuple(model.pairing for model in self.models[1:])


def compare(
    first: Predictions | Mapping[str, ArrayLike],
    second: Predictions | Mapping[str, ArrayLike],
    *others: Predictions | Mapping[str, ArrayLike],
    resamples: int | None = None,
    seed: int = 0,
) -> Comparison:
    """Metrics, 95% intervals and paired differences of two or more models, as `confrank evaluate A B` gives them.

    Each model is a `Predictions` or a mapping of arrays: what `evaluate` takes, and `index` or `key` to match rows
    by. `resamples` is the number of bootstrap resamples: by default it depends on the number of rows, 0 means no
    intervals and no differences.

    >>> label, right = np.arange(300) % 2, np.arange(300) % 3 > 0
    >>> a = {"confidence": np.linspace(0, 1, 300), "label": label, "prediction": np.where(right, label, 1 - label)}
    >>> result = compare(a, a | {"confidence": 0.5 + 0.5 * right}, resamples=100)
    >>> [round(metrics["aurc"], 3) for metrics in result.metrics]
    [0.326, 0.064]
    >>> (difference,) = result.differences
    >>> round(difference["aurc"].value, 3), difference["aurc"].high < 0
    (-0.263, True)
    """
    predictions = [_as_predictions(model) for model in (first, second, *others)]
    names = [f"model {number + 1}" for number in range(len(predictions))]
    samples = [_samples_of(name, model) for name, model in zip(names, predictions, strict=True)]
    return compare_samples(names, predictions, samples, resamples, seed)


def _as_predictions(model: Predictions | Mapping[str, ArrayLike]) -> Predictions:
    if isinstance(model, Predictions):
        return model
    if unknown := [name for name in model if name not in ARRAYS]:
        raise ValueError(f"expected arrays among {', '.join(ARRAYS)}, but got {', '.join(map(repr, unknown))}")
    arrays: dict[str, Any] = {name: to_numpy(values) for name, values in model.items()}
    return Predictions(**arrays)


def _samples_of(name: str, predictions: Predictions) -> Samples:
    try:
        samples = sample_values(**predictions.evaluation_inputs())
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if not len(samples):
        raise ValueError(f"expected predictions to compare, but {name} has none")
    return samples


def check_resamples(resamples: int | None) -> None:
    """Raise if there are resamples, but too few of them."""
    if resamples and resamples < FEWEST_RESAMPLES:
        raise InputError(
            f"expected {FEWEST_RESAMPLES} resamples or more, but got {resamples}",
            "raise {resamples}, or set it to 0 for no intervals",
        )


def compare_samples(
    names: Sequence[str],
    predictions: Sequence[Predictions],
    samples: Sequence[Samples],
    resamples: int | None = None,
    seed: int = 0,
) -> Comparison:
    """`compare` for one or more named models whose samples have been computed."""
    check_resamples(resamples)
    models = []
    for name, one, values in zip(names, predictions, samples, strict=True):
        parser = one.metadata.get("parser")
        source = one.describe() + (f", parsed {parser}" if parser else "")
        models.append(with_keys(analyse(name, values, source, one.class_names), one.key_of))
    pairings = [pairing(predictions[0], one) for one in predictions]
    counts = [default_resamples(len(values)) if resamples is None else resamples for values in samples]
    return Comparison(tuple(with_intervals(models, samples, pairings, counts, seed)))


def with_intervals(
    analyses: Sequence[Analysis],
    samples: Sequence[Samples],
    pairings: Sequence[tuple[Array | None, str]],
    num_resamples: Sequence[int],
    seed: int = 0,
) -> list[Analysis]:
    """Add intervals to each model, and differences to the first for those with the same samples.

    `pairings` gives, for each model, its rows in the order of the first model's (None if its samples differ).
    """
    resampled = _resampled(samples, [rows for rows, _ in pairings], num_resamples, seed)
    first, results = analyses[0].evaluation.metrics, []
    for number, (model, (rows, reason)) in enumerate(zip(analyses, pairings, strict=True)):
        metrics = model.evaluation.metrics
        changes: dict[str, Any] = {}
        if number:
            changes["pairing"] = reason
        if number in resampled:
            changes["intervals"] = intervals_of(resampled[number], metrics, samples=samples[number], seed=seed)
            changes["num_resamples"] = num_resamples[number if rows is None else 0]
            if number and rows is not None:
                changes["differences"] = paired_differences(resampled[0], resampled[number], first, metrics)
        results.append(replace(model, **changes))
    return results


def _resampled(
    samples: Sequence[Samples], rows: Sequence[Array | None], num_resamples: Sequence[int], seed: int
) -> dict[int, Resampled]:
    """Resampled metrics by model number; models with the first one's samples share its resamples."""
    paired = [number for number, chosen in enumerate(rows) if chosen is not None]
    values: dict[int, Resampled] = {}
    for group in (paired, *([number] for number, chosen in enumerate(rows) if chosen is None)):
        if num_resamples[group[0]]:
            aligned = [_aligned(samples[number], rows[number]) for number in group]
            values |= zip(group, bootstrap(aligned, num_resamples[group[0]], seed), strict=True)
    return values


def _aligned(samples: Samples, rows: Array | None) -> Samples:
    return samples if rows is None else samples.select(rows)

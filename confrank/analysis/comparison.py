"""Several models next to each other: metrics, intervals and paired differences."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from confrank.analysis.columns import Columns, Pairing, named_columns, shared_columns, weights_of
from confrank.analysis.groups import CELLS, COVERAGE, MOST_ROWS, Group, Grouping, grouping_of
from confrank.analysis.model import Analysis, analyse
from confrank.errors import InputError, about, aligned, counted
from confrank.metrics import (
    Interval,
    PairedDifference,
    Samples,
    bootstrap,
    intervals_of,
    paired_differences,
    sample_values,
)
from confrank.metrics.groups import rows_by_group
from confrank.metrics.inputs import ArrayLike, Classes, Floats, as_weights, to_numpy
from confrank.metrics.intervals import no_interval
from confrank.metrics.resampling import NO_INTERVALS, default_resamples
from confrank.predictions import Array, Predictions, as_predictions, pairing

# With fewer resamples, a 95% interval means little and p cannot fall below 0.05.
FEWEST_RESAMPLES = 100
Resampled = dict[str, Floats]
Progress = Callable[[int, int], None]
Result = TypeVar("Result", Analysis, Group)


@dataclass(frozen=True)
class Comparison:
    """Several models. Each property has one entry per model; differences are of each later model to the first.

    Printed, it is a table of the metrics with their intervals, and of the differences, and one of each column of
    groups.
    """

    models: tuple[Analysis, ...]
    samples: tuple[Samples, ...] = ()
    seed: int = 0

    @property
    def metrics(self) -> tuple[dict[str, float | None], ...]:
        return tuple(model.evaluation.metrics for model in self.models)

    @property
    def intervals(self) -> tuple[dict[str, Interval | None], ...]:
        """95% intervals; empty without resamples and with weights."""
        return tuple(model.intervals for model in self.models)

    @property
    def differences(self) -> tuple[dict[str, PairedDifference | None], ...]:
        """Each later model minus the first, on the same samples; empty with weights, or where `pairings` says why."""
        return tuple(model.differences for model in self.models[1:])

    @property
    def pairings(self) -> tuple[str, ...]:
        """How the rows of each later model were matched with those of the first, or why they were not."""
        return tuple(model.pairing for model in self.models[1:])

    @property
    def groups(self) -> tuple[dict[str, Grouping], ...]:
        """By column, the groups of each model; empty without `by`."""
        return tuple(model.groups for model in self.models)

    def __repr__(self) -> str:
        first, compared = self.models[0].name, [model for model in self.models if model.differences]
        rows = [["", *(model.name for model in self.models), *(f"{model.name} - {first}" for model in compared)]]
        for key in dict.fromkeys(key for metrics in self.metrics for key in metrics):
            values = [_with_limits(one.evaluation.metrics.get(key), one.intervals.get(key)) for one in self.models]
            found = [one.differences.get(key) for one in compared]
            gaps = [_with_limits(None if gap is None else gap.value, gap, sign="+") for gap in found]
            rows.append([key, *values, *gaps])
        sources = [*dict.fromkeys(model.source for model in self.models)]
        if len(sources) > 1:
            sources = [f"{model.name}: {model.source}" for model in self.models]
        note = ["in brackets: 95% intervals"] if any(self.intervals) else []
        note += [NO_INTERVALS] if self.models[0].weighted_by else []
        return "\n".join([*sources, aligned(rows), *note, *map(self._groups, self.groups[0])])

    def _groups(self, column: str) -> str:
        """The groups of a column after an empty line, the worst of the first model first."""
        first, *others = (model.groups[column] for model in self.models)
        if not others:
            return f"\n{first!r}"
        rows = [[column, "model", *CELLS]]
        for value in [group.value for group in first.by_risk[:MOST_ROWS]]:
            for model in self.models:
                rows += [[value, model.name, *one.cells] for one in model.groups[column].groups if one.value == value]
        notes = [f"{model.name}: {note}" for model in self.models for note in model.groups[column].notes]
        return "\n".join(["", aligned(rows), *notes])


def _with_limits(value: float | None, limits: Interval | PairedDifference | None, sign: str = "") -> str:
    if value is None:
        return "-"
    text = f"{value:{sign}.4f}"
    return text if limits is None else f"{text} [{limits.low:{sign}.4f}, {limits.high:{sign}.4f}]"


def compare(
    first: Predictions | Mapping[str, Classes],
    *others: Predictions | Mapping[str, Classes],
    by: Columns | None = None,
    sample_weight: str | ArrayLike | None = None,
    resamples: int | None = None,
    seed: int = 0,
    coverage: float = COVERAGE,
    names: Sequence[str] | None = None,
) -> Comparison:
    """Metrics, 95% intervals and paired differences of one or more models, as `confrank evaluate A B` gives them.

    Each model is a `Predictions` or a mapping of arrays: what `evaluate` takes, and `index` or `key` to match rows
    by. `resamples` is the number of bootstrap resamples: by default it depends on the number of rows, 0 means no
    intervals and no differences.
    `by` groups the rows: the name of a column in `Predictions.extra` or in the mapping, a list of such names, or
    arrays by name (or a data frame), in the order of the first model's rows. `.groups` then has all of this for each
    group, and the error rate among accepted at the threshold that accepts the share `coverage` of all predictions.
    `sample_weight` is the name of a column or an array [n]; with weights there are no intervals and no differences.
    `names` are those of the models, for tables and reports.

    >>> label, right = np.arange(300) % 2, np.arange(300) % 3 > 0
    >>> a = {"confidence": np.linspace(0, 1, 300), "label": label, "prediction": np.where(right, label, 1 - label)}
    >>> result = compare(a, a | {"confidence": 0.5 + 0.5 * right}, resamples=100)
    >>> [round(metrics["aurc"], 3) for metrics in result.metrics]
    [0.326, 0.064]
    >>> (difference,) = result.differences
    >>> round(difference["aurc"].value, 3), difference["aurc"].high < 0
    (-0.263, True)
    """
    columns, arrays = named_columns(by, "group")
    weight_name, weights = named_columns(sample_weight, "sample_weight")
    if shared := ({*arrays} & {*weight_name, *weights}) | ({*columns} & {*weights}):
        raise ValueError(
            f"expected groups and weights with names of their own, but both are called {min(shared)!r}; rename one of"
            " them, as in sample_weight.rename('weight')"
        )
    named, given = [*columns, *weight_name], arrays | weights
    predictions = [as_predictions(first, named, given), *(as_predictions(model, named) for model in others)]
    cells = {column: to_numpy(values) for column, values in given.items()}
    predictions[0] = replace(predictions[0], extra=predictions[0].extra | cells)
    names = _distinct_names(names, len(predictions))
    samples = [_samples_of(name, model) for name, model in zip(names, predictions, strict=True)]
    weight = next(iter([*weight_name, *weights]), None)
    return compare_samples(
        names, predictions, samples, resamples, seed, by=[*columns, *arrays], sample_weight=weight, coverage=coverage
    )


def _distinct_names(names: Sequence[str] | None, num_models: int) -> list[str]:
    if names is None:
        return [f"model {number + 1}" for number in range(num_models)]
    if isinstance(names, str) or len(names) != num_models or len({*names}) < num_models:
        raise ValueError(f"expected a distinct name for each of {counted(num_models, 'model')}, but got {names!r}")
    return list(names)


def _samples_of(name: str, predictions: Predictions) -> Samples:
    with about(name):
        samples = sample_values(**predictions.evaluation_inputs())
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
    *,
    by: Sequence[str] = (),
    sample_weight: str | None = None,
    coverage: float = COVERAGE,
    on_progress: Progress | None = None,
) -> Comparison:
    """`compare` for one or more named models whose samples have been computed, with columns by name.

    `on_progress` is called with the number of rows resampled so far and their total.
    """
    check_resamples(resamples)
    pairings = [pairing(predictions[0], one) for one in predictions]
    if sample_weight is not None:
        predictions, samples = _weighted(names, predictions, samples, pairings, sample_weight)
        pairings, resamples = [pairing(predictions[0], one) for one in predictions], 0
    columns = shared_columns(names, predictions, pairings, by)
    models = []
    for name, one, values in zip(names, predictions, samples, strict=True):
        models.append(analyse(name, values, one.describe(), one.class_names, one.key_of, one.file_rows))
    counts = [default_resamples(len(values)) if resamples is None else resamples for values in samples]
    if on_progress is not None:
        on_progress = _joined(on_progress, (1 + len(by)) * _num_resampled(samples, pairings, counts))
    models = with_intervals(models, samples, pairings, counts, seed, on_progress)
    if sample_weight is not None:
        models = [replace(model, weighted_by=sample_weight) for model in models]
    for column in by:
        cells = [shared[column] for shared in columns]
        models = _with_groups(models, samples, pairings, counts, seed, column, cells, coverage, on_progress)
    return Comparison(tuple(models), tuple(samples), seed)


def _num_resampled(samples: Sequence[Samples], pairings: Sequence[Pairing], num_resamples: Sequence[int]) -> int:
    """How many rows are resampled for the intervals of all models; their groups of one column have as many."""
    return sum(num_resamples[group[0]] * len(samples[number]) for group in _paired(pairings) for number in group)


def _joined(on_progress: Progress, total: int) -> Progress:
    """The progress of several calls of `bootstrap`, one after another, with this total, as that of one."""
    finished = 0

    def advance(done: int, total_of_call: int) -> None:
        nonlocal finished
        on_progress(finished + done, total)
        finished += total_of_call if done == total_of_call else 0

    return advance


def _weighted(
    names: Sequence[str],
    predictions: Sequence[Predictions],
    samples: Sequence[Samples],
    pairings: Sequence[Pairing],
    column: str,
) -> tuple[list[Predictions], list[Samples]]:
    """The rows of weight above 0 of each model, with their weights."""
    left, weighted = [], []
    shared = shared_columns(names, predictions, pairings, [column])
    for name, model, values, cells in zip(names, predictions, samples, shared, strict=True):
        with about(name):
            weights = weights_of(cells[column], column)
            weighted.append(values.weighted(weights))
            left.append(model.select(as_weights(weights, len(model)) > 0))
    return left, weighted


def _with_groups(
    models: Sequence[Analysis],
    samples: Sequence[Samples],
    pairings: Sequence[Pairing],
    num_resamples: Sequence[int],
    seed: int,
    column: str,
    cells: Sequence[Array],
    coverage: float,
    on_progress: Progress | None,
) -> list[Analysis]:
    """Add the groups of one column; groups have as many resamples as the whole set, shared by paired models."""
    results = list(models)
    for group in _paired(pairings):
        rows = rows_by_group(cells[group[0]], column)
        aligned = [_aligned(samples[number], pairings[number][0]) for number in group]
        groupings = [grouping_of(column, one, rows, coverage) for one in aligned]
        counts, judged = [num_resamples[group[0]]] * len(group), []
        for position, chosen in enumerate(rows.values()):
            same = [(np.arange(len(chosen)), pairings[number][1]) for number in group]
            found = [grouping.groups[position] for grouping in groupings]
            selected = [one.select(chosen) for one in aligned]
            judged.append(with_intervals(found, selected, same, counts, seed, on_progress))
        for number, grouping, parts in zip(group, groupings, zip(*judged, strict=True), strict=True):
            finished = replace(grouping, groups=parts)
            results[number] = replace(results[number], groups=results[number].groups | {column: finished})
    return results


def _paired(pairings: Sequence[Pairing]) -> list[list[int]]:
    """Numbers of models that have the same samples: first those paired with the first model, then each other one."""
    paired = [number for number, (rows, _) in enumerate(pairings) if rows is not None]
    return [paired, *([number] for number, (rows, _) in enumerate(pairings) if rows is None)]


def with_intervals(
    analyses: Sequence[Result],
    samples: Sequence[Samples],
    pairings: Sequence[Pairing],
    num_resamples: Sequence[int],
    seed: int = 0,
    on_progress: Progress | None = None,
) -> list[Result]:
    """Add intervals to each model, and differences to the first for those with the same samples.

    `pairings` gives, for each model, its rows in the order of the first model's (None if its samples differ);
    `bootstrap` calls `on_progress`.
    """
    resampled = _resampled(samples, pairings, num_resamples, seed, on_progress)
    first, results = analyses[0].evaluation.metrics, []
    for number, (model, (rows, reason)) in enumerate(zip(analyses, pairings, strict=True)):
        metrics = model.evaluation.metrics
        changes: dict[str, Any] = {}
        if number:
            changes["pairing"] = reason
        if number in resampled:
            limits = intervals_of(samples[number], metrics, resampled[number], seed=seed)
            missing = [key for key, value in metrics.items() if value is not None and limits[key] is None]
            changes["intervals"] = limits
            changes["no_intervals"] = {key: no_interval(key, samples[number]) for key in missing}
            changes["num_resamples"] = num_resamples[number if rows is None else 0]
            if number and rows is not None:
                both = _aligned(samples[0], pairings[0][0]), _aligned(samples[number], rows)
                changes["differences"] = paired_differences(
                    resampled[0], resampled[number], first, metrics, samples=both
                )
        results.append(replace(model, **changes))
    return results


def _resampled(
    samples: Sequence[Samples],
    pairings: Sequence[Pairing],
    num_resamples: Sequence[int],
    seed: int,
    on_progress: Progress | None,
) -> dict[int, Resampled]:
    """Resampled metrics by model number; models with the first one's samples share its resamples."""
    values: dict[int, Resampled] = {}
    for group in _paired(pairings):
        if num_resamples[group[0]]:
            aligned = [_aligned(samples[number], pairings[number][0]) for number in group]
            values |= zip(group, bootstrap(aligned, num_resamples[group[0]], seed, on_progress), strict=True)
    return values


def _aligned(samples: Samples, rows: Array | None) -> Samples:
    return samples if rows is None else samples.select(rows)

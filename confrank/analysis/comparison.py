"""Several models next to each other: metrics, intervals and paired differences."""

from __future__ import annotations  # so that `help` shows signatures as they are written

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np

from confrank.analysis.columns import Columns, clusters_of, named_columns, shared_columns, weights_of
from confrank.analysis.groups import CELLS, COVERAGE, MOST_ROWS, Group, Grouping, grouping_of
from confrank.analysis.model import Analysis, Differences, analyse, as_dicts
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
from confrank.metrics.inputs import (
    ArrayLike,
    Classes,
    HasArray,
    as_weights,
    column_names,
    same_rows,
    to_numpy,
)
from confrank.metrics.intervals import no_interval
from confrank.metrics.resampling import NO_INTERVALS, default_resamples
from confrank.predictions import Array, Predictions, as_predictions, pairing, read

# With fewer resamples, a 95% interval means little and p cannot fall below 0.05.
FEWEST_RESAMPLES = 100
# A difference is clear if p is at most this, and it is beyond its interval.
CLEAR = 0.05
# What a lower and a higher value mean. A model with fewer errors has a lower AURC even if its confidence is random;
# AUROC does not depend on how many are wrong.
CLAIMS = {
    "aurc": ("has fewer errors among the accepted", "has more errors among the accepted"),
    "auroc": ("separates right from wrong worse", "separates right from wrong better"),
}
RAW = {"aurc": ("aurc", 1.0, 4), "auroc": ("auroc", 1.0, 4)}
Model = Predictions | Mapping[str, Classes] | HasArray  # the last are data frames
Progress = Callable[[int, int], None]
Result = TypeVar("Result", Analysis, Group)


@dataclass(frozen=True)
class Comparison:
    """Several models. Each property has one entry per model; differences are of each later model to the first.

    Printed, it is a verdict on each pair of models, a table of the metrics with their intervals and of the
    differences, and a table of each column of groups.
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
    def differences(self) -> tuple[Differences, ...]:
        """Each later model minus the first, on the same samples; empty with weights, or where `pairings` says why."""
        return tuple(model.differences for model in self.models[1:])

    @property
    def pairs(self) -> dict[tuple[str, str], Differences]:
        """The differences of each two models with the same samples, `pairs["new", "old"]` for `compare(old, new)`."""
        names = [model.name for model in self.models]
        found = [(one.name, names[other], gaps) for one in self.models for other, gaps in one.differences_to.items()]
        return {(name, other): gaps for name, other, gaps in found}

    @property
    def pairings(self) -> tuple[str, ...]:
        """How the rows of each later model were matched with those of the first, or why they were not."""
        return tuple(model.pairing for model in self.models[1:])

    @property
    def groups(self) -> tuple[dict[str, Grouping], ...]:
        """By column, the groups of each model; empty without `by`."""
        return tuple(model.groups for model in self.models)

    def as_dicts(self) -> list[dict[str, Any]]:
        """For JSON: each model, with `difference_to` the models between it and the first, by name."""
        results = {model.name: model.as_dict() for model in self.models}
        for (name, other), gaps in self.pairs.items():
            if other != self.models[0].name:
                results[name].setdefault("difference_to", {})[other] = as_dicts(gaps)
        return [*results.values()]

    def __repr__(self) -> str:
        first, compared = self.models[0].name, [model for model in self.models if model.differences]
        names = [model.name for model in self.models]
        rows = [["", *names, *(f"{model.name} - {first}" for model in compared)]]
        for key in dict.fromkeys(key for metrics in self.metrics for key in metrics):
            values = [_with_limits(one.evaluation.metrics.get(key), one.intervals.get(key)) for one in self.models]
            found = [one.differences.get(key) for one in compared]
            gaps = [_with_limits(None if gap is None else gap.value, gap, sign="+") for gap in found]
            rows.append([key, *values, *gaps])
        sources = [*dict.fromkeys(model.source for model in self.models)]
        if len(sources) > 1:
            sources = [f"{model.name}: {model.source}" for model in self.models]
        note = ["in brackets: 95% intervals" + resampled_clusters(self.models)] if any(self.intervals) else []
        note += [NO_INTERVALS] if self.models[0].weighted_by else []
        said = pair_sentences(self.models, names)
        return "\n".join([*sources, *said, aligned(rows), *note, *map(self._groups, self.groups[0])])

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


def resampled_clusters(models: Sequence[Analysis]) -> str:
    """What is added to a note on intervals: how many clusters were resampled; empty without clusters."""
    counts = dict.fromkeys(f"{model.num_clusters:,}" for model in models)
    return f", resampling {' and '.join(counts)} clusters ({name})" if (name := models[0].clustered_by) else ""


def pair_sentences(
    models: Sequence[Analysis],
    names: Sequence[str],
    shown: Mapping[str, tuple[str, float, int]] = RAW,
) -> list[str]:
    """Of each pair, who has fewer errors among the accepted, and who separates right from wrong better.

    A difference is clear only beyond its interval, which is widened for several pairs as Bonferroni's would be.
    `shown` are the heading, factor and digits of both metrics.
    """
    pairs = [(number, other) for number, model in enumerate(models) for other in model.differences_to]
    if not pairs:
        return []
    level, normal = 1 - CLEAR / len(pairs), NormalDist()
    reach = normal.inv_cdf((1 + level) / 2) / normal.inv_cdf(1 - CLEAR / 2)
    sentences = []
    for number, other in pairs:
        for key, (heading, factor, digits) in shown.items():
            gap, (less, more) = models[number].differences_to[other].get(key), CLAIMS[key]
            if gap is None:
                continue
            value, low, high = (f"{limit * factor:+.{digits}f}" for limit in (gap.value, gap.low, gap.high))
            said = f"No clear difference in {heading} between {names[number]} and {names[other]}: {value}"
            claim, near = (less, gap.high) if gap.value < 0 else (more, gap.low)
            if gap.p <= CLEAR and abs(gap.value) > reach * abs(gap.value - near):
                said = f"{names[number]} {claim} than {names[other]}: its {heading} differs by {value}"
            sentences.append(f"{said} (95% interval {low} to {high}, {p_text(gap.p, models[number].num_resamples)}).")
    if len(pairs) > 1:
        sentences.append(f"With {len(pairs)} pairs, a difference is clear beyond its {level:.1%} interval.")
    return sentences


def p_text(p: float, num_resamples: int) -> str:
    """A p-value, or the least that so many resamples can show.

    >>> p_text(0.5, 1000), p_text(2 / 1001, 1000), p_text(2 / 101, 100)
    ('p = 0.5', 'p < 0.002', 'p < 0.02')
    """
    # Resamples may leave a metric undefined, so the least may be a little larger; the next p is twice as large.
    if p * (num_resamples + 1) < 3:
        return f"p < {math.ceil(1000 * p) / 1000:g}"
    return f"p = {p:.2g}"


def compare(
    first: Model,
    *others: Model,
    by: Columns | None = None,
    cluster: str | Classes | None = None,
    sample_weight: str | ArrayLike | None = None,
    resamples: int | None = None,
    seed: int = 0,
    coverage: float = COVERAGE,
    names: Sequence[str] | None = None,
) -> Comparison:
    """Metrics, 95% intervals and paired differences of one or more models, as `confrank evaluate A B` gives them.

    Each model is a data frame, a `Predictions` or a mapping of arrays: what `evaluate` takes, and `index` or `key` to
    match rows by. `resamples` is the number of bootstrap resamples: by default it depends on the number of rows, 0
    means no intervals and no differences.
    `by` groups the rows: the name of a column in the frame, the mapping or `Predictions.extra`, a list of such names,
    or arrays by name (or a data frame), in the order of the first model's rows. `.groups` then has all of this for
    each group, and the error rate among accepted at the threshold that accepts the share `coverage` of all
    predictions.
    `cluster` is what a row belongs to, such as its patient: the name of a column or an array [n]. Clusters are then
    resampled, and each brings all of its rows.
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
    clusters = {} if cluster is None or isinstance(cluster, str) else {"cluster": cluster}
    cluster_name = [cluster] if isinstance(cluster, str) else []
    named, given = [*columns, *weight_name, *cluster_name], arrays | weights | clusters
    counts = Counter([*{*named}, *arrays, *weights, *clusters])
    if shared := [name for name, count in counts.items() if count > 1]:
        raise ValueError(
            f"expected groups and weights (and clusters) of different names, but both are called {min(shared)!r};"
            " rename one of them, as in sample_weight.rename('weight')"
        )
    predictions = [_predictions(first, named, given), *(_predictions(model, named) for model in others)]
    cells = {column: to_numpy(values) for column, values in given.items()}
    predictions[0] = replace(predictions[0], extra=predictions[0].extra | cells)
    names = _distinct_names(names, len(predictions))
    samples = [_samples_of(name, model) for name, model in zip(names, predictions, strict=True)]
    by, named_cluster = [*columns, *arrays], next(iter([*cluster_name, *clusters]), None)
    weight = next(iter([*weight_name, *weights]), None)
    data = names, predictions, samples, resamples, seed
    return compare_samples(*data, by=by, cluster=named_cluster, sample_weight=weight, coverage=coverage)


def _predictions(model: Any, columns: Sequence[str], others: Mapping[str, Classes] | None = None) -> Predictions:
    """A data frame with these columns, as far as it has them; or `as_predictions`."""
    if (own := column_names(model)) is None:
        return as_predictions(model, columns, others)
    same_rows(model=model, **(others or {}))
    return read(model, keep=[column for column in columns if column in own])


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
    cluster: str | None = None,
    sample_weight: str | None = None,
    coverage: float = COVERAGE,
    on_progress: Progress | None = None,
) -> Comparison:
    """`compare` for one or more named models whose samples have been computed, with columns by name.

    `on_progress` is called with the number of rows resampled so far and their total.
    """
    check_resamples(resamples)
    sets, reasons = _same_samples(predictions)
    if cluster is not None:
        numbered = []
        shared = shared_columns(names, predictions, sets[0], [cluster])
        for name, values, cells in zip(names, samples, shared, strict=True):
            with about(name):
                numbered.append(replace(values, cluster=clusters_of(cells[cluster], cluster)))
        samples = numbered
    if sample_weight is not None:
        left, weighted = [], []
        shared = shared_columns(names, predictions, sets[0], [sample_weight])
        for name, one, values, cells in zip(names, predictions, samples, shared, strict=True):
            with about(name):
                weights = weights_of(cells[sample_weight], sample_weight)
                weighted.append(values.weighted(weights))
                left.append(one.select(as_weights(weights, len(one)) > 0))
        predictions, samples, resamples = left, weighted, 0
        sets, reasons = _same_samples(predictions)
    columns = shared_columns(names, predictions, sets[0], by)
    models: dict[int, Analysis] = {}
    for number, (one, values) in enumerate(zip(predictions, samples, strict=True)):
        model = analyse(names[number], values, one.describe(), one.class_names, one.key_of, one.file_rows)
        model = replace(model, pairing=reasons[number], weighted_by=sample_weight or "")
        if cluster is not None and values.cluster is not None:
            model = replace(model, clustered_by=cluster, num_clusters=int(values.cluster.max()) + 1)
        models[number] = model
    counts = [default_resamples(len(values)) if resamples is None else resamples for values in samples]
    if on_progress is not None:
        rows = sum(counts[next(iter(each))] * len(samples[number]) for each in sets for number in each)
        on_progress = _joined(on_progress, (1 + len(by)) * rows)
    for each in sets:
        first = next(iter(each))
        if not counts[first] and not by:
            continue  # which spares copies of large arrays
        options = counts[first], seed, on_progress
        ordered = {number: samples[number].select(rows) for number, rows in each.items()}
        found = with_intervals({number: models[number] for number in each}, ordered, *options)
        for column in by:
            groupings = _groupings(column, columns[first][column], ordered, coverage, *options)
            for number, grouping in groupings.items():
                found[number] = replace(found[number], groups=found[number].groups | {column: grouping})
        models |= found
    return Comparison(tuple(models.values()), tuple(samples), seed)


def _same_samples(predictions: Sequence[Predictions]) -> tuple[list[dict[int, Array]], list[str]]:
    """The models with the same samples, by number with their rows in the order of the first of them.

    And how each model was matched with the first of all, or why it was not.
    """
    sets: list[dict[int, Array]] = []
    reasons = [""]
    for number, model in enumerate(predictions):
        for known in sets:
            rows, reason = pairing(predictions[next(iter(known))], model)
            if known is sets[0]:
                reasons.append(reason)
            if rows is not None:
                known[number] = rows
                break
        else:
            sets.append({number: np.arange(len(model))})
    return sets, reasons


def _joined(on_progress: Progress, total: int) -> Progress:
    """The progress of several calls of `bootstrap`, one after another, with this total, as that of one."""
    finished = 0

    def advance(done: int, total_of_call: int) -> None:
        nonlocal finished
        on_progress(finished + done, total)
        finished += total_of_call if done == total_of_call else 0

    return advance


def _groupings(
    column: str, cells: Array, samples: Mapping[int, Samples], coverage: float, *options: Any
) -> dict[int, Grouping]:
    """The groups of one column of each model with the same samples; `options` are those of `with_intervals`."""
    rows = rows_by_group(cells, column)
    groupings = {number: grouping_of(column, one, rows, coverage) for number, one in samples.items()}
    groups: dict[int, list[Group]] = {number: [] for number in samples}
    for position, chosen in enumerate(rows.values()):
        found = {number: grouping.groups[position] for number, grouping in groupings.items()}
        selected = {number: one.select(chosen) for number, one in samples.items()}
        for number, group in with_intervals(found, selected, *options).items():
            groups[number].append(group)
    return {number: replace(one, groups=tuple(groups[number])) for number, one in groupings.items()}


def with_intervals(
    analyses: Mapping[int, Result],
    samples: Mapping[int, Samples],
    num_resamples: int,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> dict[int, Result]:
    """Add intervals to models with the same samples in the same order, and differences to each earlier one.

    All share their resamples; `bootstrap` calls `on_progress`.
    """
    if not num_resamples:
        return dict(analyses)
    drawn = bootstrap([*samples.values()], num_resamples, seed, on_progress)
    resampled = dict(zip(samples, drawn, strict=True))
    results = {}
    for number, model in analyses.items():
        metrics = model.evaluation.metrics
        differences: dict[int, Differences] = {}
        for other in [earlier for earlier in analyses if earlier < number]:
            both, others = (samples[other], samples[number]), analyses[other].evaluation.metrics
            differences[other] = paired_differences(
                resampled[other], resampled[number], others, metrics, samples=both
            )
        limits = intervals_of(samples[number], metrics, resampled[number], seed=seed)
        missing = [key for key, value in metrics.items() if value is not None and limits[key] is None]
        results[number] = replace(
            model,
            intervals=limits,
            no_intervals={key: no_interval(key, samples[number]) for key in missing},
            num_resamples=num_resamples,
            differences_to=differences,
        )
    return results

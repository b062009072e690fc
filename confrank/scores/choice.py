"""Choose a score on one half of the rows, and judge it on the other half."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from confrank.errors import InputError, aligned, counted
from confrank.metrics import Interval, PairedDifference, Samples, aurc, bootstrap, intervals_of
from confrank.metrics.inputs import (
    TOLERANCE,
    ArrayLike,
    Classes,
    Flags,
    Floats,
    Ints,
    as_flags,
    labels_for,
    same_length,
    same_rows,
)
from confrank.metrics.ranking import rank
from confrank.metrics.ranking_metrics import aurc_of, auroc_of, fpr_at_tpr_of
from confrank.metrics.resampling import aurc_influence, default_resamples, difference_of
from confrank.scores.registry import SCORES, STANDARD, fitted, plain, refusal, scored
from confrank.scores.table import Table, table_of

METRICS = ("aurc", "auroc", "fpr95")
FEWEST_ROWS = 8
# Scores that rank alike, as all do for two classes, still differ by ties that rounding makes or breaks.
NEGLIGIBLE = 1e-6
Parameters = Mapping[str, Mapping[str, Any]]
Metrics = dict[str, float | None]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Judged:
    """How every score ranks the rows that neither chose nor fitted anything.

    `metrics` and `intervals` are by score: `aurc`, `auroc` and `fpr95`; there are no intervals without resamples.
    `difference` is the AURC of the candidate minus that of the maximum probability.
    """

    rows: Ints
    metrics: dict[str, Metrics]
    intervals: dict[str, dict[str, Interval | None]]
    num_resamples: int
    difference: PairedDifference | None


@dataclass(frozen=True)
class Choice:
    """The chosen score with its parameters, the rows it was chosen on, and how it did on the others.

    `candidate` was the best on the choosing rows, None if none was better than the maximum probability there. It is
    chosen if it is better on the judged rows too, beyond its paired interval. `fitted` are the parameters of all
    scores, and `refused` says why a score is left out.
    """

    name: str
    parameters: dict[str, Any]
    candidate: str | None
    rows: Ints
    judged: Judged
    fitted: dict[str, dict[str, Any]]
    refused: dict[str, str]

    def __repr__(self) -> str:
        rows = [["score", *METRICS]]
        rows += [
            [name, *("-" if (value := metrics[key]) is None else f"{value:.4f}" for key in METRICS)]
            for name, metrics in self.judged.metrics.items()
        ]
        chosen = f"rank by {self.name}"
        if (gap := self.judged.difference) is not None:
            chosen += (
                f": the AURC of {self.candidate} minus that of {STANDARD} is {gap.value:+.4f}"
                f" [{gap.low:+.4f}, {gap.high:+.4f}]"
            )
        judged = f"on {counted(len(self.judged.rows), 'row')} that chose and fitted nothing"
        return f"{chosen}\n{aligned(rows)}\n{judged}"


def choose(
    *,
    logits: ArrayLike | None = None,
    probabilities: ArrayLike | None = None,
    label: Classes | None = None,
    correct: ArrayLike | None = None,
    seed: int = 0,
    resamples: int | None = 0,
) -> Choice:
    """The score to rank by: the maximum probability unless another one is better beyond its paired 95% interval.

    Give `label` [n], or `correct` [n] if another rule than the largest value made the predictions. One random half of
    the rows fits and chooses a candidate by its AURC, the other half judges it. `resamples` is the number of
    bootstrap resamples for the intervals of every score, None for a number that depends on the rows.

    >>> random = np.random.default_rng(0)
    >>> logits = random.normal(0, 3, (2000, 4))
    >>> choice = choose(logits=logits, label=(logits + random.gumbel(size=logits.shape)).argmax(axis=1))
    >>> choice.name, choice.judged.metrics["margin"]["aurc"] > choice.judged.metrics["max-probability"]["aurc"]
    ('max-probability', True)
    """
    table = table_of(logits, probabilities)
    given = probabilities if logits is None else logits
    return chosen(table, _flags(table, given, label, correct), seed, resamples)


def _flags(table: Table, given: object, label: Classes | None, correct: ArrayLike | None) -> Flags:
    if (label is None) == (correct is None):
        raise ValueError(f"expected label or correct, but got {'neither' if label is None else 'both'}")
    if correct is None:
        assert label is not None
        correct = table.values.argmax(axis=1) == labels_for(label, given, predictions=table.values)
    same_rows(predictions=given, correct=correct)
    flags = as_flags(correct)
    same_length(correct=flags, predictions=table.values)
    return flags


def chosen(
    table: Table,
    correct: Flags,
    seed: int = 0,
    resamples: int | None = 0,
    rows: Ints | None = None,
    on_progress: Progress | None = None,
) -> Choice:
    """`choose` for a checked table, from these rows of it; all by default. `bootstrap` calls `on_progress`."""
    rows = np.arange(len(table)) if rows is None else rows
    if len(rows) < FEWEST_ROWS:
        raise InputError(
            f"expected at least {FEWEST_ROWS} predictions to choose a score, but got {len(rows)}", "give more rows"
        )
    parts = np.array_split(np.random.default_rng(seed).permutation(rows), [len(rows) // 4, len(rows) // 2])
    choosing, judging = np.sort(np.concatenate(parts[:2])), np.sort(parts[2])
    refused = {name: why for name in SCORES if (why := refusal(name, table.kind, table.num_classes)) is not None}
    candidate, unfit = _candidate(table, correct, parts[:2], [name for name in SCORES if name not in refused])
    refused |= unfit
    parameters = {name: fitted(name, table, correct, choosing) for name in SCORES if name not in refused}
    judged = _judged(table, correct, judging, parameters, candidate, resamples, seed, on_progress)
    better = judged.difference is not None and judged.difference.high < 0
    name = candidate if better and candidate is not None else STANDARD
    values = {key: plain(given) for key, given in parameters.items()}
    return Choice(name, values[name], candidate, choosing, judged, values, refused)


def _candidate(
    table: Table, correct: Flags, folds: Sequence[Ints], usable: Sequence[str]
) -> tuple[str | None, dict[str, str]]:
    """The score to judge, None if none is better than the maximum probability; and why a score cannot be fitted."""
    trials, refused = _trials(table, correct, folds, usable)
    areas = {name: _mean_aurc(parts) for name, parts in trials.items()}
    better = {name: parts for name, parts in trials.items() if areas[name] < areas[STANDARD] * (1 - NEGLIGIBLE)}
    del trials  # its arrays are as large as half of a table of ten classes
    return _first_of_the_best(areas, better), refused


def _trials(
    table: Table, correct: Flags, folds: Sequence[Ints], usable: Sequence[str]
) -> tuple[dict[str, list[Samples]], dict[str, str]]:
    """Each of two folds as every score ranks it, and why a score cannot be fitted.

    Parameters are fitted on the other fold: a fitted score would win on the rows that it was fitted to.
    """
    trials: dict[str, list[Samples]] = {name: [] for name in usable}
    refused: dict[str, str] = {}
    for fold, other in (folds, folds[::-1]):
        parameters: dict[str, Mapping[str, Any]] = {}
        for name in usable:
            try:
                parameters[name] = fitted(name, table, correct, other)
            except InputError as error:
                refused[name] = error.problem
        for name, values in scored(table, fold, parameters).items():
            trials[name].append(Samples(values, correct[fold]))
    return {name: parts for name, parts in trials.items() if name not in refused}, refused


def _first_of_the_best(areas: Mapping[str, float], better: Mapping[str, Sequence[Samples]]) -> str | None:
    """The first score in order of preference that is within one standard error of the best one; None without any."""
    if not better:
        return None
    best = min(better, key=areas.__getitem__)
    influence = _influence(better[best])
    for name, parts in better.items():
        gaps = _influence(parts) - influence
        if areas[name] - areas[best] <= float(gaps.std()) / len(gaps) ** 0.5 + TOLERANCE:
            return name
    raise AssertionError("the best one is within any distance of itself")


def _mean_aurc(parts: Sequence[Samples]) -> float:
    return float(np.mean([aurc(part.confidence, part.correct) for part in parts]))


def _influence(parts: Sequence[Samples]) -> Floats:
    return np.concatenate([aurc_influence(part.confidence, part.correct)[1] for part in parts])


def _judged(
    table: Table,
    correct: Flags,
    rows: Ints,
    parameters: Parameters,
    candidate: str | None,
    resamples: int | None,
    seed: int,
    on_progress: Progress | None,
) -> Judged:
    right = correct[rows]
    samples = {name: Samples(values, right) for name, values in scored(table, rows, parameters).items()}
    metrics = {name: _metrics(one) for name, one in samples.items()}
    count = default_resamples(len(rows) * len(samples)) if resamples is None else resamples
    sets = list(samples.values())
    drawn = zip(samples, bootstrap(sets, count, seed, on_progress), strict=True) if count else ()
    intervals = {name: _intervals(values, metrics[name], samples[name]) for name, values in drawn}
    pair = [] if candidate is None else [samples[STANDARD], samples[candidate]]
    del samples, sets  # by far the largest part
    return Judged(rows, metrics, intervals, count, _difference(*pair) if pair else None)


def _intervals(resampled: dict[str, Floats], metrics: Metrics, samples: Samples) -> dict[str, Interval | None]:
    return intervals_of(samples, metrics, resampled)


def _metrics(samples: Samples) -> Metrics:
    ranking = rank(samples.confidence, samples.correct)
    return {"aurc": aurc_of(ranking), "auroc": auroc_of(ranking), "fpr95": fpr_at_tpr_of(ranking)}


def _difference(standard: Samples, candidate: Samples) -> PairedDifference:
    (first, one), (second, two) = (aurc_influence(given.confidence, given.correct) for given in (standard, candidate))
    return difference_of(second - first, two - one)

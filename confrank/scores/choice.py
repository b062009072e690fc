"""Choose a score on one half of the rows, and judge it on the other half."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from confrank.metrics import KEYS, Interval, PairedDifference, Samples, aurc, bootstrap, intervals_of
from confrank.metrics.arrays import TOLERANCE, ArrayLike, as_flags, as_labels, same_length
from confrank.metrics.influence import aurc_influence, difference_of
from confrank.metrics.intervals import default_resamples
from confrank.metrics.ranking import aurc_of, auroc_of, fpr_at_tpr_of, rank
from confrank.phrasing import InputError
from confrank.scores.fitting import Flags
from confrank.scores.functions import Floats
from confrank.scores.registry import SCORES, STANDARD, fitted, plain, refusal, scored
from confrank.scores.table import Counts, Table, table_of

METRICS = ("aurc", "auroc", "fpr95")
FEWEST_ROWS = 8
Parameters = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Judged:
    """How every score ranks the rows that neither chose nor fitted anything.

    `metrics` and `intervals` are by score: `aurc`, `auroc` and `fpr95`; there are no intervals without resamples.
    `difference` is the AURC of the candidate minus that of the maximum probability.
    """

    rows: Counts
    metrics: dict[str, dict[str, float | None]]
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
    rows: Counts
    judged: Judged
    fitted: dict[str, dict[str, Any]]
    refused: dict[str, str]


def choose(
    *,
    logits: ArrayLike | None = None,
    probabilities: ArrayLike | None = None,
    label: ArrayLike | None = None,
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
    return chosen(table, _flags(table, label, correct), seed, resamples)


def _flags(table: Table, label: ArrayLike | None, correct: ArrayLike | None) -> Flags:
    if (label is None) == (correct is None):
        raise ValueError(f"expected label or correct, but got {'neither' if label is None else 'both'}")
    if correct is not None:
        flags = as_flags(correct)
    else:
        assert label is not None
        labels = as_labels(label, table.num_classes)
        same_length(label=labels, predictions=table.values)
        flags = table.values.argmax(axis=1) == labels
    same_length(correct=flags, predictions=table.values)
    return flags


def chosen(
    table: Table, correct: Flags, seed: int = 0, resamples: int | None = 0, rows: Counts | None = None
) -> Choice:
    """`choose` for a checked table, from these rows of it; all by default."""
    rows = np.arange(len(table)) if rows is None else rows
    if len(rows) < FEWEST_ROWS:
        raise InputError(
            f"expected at least {FEWEST_ROWS} predictions to choose a score, but got {len(rows)}", "give more rows"
        )
    order = np.random.default_rng(seed).permutation(rows)
    choosing, judging = order[: len(order) // 2], np.sort(order[len(order) // 2 :])
    refused = {name: why for name in SCORES if (why := refusal(name, table.kind, table.num_classes)) is not None}
    trials, unfit = _trials(table, correct, choosing, [name for name in SCORES if name not in refused])
    refused |= unfit
    candidate = _candidate(trials)
    choosing = np.sort(choosing)
    parameters = {name: fitted(name, table, correct, choosing) for name in trials}
    del trials
    judged = _judged(table, correct, judging, parameters, candidate, resamples, seed)
    better = judged.difference is not None and judged.difference.high < 0
    name = candidate if better and candidate is not None else STANDARD
    values = {key: plain(given) for key, given in parameters.items()}
    return Choice(name, values[name], candidate, choosing, judged, values, refused)


def _trials(
    table: Table, correct: Flags, rows: Counts, usable: Sequence[str]
) -> tuple[dict[str, list[Samples]], dict[str, str]]:
    """Each half of the rows as every score ranks it, and why a score cannot be fitted.

    Parameters are fitted on the other half: on its own rows, a fitted score would win.
    """
    folds = rows[: len(rows) // 2], rows[len(rows) // 2 :]
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


def _candidate(trials: Mapping[str, Sequence[Samples]]) -> str | None:
    """The first score in order of preference that is within one standard error of the best one.

    Scores that are no better than the maximum probability are left out; None if all are.
    """
    areas = {name: _mean_aurc(parts) for name, parts in trials.items()}
    better = [name for name, area in areas.items() if area < areas[STANDARD] - TOLERANCE]
    if not better:
        return None
    best = min(better, key=areas.__getitem__)
    influence = _influence(trials[best])
    for name in better:
        gaps = _influence(trials[name]) - influence
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
    rows: Counts,
    parameters: Parameters,
    candidate: str | None,
    resamples: int | None,
    seed: int,
) -> Judged:
    right = correct[rows]
    samples = {name: Samples(values, right) for name, values in scored(table, rows, parameters).items()}
    metrics = {name: _metrics(one) for name, one in samples.items()}
    count = default_resamples(len(rows) * len(samples)) if resamples is None else resamples
    intervals: dict[str, dict[str, Interval | None]] = {name: {} for name in samples}
    if count:
        for (name, one), drawn in zip(samples.items(), bootstrap(list(samples.values()), count, seed), strict=True):
            limits = intervals_of(drawn, dict.fromkeys(KEYS) | metrics[name], samples=one)
            intervals[name] = {key: limits[key] for key in METRICS}
    return Judged(rows, metrics, intervals, count, _difference(samples, candidate))


def _metrics(samples: Samples) -> dict[str, float | None]:
    ranking = rank(samples.confidence, samples.correct)
    return {"aurc": aurc_of(ranking), "auroc": auroc_of(ranking), "fpr95": fpr_at_tpr_of(ranking)}


def _difference(samples: Mapping[str, Samples], candidate: str | None) -> PairedDifference | None:
    if candidate is None:
        return None
    standard, first = aurc_influence(samples[STANDARD].confidence, samples[STANDARD].correct)
    area, second = aurc_influence(samples[candidate].confidence, samples[candidate].correct)
    return difference_of(area - standard, second - first)

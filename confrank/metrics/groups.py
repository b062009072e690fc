"""Groups of predictions and classes: their rows, a summary of each, and what one threshold does to them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from confrank.metrics.inputs import Classes, Ints, at_or_above, cell_text, coded, to_numpy, weighted_mean
from confrank.metrics.ranking_metrics import aurc
from confrank.metrics.samples import Samples, mean_of

# More groups than this are hardly groups: each row of an id column would be one.
MOST_GROUPS = 2000
MISSING = "(missing)"


def rows_by_group(values: Classes, name: str = "group") -> dict[str, Ints]:
    """The rows of each value [n], by the value as text: numbers in ascending order, words in alphabetical order.

    Empty cells and NaN are the group "(missing)", which comes last.

    >>> {value: rows.tolist() for value, rows in rows_by_group(np.array(["b", "a", "", "b"])).items()}
    {'a': [1], 'b': [0, 3], '(missing)': [2]}
    """
    column = to_numpy(values)
    if column.ndim != 1:
        raise ValueError(f"expected one value of {name!r} for each row, but got shape {column.shape}")
    if not len(column):
        return {}
    names, codes = coded(column)
    if len(names) > MOST_GROUPS:
        raise ValueError(
            f"expected at most {MOST_GROUPS:,} groups, but {name!r} has {len(names):,} different values;"
            " choose a column with fewer"
        )
    texts = [cell_text(value) or MISSING for value in names]
    order = sorted(range(len(texts)), key=_sort_key(texts))
    # Several values may have one text, e.g. an empty cell and NaN.
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts[position] for position in order))}
    of_code = np.array([numbers[text] for text in texts], dtype=np.uint16)
    groups = of_code[codes]  # numpy sorts 16-bit integers by radix
    rows = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups, minlength=len(numbers)))
    return dict(zip(numbers, np.split(rows, ends[:-1]), strict=True))


def _sort_key(texts: list[str]) -> Any:
    """Sorts positions of texts: by number if all are numbers, with missing values last."""
    try:
        numbers = [0.0 if text == MISSING else float(text) for text in texts]
    except ValueError:
        return lambda position: (texts[position] == MISSING, texts[position])
    return lambda position: (texts[position] == MISSING, numbers[position], texts[position])


@dataclass(frozen=True)
class Acceptance:
    """What a threshold does to some predictions: rows accepted, how many of them are wrong, and the shares.

    `coverage` and `risk`, the error rate among accepted, are shares of weight where there are weights. `risk` is None
    if nothing is accepted.
    """

    threshold: float
    accepted: int
    wrong: int
    coverage: float
    risk: float | None


def accepted_at(samples: Samples, threshold: float) -> Acceptance:
    """What a threshold does to these samples.

    >>> accepted_at(Samples(np.array([0.9, 0.8, 0.4]), np.array([True, False, True])), 0.5).risk
    0.5
    """
    chosen = at_or_above(samples.confidence, threshold)
    wrong = chosen & ~samples.correct
    counts = int(np.count_nonzero(chosen)), int(np.count_nonzero(wrong))
    if samples.weight is None:
        risk = counts[1] / counts[0] if counts[0] else None
        return Acceptance(threshold, *counts, counts[0] / max(1, len(samples)), risk)
    risk = weighted_mean(wrong[chosen], samples.weight[chosen]) if counts[0] else None
    return Acceptance(threshold, *counts, weighted_mean(chosen, samples.weight), risk)


@dataclass(frozen=True)
class ClassSummary:
    """The samples with one label: their number, accuracy, mean confidence, AURC, and share of all errors.

    `error_share` is None if there are no errors at all. With sample weights, all but the number are weighted.
    """

    label: int
    num_samples: int
    accuracy: float
    confidence: float
    aurc: float
    error_share: float | None


def class_summaries(samples: Samples) -> list[ClassSummary]:
    """One summary for each class that occurs, in class order; none without labels.

    >>> samples = Samples(np.array([0.9, 0.8, 0.7]), np.array([True, False, True]), label=np.array([0, 0, 1]))
    >>> [(one.label, one.accuracy, one.error_share) for one in class_summaries(samples)]
    [(0, 0.5, 1.0), (1, 1.0, 0.0)]
    """
    if samples.label is None or not len(samples):
        return []
    # numpy sorts 16-bit integers by radix, ten times faster.
    few = samples.label.min() >= 0 and samples.label.max() < 2**16
    order = np.argsort(samples.label.astype(np.uint16) if few else samples.label, kind="stable")
    ordered = samples.label[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    num_wrong, summaries = samples.select(~samples.correct).total, []
    for label, rows in zip(ordered[starts].tolist(), np.split(order, starts[1:]), strict=True):
        summaries.append(_summary(label, samples.select(rows), num_wrong))
    return summaries


def _summary(label: int, part: Samples, num_wrong: float) -> ClassSummary:
    area = aurc(part.confidence, part.correct, sample_weight=part.weight)
    mean = mean_of(part.confidence.astype(np.float64), part.weight)
    assert area is not None and mean is not None, "every class that occurs has a sample"
    wrong = part.select(~part.correct).total
    share = wrong / num_wrong if num_wrong else None
    return ClassSummary(label, len(part), 1 - wrong / part.total, mean, area, share)


def confident_mistakes(samples: Samples, limit: int) -> list[int]:
    """Rows of the most confident wrong predictions, surest first; ties in row order."""
    wrong = np.flatnonzero(~samples.correct)
    sureness = samples.confidence[wrong]
    if len(wrong) > limit:
        least = np.partition(sureness, len(wrong) - limit)[len(wrong) - limit]
        keep = sureness >= least
        wrong, sureness = wrong[keep], sureness[keep]
    rows: list[int] = wrong[np.argsort(-sureness, kind="stable")][:limit].tolist()
    return rows

"""Metrics for each class."""

from dataclasses import dataclass

import numpy as np

from confrank.metrics.proper import mean_of
from confrank.metrics.ranking_metrics import aurc
from confrank.metrics.samples import Samples


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

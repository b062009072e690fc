"""What a report shows, as plain values: one `Examined` per file, ready for the table, the page, figures and JSON."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confrank.metrics import (
    ClassSummary,
    Evaluation,
    Interval,
    PairedDifference,
    ReliabilityBins,
    RiskCoverageCurve,
    Samples,
    bootstrap,
    class_summaries,
    evaluation_of,
    intervals_of,
    paired_differences,
    reliability_bins,
)
from confrank.metrics.classes import confident_mistakes
from confrank.metrics.ranking import curve_of, rank

NUM_POINTS = 1000
NUM_MISTAKES = 12
NUM_BARS = 30
MAX_NAME = 60
Image = NDArray[np.uint8]


@dataclass(frozen=True)
class Histogram:
    """Counts of right and wrong predictions over equal-width bins of confidence."""

    edges: NDArray[np.float64]
    right: NDArray[np.int64]
    wrong: NDArray[np.int64]


@dataclass(frozen=True)
class Mistake:
    """A wrong prediction: its row, class numbers, what it is called, and its picture [h, w, c], where known."""

    row: int
    confidence: float
    label: int | None
    prediction: int | None
    key: str | None = None
    image: Image | None = None


@dataclass(frozen=True)
class Examined:
    """One file's worth of a report."""

    name: str
    source: str
    evaluation: Evaluation
    curve: RiskCoverageCurve
    bins: ReliabilityBins | None
    histogram: Histogram
    classes: list[ClassSummary]
    class_names: list[str] | None
    mistakes: list[Mistake]
    mean_probability: float | None = None
    intervals: dict[str, Interval | None] = field(default_factory=dict)
    num_resamples: int = 0
    differences: dict[str, PairedDifference | None] = field(default_factory=dict)
    pairing: str = ""

    def class_name(self, label: int) -> str:
        names = self.class_names
        return names[label] if names and 0 <= label < len(names) else str(label)

    @property
    def ranks_by_share(self) -> bool:
        """Whether the confidence lies in [0, 1] and can be shown in percent."""
        return bool(self.histogram.edges[0] == 0 and self.histogram.edges[-1] == 1)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the evaluation, and intervals, differences to the first file and classes where there are any."""
        extra: dict[str, Any] = {"read": self.source, "num_resamples": self.num_resamples}
        if self.intervals:
            extra["intervals"] = {key: limits and [limits.low, limits.high] for key, limits in self.intervals.items()}
        if self.pairing:
            extra["pairing"] = self.pairing
        if self.differences:
            extra["difference_to_first"] = {key: gap and asdict(gap) for key, gap in self.differences.items()}
        extra["classes"] = [{"name": self.class_name(one.label), **asdict(one)} for one in self.classes]
        return {"file": self.name, **self.evaluation.as_dict(), **extra}


def examine(name: str, samples: Samples, source: str = "", class_names: list[str] | None = None) -> Examined:
    """Everything but intervals and pictures. The samples must not be empty."""
    probability, ranked = samples.probability, rank(samples.confidence, samples.correct)
    bins = None if probability is None else reliability_bins(probability, samples.correct)
    return Examined(
        name=name,
        source=source,
        evaluation=evaluation_of(samples, ranked, bins),
        curve=curve_of(ranked, NUM_POINTS),
        bins=bins,
        histogram=histogram_of(samples),
        classes=class_summaries(samples),
        class_names=class_names,
        mistakes=[_mistake(samples, row) for row in confident_mistakes(samples, NUM_MISTAKES)],
        mean_probability=None if probability is None else float(probability.mean(dtype=np.float64)),
    )


def histogram_of(samples: Samples, bars: int = NUM_BARS) -> Histogram:
    """Bins over [0, 1] for probabilities, over the range of the scores otherwise."""
    # Clipped, so that distances between scores and their sums are numbers too, wherever they are drawn.
    scores = np.clip(samples.confidence.astype(np.float64), -1e300, 1e300)
    low, high = float(scores.min()), float(scores.max())
    # Scores that differ by rounding only, or not at all, still need bins that numbers can tell apart.
    widened = max(high - low, 1e-9 * max(abs(low), abs(high), 1))
    limits = (0.0, 1.0) if low >= 0 and high <= 1 else (low, max(high, low + widened))
    edges = np.linspace(*limits, bars + 1)
    both = np.histogram(scores, bars, limits)[0]
    wrong = np.histogram(scores[~samples.correct], bars, limits)[0]
    return Histogram(edges, both - wrong, wrong)


def _mistake(samples: Samples, row: int) -> Mistake:
    label, prediction = (
        None if values is None else int(values[row]) for values in (samples.label, samples.prediction)
    )
    return Mistake(row, float(samples.confidence[row]), label, prediction)


def with_short_names(examined: Sequence[Examined]) -> list[Examined]:
    """The same under `short_names`."""
    names = short_names([item.name for item in examined])
    return [replace(item, name=name) for item, name in zip(examined, names, strict=True)]


def short_names(names: Sequence[str]) -> list[str]:
    """Distinct paths as their last part; where these coincide, as the parts that tell them apart.

    >>> short_names(["runs/a-seed0/predictions/test.npz", "runs/a-seed1/predictions/test.npz"])
    ['a-seed0', 'a-seed1']
    >>> short_names(["old/a.csv", "old/b.csv"]), short_names(["old/a.csv", "new/a.csv", "new/b.csv"])
    (['a.csv', 'b.csv'], ['old/a.csv', 'new/a.csv', 'new/b.csv'])
    """
    parts = [Path(name).parts for name in names]
    while len(parts) > 1 and min(map(len, parts)) > 1 and len({item[-1] for item in parts}) == 1:
        parts = [item[:-1] for item in parts]
    for depth in range(1, max(map(len, parts), default=0) + 1):
        ends = ["/".join(item[-depth:]) for item in parts]
        if all(ends) and len(set(ends)) == len(ends):
            return ends
    return list(names)


def shortened(text: str, limit: int = MAX_NAME) -> str:
    """A long text without its middle: names often differ at their end only.

    >>> shortened("a/very/long/path", 9)
    'a/ve…path'
    """
    half = (limit - 1) // 2
    return text if len(text) <= limit else f"{text[: limit - 1 - half]}…{text[-half:]}"


def with_keys(examined: Examined, key_of: Callable[[int], str | None]) -> Examined:
    """What the mistakes are called, by row."""
    return replace(examined, mistakes=[replace(one, key=key_of(one.row)) for one in examined.mistakes])


def with_images(examined: Examined, images: Mapping[int, Image]) -> Examined:
    """Pictures of the mistakes, by row."""
    return replace(examined, mistakes=[replace(one, image=images.get(one.row)) for one in examined.mistakes])


def with_intervals(
    examined: Sequence[Examined],
    samples: Sequence[Samples],
    pairings: Sequence[tuple[NDArray[Any] | None, str]],
    num_resamples: Sequence[int],
    seed: int = 0,
) -> list[Examined]:
    """Add intervals to each, and differences to the first for those that are about the same samples.

    `pairings` gives, for each set, its rows in the order of the first set's (None if they are other samples).
    """
    resampled = _resampled(samples, [rows for rows, _ in pairings], num_resamples, seed)
    first, results = examined[0].evaluation.metrics, []
    for place, (item, (rows, reason)) in enumerate(zip(examined, pairings, strict=True)):
        metrics = item.evaluation.metrics
        changes: dict[str, Any] = {}
        if place:
            changes["pairing"] = reason
        if place in resampled:
            changes["intervals"] = intervals_of(resampled[place], metrics)
            changes["num_resamples"] = num_resamples[place if rows is None else 0]
            if place and rows is not None:
                changes["differences"] = paired_differences(resampled[0], resampled[place], first, metrics)
        results.append(replace(item, **changes))
    return results


def _resampled(
    samples: Sequence[Samples], rows: Sequence[NDArray[Any] | None], num_resamples: Sequence[int], seed: int
) -> dict[int, dict[str, NDArray[np.float64]]]:
    """Resampled metrics by place; sets about the same samples as the first share their resamples with it."""
    together = [place for place, chosen in enumerate(rows) if chosen is not None]
    found: dict[int, dict[str, NDArray[np.float64]]] = {}
    for group in (together, *([place] for place, chosen in enumerate(rows) if chosen is None)):
        if num_resamples[group[0]]:
            aligned = [_aligned(samples[place], rows[place]) for place in group]
            found |= zip(group, bootstrap(aligned, num_resamples[group[0]], seed), strict=True)
    return found


def _aligned(samples: Samples, rows: NDArray[Any] | None) -> Samples:
    return samples if rows is None else samples.select(rows)

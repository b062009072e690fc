"""What a report says about one set of predictions, as values."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
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
    class_summaries,
    evaluation_of,
    reliability_bins,
)
from confrank.metrics.arrays import TOLERANCE
from confrank.metrics.classes import confident_mistakes
from confrank.metrics.ranking import Ranking, curve_of, rank

NUM_POINTS = 1000
NUM_MISTAKES = 12
NUM_BARS = 30
Image = NDArray[np.uint8]


@dataclass(frozen=True)
class Histogram:
    """Counts of right and wrong predictions in equal-width bins of confidence."""

    edges: NDArray[np.float64]
    right: NDArray[np.int64]
    wrong: NDArray[np.int64]


@dataclass(frozen=True)
class Mistake:
    """A wrong prediction: its row and, where known, its class numbers, its name and its image [h, w, c]."""

    row: int
    confidence: float
    label: int | None
    prediction: int | None
    key: str | None = None
    image: Image | None = None


@dataclass(frozen=True)
class Analysis:
    """What a report says about one set of predictions.

    `differences` are to the first of several models, and `pairing` says how their rows were matched.
    """

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
    def confidence_is_share(self) -> bool:
        """Whether confidence is in [0, 1] and can be shown in per cent."""
        return bool(self.histogram.edges[0] == 0 and self.histogram.edges[-1] == 1)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the evaluation, and intervals, differences to the first model and classes where there are any."""
        extra: dict[str, Any] = {"read": self.source, "num_resamples": self.num_resamples}
        if self.intervals:
            extra["intervals"] = {key: limits and [limits.low, limits.high] for key, limits in self.intervals.items()}
            extra["interval_methods"] = {key: limits.method for key, limits in self.intervals.items() if limits}
        if self.pairing:
            extra["pairing"] = self.pairing
        if self.differences:
            extra["difference_to_first"] = {key: gap and asdict(gap) for key, gap in self.differences.items()}
        extra["classes"] = [{"name": self.class_name(one.label), **asdict(one)} for one in self.classes]
        return {"file": self.name, **self.evaluation.as_dict(), **extra}


def analyse(name: str, samples: Samples, source: str = "", class_names: list[str] | None = None) -> Analysis:
    """Everything except intervals and images. The samples must not be empty."""
    probability, ranked = samples.probability, rank(samples.confidence, samples.correct)
    bins = None if probability is None else reliability_bins(probability, samples.correct)
    return Analysis(
        name=name,
        source=source,
        evaluation=evaluation_of(samples, ranked, bins),
        curve=_thinned_curve(ranked),
        bins=bins,
        histogram=histogram_of(samples),
        classes=class_summaries(samples),
        class_names=class_names,
        mistakes=[_mistake(samples, row) for row in confident_mistakes(samples, NUM_MISTAKES)],
        mean_probability=None if probability is None else float(probability.mean(dtype=np.float64)),
    )


def _thinned_curve(ranked: Ranking) -> RiskCoverageCurve:
    """About 1,000 points of the curve, each with all predictions that its threshold accepts, near-ties included."""
    curve = curve_of(ranked, NUM_POINTS)
    following = ranked.confidence_at(np.minimum(curve.accepted, ranked.num_samples - 1))
    if not ((curve.threshold - following <= TOLERANCE) & (curve.accepted < ranked.num_samples)).any():
        return curve
    every = curve_of(ranked)
    last = every.last_accepted(curve.threshold)
    return replace(curve, accepted=every.accepted[last], wrong=every.wrong[last])


def histogram_of(samples: Samples, bars: int = NUM_BARS) -> Histogram:
    """Bins over [0, 1] for probabilities, over the range of the scores otherwise."""
    # Clipped, so that differences and sums of scores stay finite wherever they are drawn.
    scores = np.clip(samples.confidence.astype(np.float64), -1e300, 1e300)
    low, high = float(scores.min()), float(scores.max())
    # Scores that are equal, or differ by rounding only, still need bins of some width.
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


def with_keys(analysis: Analysis, key_of: Callable[[int], str | None]) -> Analysis:
    """Name the mistakes by their row."""
    return replace(analysis, mistakes=[replace(one, key=key_of(one.row)) for one in analysis.mistakes])


def with_images(analysis: Analysis, images: Mapping[int, Image]) -> Analysis:
    """Add images of the mistakes, given by row."""
    return replace(analysis, mistakes=[replace(one, image=images.get(one.row)) for one in analysis.mistakes])

"""What a report says about one set of predictions, as values."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from confrank.errors import class_text
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
from confrank.metrics.curve import cheapest_curve, curve_of, has_near_ties
from confrank.metrics.groups import confident_mistakes
from confrank.metrics.inputs import Floats
from confrank.metrics.ranking import AnyRanking, Ranking, ranked
from confrank.metrics.resampling import NO_INTERVALS
from confrank.metrics.samples import mean_of

if TYPE_CHECKING:
    from confrank.analysis.groups import Grouping

NUM_POINTS = 1000
NUM_MISTAKES = 12
NUM_BARS = 30
Image = NDArray[np.uint8]
Differences = dict[str, PairedDifference | None]


@dataclass(frozen=True)
class Histogram:
    """Numbers (or weights) of right and wrong predictions in equal-width bins of confidence."""

    edges: Floats
    right: NDArray[Any]
    wrong: NDArray[Any]


@dataclass(frozen=True)
class Mistake:
    """A wrong prediction: its row in the file and, where known, its class numbers, name and image [h, w, c]."""

    row: int
    confidence: float
    label: int | None
    prediction: int | None
    key: str | None = None
    image: Image | None = None


@dataclass(frozen=True)
class Analysis:
    """What a report says about one set of predictions.

    `curve` has about 1,000 points; `cheapest` has every threshold that is cheapest for some costs.
    `differences_to` are those to each earlier model with the same samples, by its number; `pairing` says how the
    rows were matched with those of the first model. `weighted_by` is the column of sample weights, `clustered_by`
    that of clusters, and `groups` are the groups of each column asked for.
    """

    name: str
    source: str
    evaluation: Evaluation
    curve: RiskCoverageCurve
    cheapest: RiskCoverageCurve
    bins: ReliabilityBins | None
    histogram: Histogram
    classes: list[ClassSummary]
    class_names: list[str] | None
    mistakes: list[Mistake]
    mean_probability: float | None = None
    intervals: dict[str, Interval | None] = field(default_factory=dict)
    no_intervals: dict[str, str] = field(default_factory=dict)
    num_resamples: int = 0
    differences_to: dict[int, Differences] = field(default_factory=dict)
    pairing: str = ""
    weighted_by: str = ""
    clustered_by: str = ""
    num_clusters: int = 0
    groups: "dict[str, Grouping]" = field(default_factory=dict)

    @property
    def differences(self) -> Differences:
        """Those to the first model; empty if there are none."""
        return self.differences_to.get(0, {})

    def class_name(self, label: int) -> str:
        return class_text(self.class_names, label)

    @property
    def confidence_is_share(self) -> bool:
        """Whether confidence is in [0, 1] and can be shown in per cent."""
        return bool(self.histogram.edges[0] == 0 and self.histogram.edges[-1] == 1)

    @property
    def overconfidence(self) -> float | None:
        """Mean confidence minus accuracy; None if the confidence is not a probability."""
        accuracy = self.evaluation.metrics["acc"]
        return None if self.mean_probability is None or accuracy is None else self.mean_probability - accuracy

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the evaluation, and intervals, differences to the first model and classes where there are any."""
        extra: dict[str, Any] = {
            "overconfidence": self.overconfidence,
            "read": self.source,
            "num_resamples": self.num_resamples,
        }
        if self.intervals:
            extra["intervals"] = limits_of(self.intervals)
            extra["no_interval"] = self.no_intervals
            extra["interval_methods"] = {key: limits.method for key, limits in self.intervals.items() if limits}
        if self.pairing:
            extra["pairing"] = self.pairing
        if self.differences:
            extra["difference_to_first"] = as_dicts(self.differences)
        if self.weighted_by:
            extra |= {"weighted_by": self.weighted_by, "no_intervals": NO_INTERVALS}
        if self.clustered_by:
            extra |= {"clustered_by": self.clustered_by, "num_clusters": self.num_clusters}
        if self.groups:
            extra["groups"] = {column: grouping.as_dict() for column, grouping in self.groups.items()}
            worst = {column: grouping.worst for column, grouping in self.groups.items()}
            extra["worst_group"] = {column: group and group.value for column, group in worst.items()}
        extra["classes"] = [{"name": self.class_name(one.label), **asdict(one)} for one in self.classes]
        return {"file": self.name, **self.evaluation.as_dict(), **extra}


def limits_of(intervals: Mapping[str, Interval | None]) -> dict[str, Any]:
    return {key: limits and [limits.low, limits.high] for key, limits in intervals.items()}


def as_dicts(differences: Differences) -> dict[str, Any]:
    return {key: gap and asdict(gap) for key, gap in differences.items()}


def analyse(
    name: str,
    samples: Samples,
    source: str = "",
    class_names: list[str] | None = None,
    key_of: Callable[[int], str | None] = lambda row: None,
    file_rows: NDArray[Any] | None = None,
) -> Analysis:
    """Everything except intervals and images. The samples must not be empty; `key_of` names a row.

    `file_rows` [n] are the rows of the file, if some of them were left out.
    """
    probability, weight = samples.probability, samples.weight
    ranking = ranked(samples.confidence, samples.correct, weight)
    mistakes = []
    for row in confident_mistakes(samples, NUM_MISTAKES):
        label = None if samples.label is None else int(samples.label[row])
        prediction = None if samples.prediction is None else int(samples.prediction[row])
        file_row = row if file_rows is None else int(file_rows[row])
        mistakes.append(Mistake(file_row, float(samples.confidence[row]), label, prediction, key_of(row)))
    bins = None if probability is None else reliability_bins(probability, samples.correct, sample_weight=weight)
    return Analysis(
        name=name,
        source=source,
        evaluation=evaluation_of(samples, ranking, bins),
        curve=thinned_curve(ranking),
        cheapest=cheapest_curve(ranking),
        bins=bins,
        histogram=histogram_of(samples),
        classes=class_summaries(samples),
        class_names=class_names,
        mistakes=mistakes,
        mean_probability=None if probability is None else mean_of(probability.astype(np.float64, copy=False), weight),
    )


def thinned_curve(ranking: AnyRanking, points: int = NUM_POINTS) -> RiskCoverageCurve:
    """About 1,000 points of the curve, each with all predictions that its threshold accepts, near-ties included."""
    curve = curve_of(ranking, points)
    if isinstance(ranking, Ranking) and not has_near_ties(curve, ranking):
        return curve
    every = curve_of(ranking)
    return replace(every.taken(every.last_accepted(curve.threshold)), threshold=curve.threshold)


def histogram_of(samples: Samples) -> Histogram:
    """Bins over [0, 1] for probabilities, over the range of the scores otherwise."""
    # Clipped, so that differences and sums of scores stay finite wherever they are drawn.
    scores = np.clip(samples.confidence.astype(np.float64), -1e300, 1e300)
    low, high = float(scores.min()), float(scores.max())
    # Scores that are equal, or differ by rounding only, still need bins of some width.
    widened = max(high - low, 1e-9 * max(abs(low), abs(high), 1))
    limits = (0.0, 1.0) if low >= 0 and high <= 1 else (low, max(high, low + widened))
    edges = np.linspace(*limits, NUM_BARS + 1)
    parts = []
    for chosen in (samples.correct, ~samples.correct):
        weights = None if samples.weight is None else samples.weight[chosen]
        parts.append(np.histogram(scores[chosen], NUM_BARS, limits, weights=weights)[0])
    return Histogram(edges, *parts)


def with_images(analysis: Analysis, images: Mapping[int, Image]) -> Analysis:
    """Add images of the mistakes, given by row."""
    return replace(analysis, mistakes=[replace(one, image=images.get(one.row)) for one in analysis.mistakes])

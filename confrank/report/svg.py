"""Charts as paths in a box of 1000 x 1000 that the page stretches; labels are HTML and keep their size."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from confrank.analysis import Histogram
from confrank.axes import SIZE, line, risk_axis_limit
from confrank.metrics import ReliabilityBins, RiskCoverageCurve


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    radius: float
    title: str


@dataclass(frozen=True)
class Bar:
    x: float
    y: float
    width: float
    height: float


def risk_limit(curves: Iterable[RiskCoverageCurve]) -> float:
    """The top of the risk axis: a little above the largest risk beyond the first 2% of coverage."""
    return risk_axis_limit(float(curve.risk[curve.coverage >= 0.02].max()) for curve in curves)


def curve_path(curve: RiskCoverageCurve, y_limit: float) -> str:
    return line(curve.coverage, np.minimum(curve.risk, 2 * y_limit), y_limit=y_limit)


def dot_radius(share: float) -> float:
    """The radius of a bin's dot: its area grows with the bin's share of the predictions."""
    return 7 + 34 * math.sqrt(share)


def reliability_dots(bins: ReliabilityBins) -> list[Dot]:
    """One dot per filled bin."""
    total = bins.size.sum()
    return [
        Dot(
            round(SIZE * float(bins.confidence[number]), 1),
            round(SIZE * (1 - float(bins.accuracy[number])), 1),
            round(dot_radius(bins.size[number] / total), 1),
            f"{int(bins.count[number]):,} predictions: confidence {bins.confidence[number]:.1%},"
            f" accuracy {bins.accuracy[number]:.1%}",
        )
        for number in np.flatnonzero(bins.size)
    ]


def reliability_path(bins: ReliabilityBins) -> str:
    filled = bins.size > 0
    return line(bins.confidence[filled], bins.accuracy[filled])


def mirrored_bars(histogram: Histogram) -> tuple[list[Bar], list[Bar], float]:
    """Bars for right predictions upwards and wrong ones downwards, as shares of their kind, and the largest share."""
    right, wrong = (counts / (counts.sum() or 1) for counts in (histogram.right, histogram.wrong))
    top = float(max(right.max(), wrong.max(), 1e-9))
    width, half = SIZE / len(right), SIZE / 2
    up = [Bar(width * k + 1, half - half * v / top, width - 2, half * v / top) for k, v in enumerate(right) if v]
    down = [Bar(width * k + 1, half, width - 2, half * v / top) for k, v in enumerate(wrong) if v]
    return up, down, top

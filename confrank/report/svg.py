"""Charts and axes as paths in a box of 1000 x 1000 that the page stretches; labels are HTML and keep their size."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from confrank.analysis import Histogram
from confrank.metrics import ReliabilityBins, RiskCoverageCurve

SIZE = 1000


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


@dataclass(frozen=True)
class Tick:
    """A label and its position, in per cent of the axis."""

    position: float
    text: str


def risk_limit(curves: Iterable[RiskCoverageCurve]) -> float:
    """The top of the risk axis: a little above the largest risk beyond the first 2% of coverage."""
    return risk_axis_limit(float(curve.risk[curve.coverage >= 0.02].max()) for curve in curves)


def risk_axis_limit(tops: Iterable[float]) -> float:
    """A little above the largest of some error rates, within what an axis can show; 10% if there are no errors."""
    top = max(tops)
    return min(1.0, max(1.1 * top, 1e-4)) if top else 0.1


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


def line(x: ArrayLike, y: ArrayLike, x_limit: float = 1.0, y_limit: float = 1.0) -> str:
    """An SVG path through the points, y upwards.

    >>> line([0, 0.5, 1], [0, 1, 0.25])
    'M0 1000L500 0L1000 750'
    """
    across = np.round(np.asarray(x) / x_limit * SIZE, 1)
    down = np.round(SIZE - np.asarray(y) / y_limit * SIZE, 1)
    return "M" + "L".join(f"{a:g} {b:g}" for a, b in zip(across, down, strict=True)) if len(across) else ""


def ticks(limit: float, low: float = 0.0, count: int = 5, percent: bool = True) -> list[Tick]:
    """Round values from `low` to `limit`.

    >>> [tick.text for tick in ticks(0.12)]
    ['0%', '2%', '4%', '6%', '8%', '10%', '12%']
    """
    rough = (limit - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * min((factor for factor in (1, 2, 5, 10)), key=lambda factor: abs(math.log(factor * power / rough)))
    values = np.arange(math.ceil(low / step - 1e-9), math.floor(limit / step + 1e-9) + 1) * step
    return [Tick(100 * (at - low) / (limit - low), _tick_text(at, step, percent)) for at in values.tolist()]


def _tick_text(value: float, step: float, percent: bool) -> str:
    shown, size = (100 * value, 100 * step) if percent else (value, step)
    digits = max(0, -math.floor(math.log10(size) + 1e-9))
    return f"{shown:.{digits}f}{'%' if percent else ''}"

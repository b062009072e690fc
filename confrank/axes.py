"""The axes of charts in a box of 1000 x 1000: paths, round values, and how far an axis of error rates goes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

SIZE = 1000


@dataclass(frozen=True)
class Tick:
    """A label and its position, in per cent of the axis."""

    position: float
    text: str


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


def risk_axis_limit(tops: Iterable[float]) -> float:
    """A little above the largest of some error rates, within what an axis can show; 10% if there are no errors."""
    top = max(tops)
    return min(1.0, max(1.1 * top, 1e-4)) if top else 0.1

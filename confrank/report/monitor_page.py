"""The page of a monitored policy: whether its guarantee holds, and charts over time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from confrank.decisions.betting import e_text
from confrank.decisions.drift import DriftTest
from confrank.decisions.monitor import Watch
from confrank.decisions.promises import Followed
from confrank.metrics.inputs import Flags, Floats, Ints
from confrank.report import svg
from confrank.report.colours import COLOURS
from confrank.report.monitoring import (
    RESTART,
    Times,
    answers_sentence,
    drift_sentences,
    level_sentences,
    row_name,
    subject,
    verdict_sentences,
)
from confrank.report.page import template
from confrank.report.verdict import percent

Limits = tuple[float, float]
LOG_10 = math.log(10)
MOST_CHARTED = 12  # guarantees in one chart; those nearest to an alarm
BUCKETS = 300  # parts of a long curve, each drawn by two points
LOWEST, ABOVE = -4.0, 2.0  # powers of ten shown below 1 and above the alarm


def monitor_page(
    followed: Followed,
    promises: Sequence[str],
    names: Sequence[str],
    times: Times = None,
    coverage: float | None = None,
) -> str:
    """The finished page; `names` are the policy and the file, `coverage` is the share accepted at calibration."""
    watches = sorted(followed.monitored.watches, key=_nearness, reverse=True)
    drift = followed.monitored.drift
    number = len(followed.order)
    return template("monitor.html").render(
        title="Does the guarantee still hold?",
        names=names,
        script=None,
        kind=_kind(followed),
        verdict=verdict_sentences(followed, times),
        promises=promises,
        answers=answers_sentence(followed, times),
        drift=drift_sentences(followed, times),
        notes=[*followed.remarks, *level_sentences(followed), RESTART],
        span=_span(followed, times),
        shares=_count_ticks(number),
        tests=[_row(watch, followed, times) for watch in watches],
        e_chart=_e_chart(watches[:MOST_CHARTED], number) if watches else None,
        rate_chart=_rate_chart(watches[:MOST_CHARTED], number) if watches else None,
        coverage_chart=_coverage_chart(followed, coverage),
        drift_chart=None if drift is None else _drift_chart(drift, number),
        left_out=max(0, len(watches) - MOST_CHARTED),
    )


def _kind(followed: Followed) -> str:
    holds, drift = followed.monitored.holds, followed.monitored.drift
    if holds is False:
        return "bad"
    untested = followed.seen or holds is None
    return "unsure" if untested or (drift and drift.alarm is not None) else "good"


def _nearness(watch: Watch) -> float:
    values = watch.test.log_e_value
    return float(values.max()) - math.log(watch.test.line) if len(values) else -math.inf


def _span(followed: Followed, times: Times) -> str:
    if times is None or not len(followed.order):
        return "answers, in the order of the file"
    first, last = (times[int(followed.order[position])] for position in (0, -1))
    return f"answers, in the order of time, from {first} to {last}"


def _count_ticks(number: int) -> list[svg.Tick]:
    """Round numbers of answers along the axis."""
    ticks = svg.ticks(max(number, 1), count=4, percent=False)
    return [svg.Tick(tick.position, f"{float(tick.text):,.0f}") for tick in ticks if "." not in tick.text]


def _row(watch: Watch, followed: Followed, times: Times) -> dict[str, Any]:
    test, noticed = watch.test, watch.alarm_row
    return {
        "subject": subject(watch),
        "limit": f"{100 * test.risk:.4g}%",
        "rate": "-" if not test.num_answers else percent(test.num_wrong / test.num_answers, 2),
        "counts": f"{test.num_wrong:,} of {test.num_answers:,}",
        "e_value": e_text(test.log_e_value, test.alarm),
        "line": f"{test.line:g}",
        "noticed": "" if noticed is None else row_name(noticed, followed, times),
    }


@dataclass(frozen=True)
class Series:
    """A curve: its name, the answers (counted from 0), the values at them, its dashed line, and where it alarms."""

    name: str
    rows: Ints
    values: Floats
    line: float | None
    alarm: int | None = None


def _chart(series: Sequence[Series], ticks: Sequence[svg.Tick], limits: Limits, number: int) -> dict[str, Any]:
    """Curves over `number` answers, within limits of the vertical axis, and dashed lines across.

    A series without values has no curve, but keeps its colour, which it shares with the other chart.
    """
    drawn = {k % len(COLOURS): one for k, one in enumerate(series) if len(one.values)}
    low, high = limits
    return {
        "leaves": any(one.values.max() > high or one.values.min() < low for one in drawn.values()),
        "ticks": ticks,
        "lines": _lines(drawn, limits),
        "curves": [_curve(one, limits, number, colour) for colour, one in drawn.items()],
        "without": [one.name for one in series if not len(one.values)],
    }


def _lines(drawn: Mapping[int, Series], limits: Limits) -> list[dict[str, Any]]:
    """The dashed lines: each in the colour of its curve if lines differ, and without colour if curves share it."""
    low, high = limits
    colours: dict[float, list[int]] = {}
    for colour, one in drawn.items():
        if one.line is not None:
            colours.setdefault(one.line, []).append(colour)
    return [
        {
            "height": round(svg.SIZE * (1 - (line - low) / (high - low)), 1),
            "colour": shared[0] if len(shared) == 1 and len(colours) > 1 else None,
        }
        for line, shared in sorted(colours.items())
    ]


def _curve(one: Series, limits: Limits, number: int, colour: int) -> dict[str, Any]:
    low, high = limits
    span, kept = high - low, _thinned(one.values)
    # Beyond the axis, a curve leaves the chart instead of following its edge.
    height = np.clip(one.values - low, -span, 2 * span)
    path = svg.line(one.rows[kept] + 1, height[kept], max(number, 1), span)
    dot = None
    if one.alarm is not None:
        above = min(1.0, float(height[one.alarm]) / span)
        dot = (100 * float(one.rows[one.alarm] + 1) / number, 100 * above)
    return {"name": one.name, "colour": colour, "path": path, "dot": dot}


def _thinned(values: Floats) -> Ints:
    """Positions that show the shape of a long curve: the lowest and the highest of each part of it."""
    if len(values) <= 2 * BUCKETS:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), BUCKETS + 1).astype(np.int64).tolist()
    ends = [low + end(values[low:high]) for low, high in pairwise(edges) for end in (np.argmin, np.argmax)]
    return np.unique([0, *ends, len(values) - 1])


def _e_chart(watches: Sequence[Watch], number: int) -> dict[str, Any]:
    """E-values on a scale of powers of ten, with the line of the alarm."""
    series = []
    for watch in watches:
        test = watch.test
        line = math.log10(test.line)
        series.append(Series(subject(watch), watch.rows, test.log_e_value / LOG_10, line, test.alarm))
    return _powers_chart(series, number)


def _drift_chart(drift: DriftTest, number: int) -> dict[str, Any]:
    values = drift.log_e_value / LOG_10
    return _powers_chart(
        [Series("drift", np.arange(len(values)), values, math.log10(drift.line), drift.alarm)], number
    )


def _powers_chart(series: Sequence[Series], number: int) -> dict[str, Any]:
    highest = max(one.line for one in series if one.line is not None)
    low, high = limits = _power_limits([one.values for one in series], highest)
    shown = range(math.ceil(low), math.floor(high) + 1)
    ticks = [svg.Tick(100 * (power - low) / (high - low), f"{10.0**power:,g}") for power in shown]
    return _chart(series, ticks, limits, number)


def _power_limits(curves: Sequence[Floats], line: float) -> Limits:
    """The powers of ten at the ends of the axis."""
    ends = [float(end) for curve in curves if len(curve) for end in (curve.min(), curve.max())]
    low = max(LOWEST, min(ends, default=0.0))
    return min(-1.0, math.floor(low)), min(line + ABOVE, max([line + 0.5, *ends]))


def _rate_chart(watches: Sequence[Watch], number: int) -> dict[str, Any]:
    """The share of bad answers among the last ones, with the guaranteed limits."""
    window = _window(max(watch.test.num_answers for watch in watches))
    series = []
    for watch in watches:
        rate = _recent(watch.test.wrong, window)
        series.append(Series(subject(watch), watch.rows[len(watch.rows) - len(rate) :], rate, watch.test.risk))
    promised = [watch.test.risk for watch in watches]
    high = svg.risk_axis_limit([*promised, *(float(one.values.max()) for one in series if len(one.values))])
    return {**_chart(series, svg.ticks(high), (0.0, high), number), "window": window}


def _coverage_chart(followed: Followed, coverage: float | None) -> dict[str, Any] | None:
    """The share of the last answers that is accepted, and the share accepted at calibration."""
    if followed.accepted is None or not len(followed.accepted):
        return None
    number = len(followed.accepted)
    window = _window(number)
    share = _recent(followed.accepted, window)
    series = Series("coverage", np.arange(number - len(share), number), share, coverage)
    return {**_chart([series], svg.ticks(1.0), (0.0, 1.0), number), "window": window}


def _window(number: int) -> int:
    """How many answers a running share covers: a tenth of all, between 50 (or half of fewer than 100) and 1,000."""
    return int(np.clip(number // 10, min(50, max(number // 2, 1)), 1000))


def _recent(flags: Flags, window: int) -> Floats:
    """The share of flags among the last `window`, from the first full window on.

    >>> _recent(np.array([True, False, False, True]), 2).tolist()
    [0.5, 0.0, 0.5]
    """
    total = np.concatenate([[0], np.cumsum(flags)])
    shares: Floats = (total[window:] - total[:-window]) / window
    return shares

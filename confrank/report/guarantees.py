"""Thresholds per group, conformal sets and selections in words."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from confrank.decisions import ConformalSets, GroupThreshold, GroupThresholds, OperatingPoint, Selection
from confrank.errors import counted, named
from confrank.metrics.inputs import Flags
from confrank.report.names import shortened
from confrank.report.verdict import percent

WIDEST, MOST_LINES = 40, 60


def group_threshold_lines(
    result: GroupThresholds, of: str, checks: Mapping[str, OperatingPoint] | None = None
) -> list[str]:
    """A table of the groups: rows, threshold, coverage, error rate, and what the thresholds do to other rows.

    `of` says what the groups are.
    """
    header = [of, "rows", "threshold", "coverage", "error rate", *(["error rate of other rows"] if checks else [])]
    rows = [[shortened(one.group, WIDEST), f"{one.num_samples:,}", *_cells(one.point)] for one in result.groups]
    if checks:
        rows = [[*row, _rate(checks.get(one.group))] for row, one in zip(rows, result.groups, strict=True)]
    shown = [header, *rows[:MOST_LINES]]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in shown]
    return [*lines, *_more(len(rows))]


def _more(number: int) -> list[str]:
    return [f"and {number - MOST_LINES:,} more"] if number > MOST_LINES else []


def _cells(point: OperatingPoint | None) -> list[str]:
    if point is None:
        return ["none", "0.00%", "nothing is accepted"]
    return [repr(point.threshold), f"{point.coverage:.2%}", _rate(point)]


def _rate(point: OperatingPoint | None) -> str:
    if point is None or point.risk is None:
        return "nothing is accepted"
    return f"{percent(point.risk, 2)} ({point.wrong:,} of {point.accepted:,})"


def group_shortage_lines(result: GroupThresholds, of: str) -> list[str]:
    """Which groups have no threshold, and how many rows they would need; `of` as for `group_threshold_lines`."""
    lacking = [one for one in result.groups if one.point is None]
    lines = []
    if more := [one for one in lacking if one.needed is not None]:
        whom = named([f"{shortened(one.group, WIDEST)} ({_needs(one)})" for one in more])
        lines.append(f"nothing is guaranteed, and no answer accepted, for {of} {whom}")
    if never := [shortened(one.group, WIDEST) for one in lacking if one.needed is None]:
        lines.append(
            f"nothing is guaranteed, and no answer accepted, for {of} {named(never)}: too many answers are wrong, so"
            " more rows like these would not suffice"
        )
    return lines


def _needs(one: GroupThreshold) -> str:
    return f"{counted(one.num_samples, 'row')}, at least about {one.needed:,} are needed"


def set_lines(rule: ConformalSets, of: str, class_names: Sequence[str] | None = None) -> list[str]:
    """The quantiles that decide which classes are in a set."""
    if rule.per == "all":
        rows = counted(rule.counts["all"], "row")
        finite = np.isfinite(rule.quantiles["all"])
        return [f"quantile    {_quantile(rule.quantiles['all'])}{f' of {rows}' if finite else f' ({rows})'}"]
    word = "class" if rule.per == "class" else of
    names = [class_names[int(name)] if class_names and rule.per == "class" else name for name in rule.quantiles]
    width = min(WIDEST, max(map(len, names)))
    lines = [f"quantile of each {word}:"]
    for name, quantile, count in zip(names, rule.quantiles.values(), rule.counts.values(), strict=True):
        lines.append(f"  {shortened(name, WIDEST):<{width}}  {_quantile(quantile):<9} of {counted(count, 'row')}")
    return [*lines[: 1 + MOST_LINES], *_more(len(names))]


def _quantile(value: float) -> str:
    return f"{value:.6g}" if np.isfinite(value) else "none"


def size_line(sets: Flags, of: str) -> str:
    """How large sets [n, K] are; `of` is what a row is called.

    >>> size_line(np.array([[True, False], [True, True], [False, False], [True, False]]), "new row")
    'sizes       1.00 classes on average in 4 new rows; 50.0% have one class, 25.0% none'
    """
    sizes = sets.sum(axis=1)
    one, none = float((sizes == 1).mean()), float((sizes == 0).mean())
    empty = f", {percent(none)} none" if none else ""
    single = f"{percent(one)} have one class{empty}"
    return f"sizes       {sizes.mean():.2f} classes on average in {counted(len(sets), of)}; {single}"


def selection_lines(selection: Selection) -> list[str]:
    """How many new rows are selected, and what they were compared with."""
    share = f" ({percent(selection.num_selected / len(selection.selected))})" if len(selection.selected) else ""
    rows = counted(selection.num_calibration, "calibration row")
    return [
        f"selected    {selection.num_selected:,} of {counted(len(selection.selected), 'new row')}{share}",
        f"compared    with {rows}, {len(selection.wrong):,} of them wrong",
    ]


def set_sizes(sets: Flags) -> dict[str, Any]:
    """How large sets [n, K] are, for JSON."""
    sizes = sets.sum(axis=1)
    shares = {"empty": float((sizes == 0).mean()), "single": float((sizes == 1).mean())}
    return {"n": len(sets), "mean_size": float(sizes.mean()), **shares}

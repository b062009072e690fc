"""Groups of predictions: tables for the terminal, sentences, and small charts for the page."""

from typing import Any

from rich.text import Text

from confrank.analysis import Analysis, Group, Grouping
from confrank.errors import counted, named
from confrank.metrics import RiskCoverageCurve
from confrank.report import svg
from confrank.report.names import shortened
from confrank.report.scales import GROUP_METRICS, SHOWN, metric_cell, shown
from confrank.report.table import NumbersTable
from confrank.report.verdict import percent

# What a terminal and the page show; the JSON output has all groups.
MOST_PRINTED, MOST_CHARTS = 30, 24


def group_table(grouping: Grouping, model: str = "") -> NumbersTable:
    """Every metric of each group with its interval below, the worst groups first."""
    headings = [
        grouping.column,
        "n",
        "coverage",
        "error rate among accepted",
        *(SHOWN[key].heading for key in GROUP_METRICS),
    ]
    rows: list[list[str | Text]] = [
        [
            Text(group.value),
            f"{group.evaluation.num_samples:,}",
            *_accepted(group),
            *(_cell(group, key) for key in GROUP_METRICS),
        ]
        for group in grouping.by_risk[:MOST_PRINTED]
    ]
    return NumbersTable(headings, rows, f"by {grouping.column}" + (f" of {model}" if model else ""))


def _accepted(group: Group) -> list[str]:
    point = group.acceptance
    if point.risk is None:
        return [percent(point.coverage), "none accepted"]
    limits = group.risk_interval
    below = "" if limits is None else f"\n({100 * limits[0]:.2f}, {100 * limits[1]:.2f})"
    small = "\ntoo small to say" if group.too_small else ""
    return [percent(point.coverage), f"{percent(point.risk, 2)}{below}{small}"]


def risk_text(group: Group) -> str:
    """The error rate among accepted, and whether the group is too small to say."""
    risk = group.acceptance.risk
    if risk is None:
        return "none accepted"
    return percent(risk, 2) + (", too small to say" if group.too_small else "")


def _cell(group: Group, key: str) -> str:
    limits, digits = group.intervals.get(key), 1 if SHOWN[key].factor == 1000 else 2
    below = "" if limits is None else f"\n({shown(key, limits.low, digits)}, {shown(key, limits.high, digits)})"
    return shown(key, group.evaluation.metrics[key]) + below


def group_lines(grouping: Grouping) -> list[str]:
    """What the table means: the worst group, the groups that are too small to say, and how many are not shown."""
    lines = verdict_sentences(grouping)
    if (hidden := len(grouping.groups) - MOST_PRINTED) > 0:
        lines.append(f"{counted(hidden, 'more group')} of lower error rate not shown; the JSON output has all.")
    return lines


def threshold_sentence(grouping: Grouping) -> str:
    overall = grouping.overall
    assert overall.risk is not None, "the threshold accepts something"
    return (
        f"Coverage and error rate are those of one threshold for all groups, {overall.threshold:.6g}: it accepts"
        f" {percent(overall.coverage)} of all predictions, of which {percent(overall.risk, 2)} are wrong."
    )


def verdict_sentences(grouping: Grouping) -> list[str]:
    """The worst group, whether that is beyond chance, and the groups that are too small to say."""
    small = [shortened(group.value) for group in grouping.groups if group.too_small]
    sentences = [_worst_sentence(grouping)]
    if small and len(grouping.groups) > 1:
        sentences.append(
            f"Too small to say: {named(small)}. The 95% interval of their error rate among accepted includes that of"
            " all, and is wider than it."
        )
    return sentences


def _worst_sentence(grouping: Grouping) -> str:
    worst, risk = grouping.worst, grouping.overall.risk or 0.0
    column = shortened(grouping.column)
    if worst is None:
        if len(grouping.groups) == 1:
            return f"All predictions have the same {column}, {shortened(grouping.groups[0].value)}."
        if not grouping.overall.wrong:
            return f"By {column}: no accepted prediction is wrong in any group."
        return f"By {column}: no group is large enough to say which is worst."
    assert worst.acceptance.risk is not None
    limits = worst.risk_interval
    interval = "" if limits is None else f" (95% interval {percent(limits[0], 2)} to {percent(limits[1], 2)})"
    sentence = (
        f"By {column}, {shortened(worst.value)} is worst: {percent(worst.acceptance.risk, 2)} of its accepted"
        f" predictions are wrong{interval}, against {percent(risk, 2)} of all."
    )
    if grouping.is_clear(worst):
        return sentence
    return sentence + f" Among {counted(len(grouping.groups), 'group')}, this may be chance."


def groups_section(model: Analysis) -> list[dict[str, Any]]:
    """For the page: by column, sentences, small charts of the worst groups, and a row for each group."""
    return [_section(grouping, model.curve) for grouping in model.groups.values()]


def _section(grouping: Grouping, overall: RiskCoverageCurve) -> dict[str, Any]:
    ordered, order = grouping.by_risk, {group.value: number for number, group in enumerate(grouping.groups)}
    charts = [group for group in ordered if group.evaluation.num_samples > 1][:MOST_CHARTS]
    limit = svg.risk_limit([overall, *(group.curve for group in charts if not group.too_small)])
    return {
        "column": grouping.column,
        "sentences": verdict_sentences(grouping),
        "threshold": threshold_sentence(grouping),
        "charts": [_chart(group, grouping, limit) for group in charts],
        "overall": svg.curve_path(overall, limit),
        "num_groups": len(ordered),
        "risk_ticks": svg.ticks(limit, count=3),
        "rows": [_row(group, order[group.value]) for group in ordered],
    }


def _chart(group: Group, grouping: Grouping, limit: float) -> dict[str, Any]:
    point, risk = group.acceptance, group.acceptance.risk
    return {
        "value": group.value,
        "n": group.evaluation.num_samples,
        "path": svg.curve_path(group.curve, limit),
        "dot": None if risk is None else (100 * point.coverage, 100 * min(1.0, risk / limit)),
        "risk": risk_text(group),
        "label": (
            f"risk-coverage curve of {grouping.column} {shortened(group.value)}, {group.evaluation.num_samples:,}"
            f" predictions: at the common threshold, {percent(point.coverage)} accepted, error rate among them"
            f" {risk_text(group)}"
        ),
        "is_worst": group is grouping.worst,
        "is_clear": grouping.is_clear(group),
        "too_small": group.too_small,
    }


def _row(group: Group, order: int) -> dict[str, Any]:
    point, metrics, limits = group.acceptance, group.evaluation.metrics, group.risk_interval
    return {
        "value": group.value,
        "order": order,
        "n": group.evaluation.num_samples,
        "coverage": point.coverage,
        "coverage_text": percent(point.coverage),
        "risk": -1 if point.risk is None else point.risk,
        "risk_text": "-" if point.risk is None else percent(point.risk, 2),
        "risk_limits": None if limits is None else f"{100 * limits[0]:.2f} to {100 * limits[1]:.2f}",
        "too_small": group.too_small,
        "cells": [
            {"sort": -1 if metrics[key] is None else metrics[key]}
            | metric_cell(key, group.evaluation, group.intervals)
            for key in GROUP_METRICS
        ],
    }

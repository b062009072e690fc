"""Confidence scores compared: a table for the terminal, the choice in words, and numbers for a file."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.text import Text

from confrank.analysis.model import limits_of
from confrank.errors import counted
from confrank.metrics import Samples, aurc
from confrank.report.scales import SHOWN, metric_text, shown
from confrank.report.table import NumbersTable
from confrank.scores import Choice
from confrank.scores.registry import STANDARD


def scores_table(choice: Choice) -> NumbersTable:
    """One row per score, in order of AURC."""
    keys, judged = ("aurc", "auroc", "fpr95"), choice.judged
    rows = []
    for name in sorted(judged.metrics, key=lambda name: judged.metrics[name]["aurc"] or 0):
        heading = f"{name}{parameter_text(choice.fitted[name])}{' *' if name == choice.name else ''}"
        cells = [metric_text(key, judged.metrics[name], judged.intervals.get(name, {})) for key in keys]
        rows.append([Text(cell, "bold" if name == choice.name else "") for cell in (heading, *cells)])
    title = f"scores, compared on {counted(len(judged.rows), 'row')} that had no part in the choice"
    caption = "lower is better, except for AUROC; * is the chosen score"
    return NumbersTable(["score", *(SHOWN[key].heading for key in keys)], rows, title, caption)


def parameter_text(parameters: Mapping[str, Any]) -> str:
    """The fitted parameters in brackets; a matrix is not shown.

    >>> parameter_text({"temperature": 0.7}), parameter_text({"p": None}), parameter_text({"matrix": [[0.0]]})
    (' (temperature 0.7)', ' (max-probability)', '')
    """
    parts = [
        "max-probability" if value is None else f"{key} {value:g}"
        for key, value in parameters.items()
        if value is None or isinstance(value, int | float)
    ]
    return f" ({', '.join(parts)})" if parts else ""


def choice_lines(choice: Choice) -> list[str]:
    """Which score was chosen and why, and on which rows."""
    gap, candidate, judged = choice.judged.difference, choice.candidate, counted(len(choice.judged.rows), "row")
    rows = f"chosen and fitted on {counted(len(choice.rows), 'row')}, judged on {judged} that had no part in it"
    used = f"on the {counted(len(choice.rows), 'row')} used to choose"
    if gap is None or candidate is None:
        why = f"no other score had a lower AURC {used}"
        return [f"use {STANDARD}: {why}", rows]
    factor, heading = SHOWN["aurc"].factor, SHOWN["aurc"].heading
    limits = f"{gap.value * factor:+.3f}, 95% interval {gap.low * factor:+.3f} to {gap.high * factor:+.3f}"
    difference = f"{heading} of {candidate} minus that of {STANDARD}: {limits}"
    if choice.name == candidate:
        named = f"{candidate}{parameter_text(choice.parameters)}"
        return [f"use {named}: it ranks better than {STANDARD}, beyond its paired interval", difference, rows]
    why = f"{candidate} was the best candidate {used}, but it is not better beyond its paired interval"
    return [f"use {STANDARD}: {why}", difference, rows]


def given_line(samples: Samples) -> str:
    """How the confidence in the file ranks the rows that judge, for comparison."""
    area = shown("aurc", aurc(samples.confidence, samples.correct), 3)
    return f"the confidence in the file, which is no score of the table, has an {SHOWN['aurc'].heading} of {area}"


def refusal_lines(choice: Choice) -> list[str]:
    """Why a score is not in the table, one line each."""
    return [f"without {name}: {reason}" for name, reason in choice.refused.items()]


def choice_as_dict(choice: Choice) -> dict[str, Any]:
    """All numbers as plain values; of a fitted matrix only that of the chosen score."""
    judged = choice.judged
    scores = {
        name: {
            "parameters": {key: value for key, value in choice.fitted[name].items() if not isinstance(value, list)},
            "metrics": metrics,
            "intervals": limits_of(judged.intervals.get(name, {})),
        }
        for name, metrics in judged.metrics.items()
    }
    return {
        "name": choice.name,
        "parameters": choice.parameters,
        "candidate": choice.candidate,
        "difference": judged.difference and asdict(judged.difference),
        "num_chosen_on": len(choice.rows),
        "num_judged_on": len(judged.rows),
        "num_resamples": judged.num_resamples,
        "scores": scores,
        "refused": choice.refused,
    }

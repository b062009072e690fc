"""Active learning as a figure and as tables: accuracy over the number of labels, with one-std bands."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from confrank.analysis.repeats import Summary, summarise
from confrank.report.colours import colours_of
from confrank.report.paper_table import markdown_table
from confrank.report.plots import draw_mean, escaped, legend_below, legend_text, save_figure, tidy
from confrank.report.scales import SHOWN, with_spread
from confrank.report.table import NumbersTable

Trials = Sequence[Sequence[float]]
ACCURACY = SHOWN["acc"]


def active_figure(
    labelled: Sequence[int],
    curves: Mapping[str, Trials],
    path: str | Path,
    title: str = "",
    paper: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Draw `curves`, a strategy's values as [trials][stages]: a line for the mean, a band of one standard deviation.

    `paper` has the paper's means by strategy, drawn as dashed lines.
    """
    figure = Figure(figsize=(7.5, 4.4), layout="constrained")
    axes = figure.subplots()
    for colour, (name, trials) in zip(colours_of([*curves]), curves.items(), strict=True):
        style: dict[str, Any] = {"marker": "o", "markersize": 3.5, "label": legend_text(name)}
        draw_mean(axes, labelled, ACCURACY.factor * np.array(trials), colour, alpha=0.12, **style)
        if paper and name in paper:
            means = ACCURACY.factor * np.array(paper[name][: len(labelled)])
            axes.plot(labelled[: len(means)], means, color=colour, linestyle="--", linewidth=1)
    axes.set(xlabel="labelled samples", ylabel=f"test {ACCURACY.heading}", xticks=labelled)
    if paper:
        axes.plot([], [], color="grey", linestyle="--", linewidth=1, label="the paper's mean")
    tidy(axes)
    legend_below(figure, axes.get_legend_handles_labels()[0])
    axes.set_title(escaped(title))
    save_figure(figure, path)


def stage_summaries(trials: Trials) -> list[Summary]:
    """Mean and standard deviation of each stage over the trials.

    >>> stage_summaries([[0.5, 0.75], [0.75, 0.75]])[1]
    Summary(mean=0.75, std=0.0, n=2)
    """
    return [summarise(values) for values in zip(*trials, strict=True)]


def active_rows(labelled: Sequence[int], curves: Mapping[str, Trials]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: one row per strategy, one column per stage, mean±std over the trials."""
    header = ["strategy", "trials", *(f"{count:,} labels" for count in labelled)]
    rows = []
    for name, trials in curves.items():
        shown = (with_spread(stage.mean, stage.std, ACCURACY.factor) for stage in stage_summaries(trials))
        rows.append([name, str(len(trials)), *shown])
    return header, rows


def active_table(labelled: Sequence[int], curves: Mapping[str, Trials]) -> NumbersTable:
    """`active_rows` for the terminal."""
    return NumbersTable(*active_rows(labelled, curves), title=f"test {ACCURACY.heading}")


def active_markdown(labelled: Sequence[int], curves: Mapping[str, Trials]) -> str:
    """`active_rows` for a document."""
    return markdown_table(*active_rows(labelled, curves))

"""Out-of-distribution detectors as figures: ROC curves and score histograms, one of each per out-set."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from confrank.analysis import Histogram
from confrank.metrics.ranking_metrics import auroc_of
from confrank.metrics.separation import rank_sets, roc_curve
from confrank.ood.results import Groups, Scores, pairs_by_detector
from confrank.report.colours import COLOURS, colours_of
from confrank.report.names import shortened
from confrank.report.plots import draw_mean, escaped, legend_below, legend_text, save_figure, tidy
from confrank.report.scales import shown

# A common axis for the ROC curves of several runs.
GRID = np.linspace(0, 1, 401)
NUM_BARS = 40
# A detector's scores (inside, outside) in each run.
Runs = Sequence[tuple[Scores, Scores]]


def detection_figures(groups: Groups, folder: str | Path) -> list[Path]:
    """For each out-set, roc-NAME and scores-NAME as PNG and SVG."""
    paths, names = [], list[str]()
    for group, results in groups.items():
        name, pairs = file_name("-".join(group)), pairs_by_detector(results)
        names.append(name)  # out-sets a/b and a-b have one name
        name += f"-{names.count(name)}" if names.count(name) > 1 else ""
        for kind, figure in (("roc", _roc_figure(pairs)), ("scores", _histogram_figure(pairs))):
            title = f"{group.dataset}, {group.model}, {group.method}: out-set {shortened(group.out_set, 40)}"
            figure.suptitle(escaped(title), fontsize="medium", wrap=True)
            for suffix in ("png", "svg"):
                paths.append(Path(folder) / f"{kind}-{name}.{suffix}")
                save_figure(figure, paths[-1])
    return paths


def file_name(text: str) -> str:
    """
    >>> file_name("my/holiday pictures/")
    'my-holiday-pictures'
    """
    return re.sub(r"[^\w.]+", "-", text).strip("-.") or "set"


def _roc_figure(detectors: Mapping[str, Runs]) -> Figure:
    figure = Figure(figsize=(5, 4.2), layout="constrained")
    axes = figure.subplots()
    for colour, (name, runs) in zip(colours_of([*detectors]), detectors.items(), strict=True):
        curves = [roc_curve(*run, limit=4000) for run in runs]
        heights = np.array([np.interp(GRID, curve.fpr, curve.tpr) for curve in curves])
        areas = [area for run in runs if (area := auroc_of(rank_sets(*run))) is not None]
        label = f"{legend_text(name)} (AUROC {shown('auroc', float(np.mean(areas)), 1)}%)"
        draw_mean(axes, GRID, heights, colour, label=label)
    axes.axhline(0.95, color="0.6", linewidth=1, linestyle="--")
    axes.set(xlabel="out-of-distribution images accepted (FPR)", ylabel="in-distribution images accepted (TPR)")
    axes.set(xlim=(0, 1), ylim=(0, 1.005))
    tidy(axes)
    legend_below(figure, axes.get_legend_handles_labels()[0])
    return figure


def _histogram_figure(detectors: Mapping[str, Runs]) -> Figure:
    """One panel per detector, for the first run only: scores of different runs have no common scale."""
    columns = 2 if len(detectors) in (2, 4) else min(3, len(detectors))
    rows = -(-len(detectors) // columns)
    figure = Figure(figsize=(3.6 * columns, 2.6 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (name, runs) in zip(panels, detectors.items(), strict=False):
        _draw_histogram(axes, score_histogram(*runs[0]))
        axes.set_title(escaped(name))
    for axes in panels[len(detectors) :]:
        axes.set_visible(False)
    legend_below(figure, panels[0].get_legend_handles_labels()[0])
    return figure


def score_histogram(inside: Scores, outside: Scores) -> Histogram:
    """Numbers of scores in equal-width bins, inside as `right` and outside as `wrong`.

    Distances have long tails, so the outermost bins also count the 0.05% of scores beyond each end.
    """
    low, high = np.quantile(np.concatenate([inside, outside]), [0.0005, 0.9995])
    edges = np.linspace(low, high if high > low else low + 1, NUM_BARS + 1)
    counts = [np.histogram(np.clip(scores, edges[0], edges[-1]), edges)[0] for scores in (inside, outside)]
    return Histogram(edges, *counts)


def _draw_histogram(axes: Axes, histogram: Histogram) -> None:
    sides = (histogram.right, COLOURS[0], "in-distribution"), (histogram.wrong, COLOURS[1], "out-of-distribution")
    for counts, colour, label in sides:
        share = counts / max(1, counts.sum())
        axes.stairs(share, histogram.edges, color=colour, fill=True, alpha=0.5, label=label)
    axes.set(xlabel="score", ylabel="share of images")
    # Scores may need many digits, so few ticks keep the labels apart.
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.ticklabel_format(axis="x", useMathText=True)
    axes.spines[["top", "right"]].set_visible(False)

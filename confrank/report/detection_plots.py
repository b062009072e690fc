"""How well detectors tell foreign images: ROC curves and score histograms, one picture of each per out-set."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from confrank.metrics.detection import rank_sets, roc_curve
from confrank.metrics.ranking import auroc_of
from confrank.report.plots import COLOURS, escaped, save_figure

GRID = np.linspace(0, 1, 401)
BINS = 40
# A detector's scores (inside, outside) in each run.
Runs = Sequence[tuple[NDArray[Any], NDArray[Any]]]


def detection_figures(scores: Mapping[str, Mapping[str, Mapping[str, Runs]]], folder: Path) -> list[Path]:
    """`scores` by method, out-set and detector -> roc-METHOD-OUT and scores-METHOD-OUT, as PNG and SVG."""
    paths = []
    for method, out_sets in scores.items():
        for out_set, detectors in out_sets.items():
            title = f"{method}, out-set {shortened(out_set)}"
            for kind, figure in (("roc", _roc_figure(detectors)), ("scores", _histogram_figure(detectors))):
                figure.suptitle(escaped(title))
                for suffix in ("png", "svg"):
                    paths.append(folder / f"{kind}-{file_name(method)}-{file_name(out_set)}.{suffix}")
                    save_figure(figure, paths[-1])
    return paths


def file_name(text: str) -> str:
    """
    >>> file_name("my/own pictures/")
    'my-own-pictures'
    """
    return re.sub(r"[^\w.]+", "-", text).strip("-.") or "set"


def shortened(text: str, limit: int = 40) -> str:
    """The end of a long path says more than its beginning."""
    return text if len(text) <= limit else f"…{text[-limit + 1 :]}"


def _roc_figure(detectors: Mapping[str, Runs]) -> Figure:
    figure = Figure(figsize=(5, 4.6), layout="constrained")
    axes = figure.subplots()
    for colour, (name, runs) in zip(COLOURS, detectors.items(), strict=False):
        _draw_roc(axes, name, runs, colour)
    axes.axhline(0.95, color="0.6", linewidth=1, linestyle="--")
    axes.set(xlabel="foreign images accepted (FPR)", ylabel="in-distribution images accepted (TPR)")
    axes.set(xlim=(0, 1), ylim=(0, 1.005))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return figure


def _draw_roc(axes: Axes, name: str, runs: Runs, colour: str) -> None:
    """The mean over runs at each FPR, a band of one standard deviation, and the mean AUROC."""
    curves = [roc_curve(*run, limit=4000) for run in runs]
    heights = np.array([np.interp(GRID, curve.fpr, curve.tpr) for curve in curves])
    area = np.mean([value for run in runs if (value := auroc_of(rank_sets(*run))) is not None])
    mean = heights.mean(axis=0)
    axes.plot(GRID, mean, color=colour, label=escaped(f"{name} (AUROC {100 * area:.1f}%)"))
    if len(runs) > 1:
        spread = heights.std(axis=0, ddof=1)
        axes.fill_between(GRID, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)


def _histogram_figure(detectors: Mapping[str, Runs]) -> Figure:
    """A panel per detector, of the first run: scores of different runs have no common scale."""
    columns = min(3, len(detectors))
    rows = -(-len(detectors) // columns)
    figure = Figure(figsize=(3.6 * columns, 2.6 * rows + 0.4), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (name, runs) in zip(panels, detectors.items(), strict=False):
        _draw_histogram(axes, *runs[0])
        axes.set_title(escaped(name))
    for axes in panels[len(detectors) :]:
        axes.set_visible(False)
    panels[0].legend(frameon=False)
    return figure


def _draw_histogram(axes: Axes, inside: NDArray[Any], outside: NDArray[Any]) -> None:
    both = np.concatenate([inside, outside])
    # Distances have long tails: a twentieth of a percent at each end falls into the outermost bins.
    low, high = np.quantile(both, [0.0005, 0.9995])
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    for scores, colour, label in ((inside, COLOURS[0], "inside"), (outside, COLOURS[1], "outside")):
        counts, _ = np.histogram(np.clip(scores, edges[0], edges[-1]), edges)
        axes.stairs(counts / max(1, len(scores)), edges, color=colour, fill=True, alpha=0.5, label=label)
    axes.set(xlabel="score", ylabel="share of images")
    axes.spines[["top", "right"]].set_visible(False)

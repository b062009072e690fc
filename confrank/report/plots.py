"""Curves, reliability diagrams and histograms as figures."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from confrank.analysis import Analysis
from confrank.analysis.repeats import GRID, risks_on_grid
from confrank.files import write_atomically
from confrank.metrics import ReliabilityBins, Samples, aurc, reliability_bins
from confrank.metrics.inputs import Floats
from confrank.report.colours import colours_of
from confrank.report.names import chart_paths, shortened, with_short_names
from confrank.report.scales import SHOWN, shown
from confrank.report.svg import dot_radius, risk_limit

# Columns and font sizes of a legend, the preferred ones first.
LEGENDS = ((4, 10), (3, 10), (2, 10), (2, 8), (1, 10), (1, 8), (1, 6), (1, 4))
DOT_SCALE = 0.4  # points of diameter for a unit of the page's radius


def comparison_figure(samples: Mapping[str, Sequence[Samples]], path: str | Path, title: str = "") -> None:
    """Risk-coverage curves (left) and a reliability diagram (right), in the format of the path's suffix.

    `samples` maps a name to one or more runs: a line for their mean, a band of one standard deviation.
    """
    figure = Figure(figsize=(10, 4.1), layout="constrained")
    left, right = figure.subplots(1, 2)
    for colour, (name, runs) in zip(colours_of([*samples]), samples.items(), strict=True):
        _risk_coverage(left, name, runs, colour)
        _reliability(right, name, runs, colour)
    left.set(xlabel="coverage (share of predictions accepted)", ylabel="error rate among accepted", xlim=(0, 1))
    _set_risks(left, left.get_ylim()[1])
    diagonal = right.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--", label="calibrated")
    right.set(xlabel="probability of the answer", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    _explain_no_bins(right)
    for axes in (left, right):
        tidy(axes)
    legend_below(figure, [*left.get_lines(), *diagonal])
    left.set_title("risk-coverage curve", pad=10)
    right.set_title("reliability diagram (15 bins)", pad=10)
    figure.suptitle(escaped(title))
    save_figure(figure, path)


def _risk_coverage(axes: Axes, name: str, runs: Sequence[Samples], colour: str) -> None:
    risks, areas = risks_on_grid(runs), (aurc(run.confidence, run.correct, sample_weight=run.weight) for run in runs)
    area = float(np.mean([value for value in areas if value is not None]))
    label = f"{legend_text(name)} ({SHOWN['aurc'].heading} {shown('aurc', area, 1)})"
    draw_mean(axes, GRID, risks, colour, label=label)


def draw_mean(
    axes: Axes, x: Sequence[float] | Floats, values: Floats, colour: str, *, alpha: float = 0.15, **style: Any
) -> None:
    """A line for the mean of values [runs, n], and a band of one standard deviation if there are several runs."""
    mean = values.mean(axis=0)
    axes.plot(x, mean, color=colour, **style)
    if len(values) > 1:
        spread = values.std(axis=0, ddof=1)
        axes.fill_between(x, mean - spread, mean + spread, color=colour, alpha=alpha, linewidth=0)


def _reliability(axes: Axes, name: str, runs: Sequence[Samples], colour: str) -> None:
    """The reliability of the probabilities, whatever the runs rank by; nothing without probabilities."""
    probabilities = [run.probability for run in runs if run.probability is not None]
    if len(probabilities) < len(runs):
        return
    correct = np.concatenate([run.correct for run in runs])
    weights = [run.weight / run.weight.mean() for run in runs if run.weight is not None]
    weight = np.concatenate(weights) if weights else None
    bins = reliability_bins(np.concatenate(probabilities), correct, sample_weight=weight)
    _draw_bins(axes, bins, name, colour)


def _draw_bins(axes: Axes, bins: ReliabilityBins, name: str, colour: str) -> None:
    """A thin line through the filled bins, and a dot for each whose area grows with its share of the predictions."""
    filled, size = bins.size > 0, bins.size
    line = bins.confidence[filled], bins.accuracy[filled]
    axes.plot(*line, color=colour, linewidth=1, clip_on=False, label=legend_text(name))
    sizes = [(DOT_SCALE * dot_radius(part / size.sum())) ** 2 for part in size[filled]]
    axes.scatter(*line, s=sizes, color=colour, alpha=0.6, clip_on=False, zorder=3)


def _explain_no_bins(axes: Axes) -> None:
    """Words in the middle of a reliability diagram that has no dots."""
    if not axes.collections:
        style = {"facecolor": "white", "edgecolor": "none"}
        axes.text(0.5, 0.5, "no probabilities in this file", color="0.35", ha="center", va="center", bbox=style)


def _set_risks(axes: Axes, limit: float) -> None:
    """The vertical axis up to a limit and from a little below zero, so that a curve without errors is visible."""
    axes.set_ylim(-0.02 * limit, limit)
    axes.ticklabel_format(axis="y", useMathText=True)


def legend_below(figure: Figure, handles: Sequence[Artist]) -> None:
    """One legend below all panels, in the first layout that fits; the figure grows by its height."""
    for columns, size in LEGENDS:
        for previous in list(figure.legends):
            previous.remove()
        legend = figure.legend(
            handles=handles, loc="outside lower center", ncols=columns, fontsize=size, frameon=False
        )
        extent = legend.get_window_extent()
        if extent.width < figure.bbox.width:
            break
    figure.set_figheight(figure.get_figheight() + extent.height / figure.dpi)


def tidy(axes: Axes) -> None:
    """A faint grid, and no frame at the top and right."""
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def save_figure(figure: Figure, path: str | Path, dpi: int = 150) -> None:
    """Write a figure in the format of the path's suffix, creating folders as needed."""
    content = io.BytesIO()
    figure.savefig(content, format=Path(path).suffix[1:], dpi=dpi)
    write_atomically(Path(path), content.getvalue())


def paper_figures(models: Sequence[Analysis], folder: str | Path) -> list[Path]:
    """Risk-coverage curve, reliability diagram and histograms, each as PNG and SVG."""
    drawings: dict[str, Callable[[Axes, Sequence[Analysis]], None]] = {
        "risk_coverage": _draw_curves,
        "reliability": _draw_reliability,
        "confidence": _draw_histograms,
    }
    named, paths = with_short_names(models), chart_paths(folder)
    for name, draw in drawings.items():
        figure = Figure(figsize=(5, 3.8), layout="constrained")
        axes = figure.subplots()
        draw(axes, named)
        tidy(axes)
        if handles := axes.get_legend_handles_labels()[0]:
            legend_below(figure, handles)
        for path in paths:
            if path.stem == name:
                save_figure(figure, path, dpi=200)
    return paths


def _draw_curves(axes: Axes, models: Sequence[Analysis]) -> None:
    for model, colour in _coloured(models):
        axes.plot(model.curve.coverage, model.curve.risk, color=colour, label=legend_text(model.name))
    axes.set(xlabel="coverage", ylabel="error rate among accepted", xlim=(0, 1))
    _set_risks(axes, risk_limit(model.curve for model in models))


def _draw_reliability(axes: Axes, models: Sequence[Analysis]) -> None:
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--")
    for model, colour in _coloured(models):
        if model.bins is not None:
            _draw_bins(axes, model.bins, model.name, colour)
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    _explain_no_bins(axes)


def _draw_histograms(axes: Axes, models: Sequence[Analysis]) -> None:
    for model, colour in _coloured(models):
        for counts, style in ((model.histogram.right, "-"), (model.histogram.wrong, "--")):
            share = counts / (counts.sum() or 1)
            axes.stairs(share, model.histogram.edges, color=colour, linestyle=style)
        axes.plot([], [], color=colour, label=legend_text(model.name))
    for kind, style in (("right", "-"), ("wrong", "--")):
        axes.plot([], [], color="0.4", linestyle=style, label=kind)
    axes.set(xlabel="confidence", ylabel="share of right or wrong answers")


def _coloured(models: Sequence[Analysis]) -> Iterator[tuple[Analysis, str]]:
    return zip(models, colours_of([model.name for model in models]), strict=True)


def legend_text(name: str) -> str:
    """A name for a legend."""
    return escaped(shortened(name))


def escaped(text: str) -> str:
    """Text without special meaning: a dollar sign starts mathematics, a leading underscore hides a legend entry.

    Bytes of a file name that are no text are shown as codes.
    """
    drawable = text.encode(errors="backslashreplace").decode()
    return (" " if text.startswith("_") else "") + drawable.replace("$", r"\$")

"""Numbers as pictures."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from confrank.metrics import Samples, reliability_bins
from confrank.metrics.ranking import aurc_of, curve_of, rank
from confrank.report.contents import Examined
from confrank.report.svg import risk_limit

COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860", "#da8bc3", "#8c8c8c")
GRID = np.linspace(0.005, 1, 400)


def comparison_figure(samples: Mapping[str, Sequence[Samples]], path: Path, title: str = "") -> None:
    """Risk-coverage curves (left) and a reliability diagram (right), saved as the path's suffix says.

    `samples` maps a name to one or more runs: a line is their mean, a band one standard deviation.
    """
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for place, (name, runs) in enumerate(samples.items()):
        _risk_coverage(left, name, runs, colour_of(place))
        _reliability(right, name, runs, colour_of(place))
    left.set(xlabel="coverage (share of predictions accepted)", ylabel="risk (error rate among them)", xlim=(0, 1))
    left.set_ylim(bottom=0)
    right.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--", label="calibrated")
    right.set(xlabel="probability of the answer", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    # Names may be long paths: one legend for both panels, below them.
    handles = [*left.get_lines(), *right.get_lines()[-1:]]
    columns = 1 if max(map(len, samples)) > 30 else 3
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)
    left.set_title("risk-coverage curve")
    right.set_title("reliability diagram (15 bins)")
    figure.suptitle(escaped(title))
    save_figure(figure, path)


def _risk_coverage(axes: Axes, name: str, runs: Sequence[Samples], colour: str) -> None:
    ranked = [rank(run.confidence, run.correct) for run in runs]
    curves = [curve_of(item) for item in ranked]
    risks = np.array([np.interp(GRID, curve.coverage, curve.risk) for curve in curves])
    area = np.mean([value for item in ranked if (value := aurc_of(item)) is not None])
    axes.plot(GRID, risks.mean(axis=0), color=colour, label=escaped(f"{name} (AURC {1000 * area:.1f} x 10^-3)"))
    if len(runs) > 1:
        spread = risks.std(axis=0, ddof=1)
        axes.fill_between(
            GRID,
            risks.mean(axis=0) - spread,
            risks.mean(axis=0) + spread,
            color=colour,
            alpha=0.15,
            linewidth=0,
        )


def _reliability(axes: Axes, name: str, runs: Sequence[Samples], colour: str) -> None:
    """The probabilities' reliability, whatever the runs rank by; none without probabilities."""
    probabilities = [run.probability for run in runs if run.probability is not None]
    if len(probabilities) < len(runs):
        return
    bins = reliability_bins(np.concatenate(probabilities), np.concatenate([run.correct for run in runs]))
    filled = bins.count > 0
    axes.plot(
        bins.confidence[filled],
        bins.accuracy[filled],
        color=colour,
        marker="o",
        markersize=4,
        label=escaped(name),
    )


def save_figure(figure: Figure, path: Path) -> None:
    """Write a picture as its suffix says, making folders as needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def paper_figures(examined: Sequence[Examined], folder: Path) -> list[Path]:
    """Risk-coverage curve, reliability diagram and histograms, each as PNG and SVG."""
    drawings: dict[str, Callable[[Axes, Sequence[Examined]], None]] = {
        "risk_coverage": _draw_curves,
        "reliability": _draw_reliability,
        "confidence": _draw_histograms,
    }
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, draw in drawings.items():
        figure = Figure(figsize=(5, 4), layout="constrained")
        axes = figure.subplots()
        draw(axes, examined)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False)
        for suffix in ("png", "svg"):
            paths.append(folder / f"{name}.{suffix}")
            figure.savefig(paths[-1], dpi=200)
    return paths


def _draw_curves(axes: Axes, examined: Sequence[Examined]) -> None:
    for place, item in enumerate(examined):
        axes.plot(item.curve.coverage, item.curve.risk, color=colour_of(place), label=_legend(item.name))
    axes.set(xlabel="coverage", ylabel="risk", xlim=(0, 1))
    axes.set_ylim(0, risk_limit(item.curve for item in examined))


def _draw_reliability(axes: Axes, examined: Sequence[Examined]) -> None:
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--")
    for place, item in enumerate(examined):
        if item.bins is not None:
            filled = item.bins.count > 0
            line = item.bins.confidence[filled], item.bins.accuracy[filled]
            axes.plot(*line, color=colour_of(place), marker="o", markersize=4, label=_legend(item.name))
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))


def _draw_histograms(axes: Axes, examined: Sequence[Examined]) -> None:
    for place, item in enumerate(examined):
        for counts, style, kind in ((item.histogram.right, "-", "right"), (item.histogram.wrong, "--", "wrong")):
            share, label = counts / max(1, counts.sum()), f"{_legend(item.name)}, {kind}"
            axes.stairs(share, item.histogram.edges, color=colour_of(place), linestyle=style, label=label)
    axes.set(xlabel="confidence", ylabel="share of right or wrong answers")


def colour_of(place: int) -> str:
    """The colour of a line; after the last one they begin again."""
    return COLOURS[place % len(COLOURS)]


def _legend(name: str) -> str:
    return escaped(name if len(name) <= 40 else f"{name[:39]}…")


def escaped(text: str) -> str:
    """Dollar signs would start matplotlib's mathematics, and a leading underscore hides a legend entry."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")

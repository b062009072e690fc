"""The paper's first figure: how often samples were classified correctly, and the easiest and hardest images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from confrank.metrics.inputs import Floats, Ints, to_numpy
from confrank.report.names import shortened
from confrank.report.plots import escaped, save_figure

EASY, HARD = "#55a868", "#c44e52"
NUM_BINS = 30
ROWS = 3
MAX_CAPTION = 14


@dataclass(frozen=True)
class Events:
    """Correctness counts [n] of training samples, in the order of the images [n, h, w, c] and labels [n]."""

    examined: NDArray[Any]
    correct: NDArray[Any]
    images: NDArray[np.uint8]
    labels: Ints
    class_names: Sequence[str]

    def __post_init__(self) -> None:
        for name in ("examined", "correct", "images", "labels"):  # a history's counters are tensors
            object.__setattr__(self, name, to_numpy(getattr(self, name)))

    @property
    def rate(self) -> Floats:
        rate: Floats = self.correct / np.maximum(self.examined, 1)
        return rate

    def extremes(self, count: int) -> tuple[Ints, Ints]:
        """Rows of the easiest and hardest examined samples; ties in the order of the data set."""
        rows = np.flatnonzero(self.examined)
        order = rows[np.argsort(self.rate[rows], kind="stable")]
        return order[::-1][:count][::-1], order[:count]


def _edges(examined: Ints) -> Floats:
    """About thirty bins, each with the same number of possible rates; otherwise some bins would stand out.

    >>> _edges(np.array([4, 4, 0])).tolist()
    [-0.125, 0.125, 0.375, 0.625, 0.875, 1.125]
    """
    total = int(np.bincount(examined[examined > 0]).argmax())
    width = -(-(total + 1) // NUM_BINS)
    return (np.arange(total, -1 - width, -width)[::-1] + 0.5) / total


def events_figure(events: Events, path: str | Path, title: str = "", count: int = 24) -> None:
    """Histogram of the correctness rates of examined samples, and their easiest and hardest images."""
    rate = events.rate[events.examined > 0]
    if not len(rate):
        raise ValueError(f"expected examined samples, but none of {len(events.rate):,} was examined; train first")
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    halves: Any = figure.subfigures(1, 2, width_ratios=(1, 1.35))
    left, right = halves
    axes = left.subplots()
    edges = _edges(events.examined).tolist()
    axes.hist(rate, bins=edges, color="#4c72b0")
    axes.set(xlabel="share of correct events c", ylabel="training samples", xlim=(edges[0], edges[-1]))
    left_out = f"\n({unseen:,} never examined, left out)" if (unseen := len(events.rate) - len(rate)) else ""
    axes.set_title(f"{len(rate):,} samples, mean {rate.mean():.3f}{left_out}")
    axes.spines[["top", "right"]].set_visible(False)
    easiest, hardest = events.extremes(count)
    panels = right.subfigures(2, 1)
    for panel, rows, colour, words in (
        (panels[0], easiest, EASY, "easiest"),
        (panels[1], hardest, HARD, "hardest"),
    ):
        rates = events.rate[rows]
        panel.suptitle(f"{words}: c from {rates.min():.2f} to {rates.max():.2f}", color=colour, fontsize=10)
        grid = panel.subplots(ROWS, -(-count // ROWS)).ravel()
        for cell, row in zip(grid, rows, strict=False):
            cell.imshow(events.images[row].squeeze(), cmap="gray", interpolation="nearest")
            name = shortened(events.class_names[events.labels[row]], MAX_CAPTION)
            cell.set_title(escaped(name), fontsize=6, pad=2)
        for cell in grid:
            cell.axis("off")
    figure.suptitle(escaped(title))
    save_figure(figure, path)

"""Test AURC and NLL over the epochs: does a network still rank well when it overfits?"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from confrank.errors import InputError
from confrank.report.colours import colours_of
from confrank.report.names import short_names
from confrank.report.plots import escaped, legend_below, legend_text, save_figure, tidy
from confrank.report.scales import SHOWN

Log = Sequence[Mapping[str, Any]]


def epochs_figure(
    logs: Mapping[str, Log], path: str | Path, labels: Sequence[str] | None = None, title: str = ""
) -> None:
    """NLL and AURC, one line per run, from logs with test metrics.

    `labels`, one for each run, are shown in the legend; runs with the same label have the same colour.
    """
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    tested = {name: [entry for entry in log if "test" in entry] for name, log in logs.items()}
    for name, entries in tested.items():
        if not entries:
            raise InputError(
                f"expected test metrics in the log of {name}, but it has none", "train it with {test_every} 1"
            )
    left, right = figure.subplots(1, 2)
    labels = short_names([*logs]) if labels is None else labels
    _draw(left, "nll", labels, tested.values())
    _draw(right, "aurc", labels, tested.values())
    _logarithmic_if_wide(right)
    legend_below(figure, left.get_legend_handles_labels()[0])
    figure.suptitle(escaped(title))
    save_figure(figure, path)


def _draw(axes: Axes, key: str, labels: Sequence[str], logs: Iterable[Log]) -> None:
    drawn: set[str] = set()
    for label, colour, entries in zip(labels, colours_of(labels), logs, strict=True):
        values = [entry["test"][key] * SHOWN[key].factor for entry in entries]
        epochs = [entry["epoch"] for entry in entries]
        marker = "." if len(epochs) < 10 else None
        shown = "_" if label in drawn else legend_text(label)  # a leading underscore keeps it out of the legend
        axes.plot(epochs, values, color=colour, marker=marker, label=shown)
        drawn.add(label)
    axes.set(xlabel="epoch", ylabel=SHOWN[key].heading)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    tidy(axes)


def _logarithmic_if_wide(axes: Axes) -> None:
    """Use a logarithmic axis if values differ by a factor of four or more, and none is zero."""
    low, high = axes.dataLim.intervaly
    if not 0 < 4 * low < high:
        return
    axes.set_yscale("log")
    # Over nearly a decade, labels at all digits would overlap.
    every_digit = high < 8 * low
    axes.yaxis.set_major_locator(LogLocator(subs=range(1, 10) if every_digit else (1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")

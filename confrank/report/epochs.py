"""AURC and NLL of the test split over the epochs: does a network go on ranking well when it overfits?"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from confrank.report.plots import colour_of, escaped, save_figure
from confrank.report.scales import SHOWN

Log = Sequence[Mapping[str, Any]]


def epochs_figure(
    logs: Mapping[str, Log], path: Path, title: str = "", keys: Sequence[str] = ("nll", "aurc")
) -> None:
    """One panel per metric, one line per run, from logs with test metrics (`--test-every`)."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    panels = figure.subplots(1, len(keys))
    for axes, key in zip(panels, keys, strict=True):
        for place, (name, log) in enumerate(logs.items()):
            points = [(entry["epoch"], entry["test"][key]) for entry in log if "test" in entry]
            if not points:
                raise ValueError(
                    f"expected test metrics in the log of {name}, but it has none; train with --test-every 1"
                )
            epochs, values = zip(*points, strict=True)
            axes.plot(
                epochs, [value * SHOWN[key].factor for value in values], color=colour_of(place), label=escaped(name)
            )
        axes.set(xlabel="epoch", ylabel=SHOWN[key].heading, yscale="log" if key == "aurc" else "linear")
        axes.yaxis.set_major_formatter("{x:g}")
        if key == "aurc":
            axes.yaxis.set_minor_formatter("{x:g}")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False)
    figure.suptitle(escaped(title))
    save_figure(figure, path)

"""Show how files were read: the role of each column, and the first rows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from confrank.cli.command import say

if TYPE_CHECKING:
    from rich.console import Console

    from confrank.cli.source import Source

ROWS = 5


def show_sources(console: "Console", sources: "Sequence[Source]") -> None:
    """Print for each file what was read, the role of each column, and the first rows as understood."""
    for source in sources:
        say(console, f"{source.name}: read {source.predictions.describe()}")
        _print_table(console, ["column", "taken as"], [[*item] for item in source.predictions.roles.items()])
        _print_table(console, *_first_rows(source))


def _first_rows(source: "Source") -> tuple[list[str], list[list[str]]]:
    """The header and the cells of the first rows: what the metrics see."""
    predictions, samples = source.predictions, source.samples
    names, keys = predictions.class_names, predictions.keys
    rows = []
    for row in range(min(ROWS, len(samples))):
        cells = [str(row), *(bytes(values[row]).decode(errors="replace") for values in keys.values())]
        for classes in (samples.label, samples.prediction):
            if classes is not None:
                number = int(classes[row])
                cells.append(names[number] if names and 0 <= number < len(names) else str(number))
        cells += [f"{samples.confidence[row]:.4g}", "yes" if samples.correct[row] else "no"]
        rows.append([*cells, *(str(values[row]) for values in predictions.extra.values())])
    roles = [
        role for role, values in (("label", samples.label), ("prediction", samples.prediction)) if values is not None
    ]
    return ["row", *keys, *roles, "confidence", "correct", *predictions.extra], rows


def _print_table(console: "Console", header: list[str], rows: list[list[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name in header:
        table.add_column(Text(name))
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)

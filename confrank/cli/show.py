"""Show how files were read: the role of each column, and the first rows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from confrank.cli.terminal import say
from confrank.errors import class_text

if TYPE_CHECKING:
    from rich.console import Console

    from confrank.cli.source import Source

ROWS = 5


def show_sources(console: "Console", sources: "Sequence[Source]") -> None:
    """Print for each file what was read, the role of each column, and the first rows as understood."""
    from confrank.report.table import listing_table

    for source in sources:
        say(console, f"{source.name}: read {source.predictions.describe()}")
        console.print(listing_table(["column", "taken as"], [*source.predictions.roles.items()]))
        console.print(listing_table(*_first_rows(source)))


def _first_rows(source: "Source") -> tuple[list[str], list[list[str]]]:
    """The header and the cells of the first rows: what the metrics see."""
    predictions, samples = source.predictions, source.samples
    given = {"label": samples.label, "prediction": samples.prediction}
    classes = {role: values for role, values in given.items() if values is not None}
    rows = []
    for row in range(min(ROWS, len(samples))):
        cells = [str(row), *(bytes(values[row]).decode(errors="replace") for values in predictions.keys.values())]
        cells += [class_text(predictions.class_names, int(values[row])) for values in classes.values()]
        cells += [f"{samples.confidence[row]:.4g}", "yes" if samples.correct[row] else "no"]
        rows.append([*cells, *(str(values[row]) for values in predictions.extra.values())])
    return ["row", *predictions.keys, *classes, "confidence", "correct", *predictions.extra], rows

"""Tables for the terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

from confrank.analysis import Analysis, Repeats, p_text
from confrank.analysis.comparison import resampled_clusters
from confrank.analysis.repeats import summarise
from confrank.errors import class_text
from confrank.metrics import Evaluation, Interval, Samples
from confrank.metrics.resampling import NO_INTERVALS
from confrank.predictions import Predictions
from confrank.report.repeats import repeats_rows
from confrank.report.scales import SHOWN, keys_of, metric_text, with_spread
from confrank.report.verdict import ece_note

# Characters that a name or a word of a heading gets at least, and the prose in a column of meanings.
LEAST_NAME, LEAST_MEANING = 16, 24


@dataclass(frozen=True)
class NumbersTable:
    """Names in the first column and numbers in the others, which are neither cut off nor broken.

    A table too wide for the terminal is split into several, each with the names. With `has_meaning`, the last column
    is prose.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str | Text]]
    title: str
    caption: str = ""
    has_meaning: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts = self._parts(options.max_width)
        for number, widths in enumerate(parts, start=1):
            table = Table(title=Text(self.title + (", continued" if number > 1 else "")))
            table.caption = self.caption if self.caption and number == len(parts) else None
            for column, width in widths.items():
                fixed = width if _total(widths) <= options.max_width else None  # else even one column is too wide
                table.columns.append(self._column(column, fixed))
            for row in self.rows:
                table.add_row(*(row[column] for column in widths))
            yield table

    def _parts(self, most: int) -> list[dict[int, int]]:
        """The columns of each table and their widths: what each needs, and for long ones what is left."""
        parts: list[dict[int, int]] = []
        for column in range(1, len(self.headings)):
            needed = self._needed(column)
            if not parts or _total(parts[-1] | {column: needed}) > most:
                parts.append({0: self._needed(0)})
            parts[-1][column] = needed
        for widths in parts:
            for column in widths:
                left = max(0, most - _total(widths))
                widths[column] = max(widths[column], min(widths[column] + left, self._longest(column)))
        return parts

    def _column(self, column: int, width: int | None) -> Column:
        heading = Text(self.headings[column])
        if self._is_meaning(column):
            return Column(heading, style="dim", width=width)
        return Column(heading, justify="right" if column else "left", overflow="fold", width=width)

    def _is_meaning(self, column: int) -> bool:
        return self.has_meaning and column == len(self.headings) - 1

    def _needed(self, column: int) -> int:
        """Names, headings and prose may be broken; numbers may not."""
        if column == 0 or self._is_meaning(column):
            return min(self._longest(column), LEAST_MEANING if column else LEAST_NAME)
        word = max(map(cell_len, self.headings[column].split()), default=0)
        return max(self._longest_cell(column), min(word, LEAST_NAME))

    def _longest(self, column: int) -> int:
        return max(self._longest_cell(column), cell_len(self.headings[column]))

    def _longest_cell(self, column: int) -> int:
        return max((cell_len(line) for row in self.rows for line in str(row[column]).split("\n")), default=0)


def _total(widths: Mapping[int, int]) -> int:
    """The width of a table with its borders."""
    return 1 + sum(width + 3 for width in widths.values())


def evaluation_table(
    evaluations: Mapping[str, Evaluation],
    intervals: Mapping[str, Mapping[str, Interval | None]] | None = None,
    more: Sequence[Sequence[str]] = (),
) -> NumbersTable:
    """All metrics, one row each, with one column per named evaluation and its intervals if there are any.

    `more` are further rows: a heading, a cell for each evaluation, and the meaning.
    """
    rows = []
    for key in keys_of(*evaluations.values()):
        cells = [metric_text(key, one.metrics, (intervals or {}).get(name, {})) for name, one in evaluations.items()]
        rows.append([SHOWN[key].heading, *cells, SHOWN[key].meaning])
    caption = "lower is better, except for accuracy, AUPR-Err and AUROC"
    return NumbersTable(["metric", *evaluations, "meaning"], [*rows, *more], "metrics", caption, has_meaning=True)


def seeds_table(evaluations: Mapping[str, Evaluation], title: str) -> NumbersTable:
    """All metrics of several seeds, a column each, with mean ± standard deviation; - where a metric is undefined."""
    rows = []
    for key in keys_of(*evaluations.values()):
        how, values = SHOWN[key], [one.metrics.get(key) for one in evaluations.values()]
        summary = None if None in values else summarise([value for value in values if value is not None])
        mean = "-" if summary is None else with_spread(summary.mean, summary.std, how.factor, mark=" ± ")
        rows.append([how.heading, *(metric_text(key, one.metrics, {}) for one in evaluations.values()), mean])
    caption = "lower is better, except for accuracy, AUPR-Err and AUROC; ± is one standard deviation"
    return NumbersTable(["metric", *evaluations, "mean ± sd"], rows, title, caption)


def difference_table(models: Sequence[Analysis]) -> NumbersTable:
    """Paired differences to the first model, with intervals and p-values."""
    first, *others = models
    compared = [model for model in others if model.differences]
    rows = []
    for key, how in SHOWN.items():
        if not any(key in model.differences for model in compared):
            continue
        cells = [how.heading]
        for model in compared:
            gap = model.differences.get(key)
            if gap is None:
                cells.append("-")
                continue
            value, low, high = (number * how.factor for number in (gap.value, gap.low, gap.high))
            cells.append(f"{value:+.3f} ({low:+.2f}, {high:+.2f}) {p_text(gap.p, model.num_resamples)}")
        rows.append(cells)
    caption = "95% interval in brackets; two-sided bootstrap p-value"
    return NumbersTable(["metric", *(model.name for model in compared)], rows, f"difference to {first.name}", caption)


def interval_note(models: Sequence[Analysis]) -> str:
    """How many resamples the intervals are from, or that there are none."""
    counts = list(dict.fromkeys(model.num_resamples for model in models))
    if models[0].weighted_by:
        return NO_INTERVALS
    if not any(counts):
        return f"no intervals (n = {models[0].curve.num_samples:,})"
    number = ", ".join(f"{count:,}" for count in counts)
    note = f"in brackets: 95% intervals, those that need it from {number} resamples" + resampled_clusters(models)
    reasons: dict[str, list[str]] = {}
    for model in models:
        for key, why in model.no_intervals.items():
            reasons.setdefault(f"{model.name}: {why}" if len(models) > 1 else why, []).append(SHOWN[key].heading)
    missing = [f"no interval of {', '.join(headings)}: {why}" for why, headings in reasons.items()]
    return "; ".join(filter(None, [note, ece_note(models), *missing]))


def repeats_table(repeats: Repeats, title: str) -> NumbersTable:
    """Mean ± std of the paper's eight metrics over the seeds, and each method's paired difference to the first."""
    first, *others = repeats.evaluations
    caption = "± is one standard deviation; for differences, one standard error"
    rows: list[list[str | Text]] = []
    for row in repeats_rows(repeats):
        gaps = [Text(gap.text, "green" if gap.is_better else "red") for gap in row.gaps]
        rows.append([f"{row.heading} {row.arrow}", *row.values, *gaps])
    headings = ["metric", first, *others, *(f"{name} - {first}" for name in others)]
    return NumbersTable(headings, rows, title, caption)


def listing_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Plain text in columns, wrapped if it is long and never interpreted as markup."""
    table = Table(*(Column(Text(heading)) for heading in headings))
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    return table


def shown_rows(predictions: Predictions, samples: Samples, number: int = 5) -> tuple[list[str], list[list[str]]]:
    """The header and the cells of the first rows: what the metrics see."""
    given = {"label": samples.label, "prediction": samples.prediction}
    classes = {role: values for role, values in given.items() if values is not None}
    rows = []
    for row in range(min(number, len(samples))):
        cells = [str(row), *(bytes(values[row]).decode(errors="replace") for values in predictions.keys.values())]
        cells += [class_text(predictions.class_names, int(values[row])) for values in classes.values()]
        cells += [f"{samples.confidence[row]:.4g}", "yes" if samples.correct[row] else "no"]
        rows.append([*cells, *(str(values[row]) for values in predictions.extra.values())])
    return ["row", *predictions.keys, *classes, "confidence", "correct", *predictions.extra], rows

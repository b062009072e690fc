"""Tables for the terminal."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from confrank.analysis import Analysis, Repeats
from confrank.metrics import Evaluation, Interval, PairedDifference
from confrank.metrics.repeats import summarise
from confrank.report.repeats import repeats_rows
from confrank.report.scales import SHOWN, metric_text, p_text, with_spread
from confrank.report.verdict import ece_note


def evaluation_table(
    evaluations: Mapping[str, Evaluation],
    intervals: Mapping[str, Mapping[str, Interval | None]] | None = None,
    more: Sequence[Sequence[str]] = (),
) -> Table:
    """All metrics, one row each, with one column per named evaluation and its intervals if there are any.

    `more` are further rows: a heading, a cell for each evaluation, and the meaning.
    """
    table = Table(title="metrics", caption="lower is better, except for accuracy, AUPR-Err and AUROC")
    table.add_column("metric")
    for name in evaluations:
        table.add_column(Text(name), justify="right", overflow="fold")
    table.add_column("meaning", style="dim")
    for key, how in SHOWN.items():
        cells = [metric_text(key, one.metrics, (intervals or {}).get(name, {})) for name, one in evaluations.items()]
        table.add_row(how.heading, *cells, how.meaning)
    for row in more:
        table.add_row(*row)
    return table


def seeds_table(evaluations: Mapping[str, Evaluation], title: str) -> Table:
    """All metrics of several seeds, a column each, with mean ± standard deviation; - where a metric is undefined."""
    rows = []
    for key, how in SHOWN.items():
        values = [one.metrics[key] for one in evaluations.values()]
        summary = None if None in values else summarise([value for value in values if value is not None])
        mean = "-" if summary is None else with_spread(summary.mean, summary.std, how.factor, mark=" ± ")
        rows.append([how.heading, *(metric_text(key, one.metrics, {}) for one in evaluations.values()), mean])
    caption = "lower is better, except for accuracy, AUPR-Err and AUROC; ± is one standard deviation"
    return numbers_table(["metric", *evaluations, "mean ± sd"], rows, title=title, caption=caption)


def difference_table(differences: Mapping[str, Mapping[str, PairedDifference | None]], first: str) -> Table:
    """Paired differences to the first model, with intervals and p-values."""
    caption = "95% interval in brackets; two-sided bootstrap p-value"
    cells = {key: [_gap(how.factor, gaps.get(key)) for gaps in differences.values()] for key, how in SHOWN.items()}
    rows = [[SHOWN[key].heading, *each] for key, each in cells.items()]
    return numbers_table(["metric", *differences], rows, title=Text(f"difference to {first}"), caption=caption)


def _gap(factor: float, gap: PairedDifference | None) -> str:
    if gap is None:
        return "-"
    return f"{gap.value * factor:+.3f} ({gap.low * factor:+.2f}, {gap.high * factor:+.2f}) {p_text(gap.p)}"


def interval_note(models: Sequence[Analysis]) -> str:
    """How many resamples the intervals are from, or that there are none."""
    counts = list(dict.fromkeys(model.num_resamples for model in models))
    if not any(counts):
        return f"no intervals (n = {models[0].curve.num_samples:,})"
    number = ", ".join(f"{count:,}" for count in counts)
    note = f"in brackets: 95% intervals, Wilson's for accuracy, otherwise by the bootstrap from {number} resamples"
    return "; ".join(filter(None, [note, ece_note(models)]))


def repeats_table(repeats: Repeats, title: str) -> Table:
    """Mean ± std of the paper's eight metrics over the seeds, and each method's paired difference to the first."""
    first, *others = repeats.evaluations
    caption = "± is one standard deviation; for differences, one standard error"
    rows: list[list[str | Text]] = []
    for row in repeats_rows(repeats):
        gaps = [Text(gap.text, "green" if gap.is_better else "red") for gap in row.gaps]
        rows.append([f"{row.heading} {row.arrow}", *row.values, *gaps])
    headings = ["metric", first, *others, *(f"{name} - {first}" for name in others)]
    return numbers_table(headings, rows, title=title, caption=caption)


def numbers_table(headings: Sequence[str], rows: Iterable[Sequence[str | Text]], **options: Any) -> Table:
    """Names in the first column and numbers in the others; `options` are those of a table of rich."""
    first, *others = (Text(heading) for heading in headings)
    table = Table(Column(first), *(Column(one, justify="right", overflow="fold") for one in others), **options)
    for row in rows:
        table.add_row(*row)
    return table


def listing_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Plain text in columns, wrapped if it is long and never interpreted as markup."""
    table = Table(*(Column(Text(heading)) for heading in headings))
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    return table

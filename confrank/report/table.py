"""Numbers as tables on the terminal."""

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from confrank.metrics import Evaluation, Interval, PairedDifference
from confrank.metrics.repeats import paired_difference, summarise
from confrank.report.contents import Examined
from confrank.report.scales import PAPER_METRICS, SHOWN, p_text, shown, with_spread

Intervals = Mapping[str, Interval | None]


def evaluation_table(
    evaluations: Mapping[str, Evaluation], intervals: Mapping[str, Intervals] | None = None
) -> Table:
    """All metrics, one row each, one column per named evaluation, with its interval where there is one."""
    table = Table(title="metrics", caption="lower is better but for accuracy, AUPR-Err and AUROC")
    table.add_column("metric")
    for name in evaluations:
        table.add_column(Text(name), justify="right", overflow="fold")
    table.add_column("what it says", style="dim")
    for key, how in SHOWN.items():
        cells = [
            shown(key, evaluation.metrics[key], 3) + _limits(key, (intervals or {}).get(name, {}))
            for name, evaluation in evaluations.items()
        ]
        table.add_row(how.heading, *cells, how.meaning)
    return table


def _limits(key: str, intervals: Intervals) -> str:
    limits = intervals.get(key)
    return "" if limits is None else f" ({shown(key, limits.low)}, {shown(key, limits.high)})"


def difference_table(differences: Mapping[str, Mapping[str, PairedDifference | None]], first: str) -> Table:
    """Paired differences to the first file, with interval and p-value."""
    table = Table(
        title=Text(f"difference to {first}"), caption="95% interval in brackets; two-sided bootstrap p-value"
    )
    table.add_column("metric")
    for name in differences:
        table.add_column(Text(name), justify="right", overflow="fold")
    for key, how in SHOWN.items():
        table.add_row(how.heading, *(_gap(how.factor, gaps.get(key)) for gaps in differences.values()))
    return table


def _gap(factor: float, gap: PairedDifference | None) -> str:
    if gap is None:
        return "-"
    return f"{gap.value * factor:+.3f} ({gap.low * factor:+.2f}, {gap.high * factor:+.2f}) {p_text(gap.p)}"


def interval_note(examined: Sequence[Examined]) -> str:
    """How many resamples the intervals rest on, or why there are none."""
    counts = list(dict.fromkeys(item.num_resamples for item in examined))
    if not any(counts):
        return f"no intervals (n = {examined[0].curve.num_samples:,}); --resamples 200 computes them"
    return f"in brackets: 95% bootstrap intervals from {', '.join(f'{count:,}' for count in counts)} resamples"


def comparison_table(results: Mapping[str, Sequence[Evaluation]], title: str) -> Table:
    """Mean ± std of the paper's eight metrics for two methods over the same seeds, and their paired difference."""
    (first, first_runs), (second, second_runs) = results.items()
    table = Table(title=title, caption="± is one standard deviation; the difference carries its standard error")
    for column in ("metric", first, second, f"{second} - {first}"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for key in PAPER_METRICS:
        how, found = SHOWN[key], _compared(key, first_runs, second_runs)
        if found is None:
            table.add_row(how.heading, "-", "-", "-")
            continue
        *values, difference, better = found
        heading = f"{how.heading} {'↓' if how.lower_is_better else '↑'}"
        table.add_row(heading, *values, f"[{'green' if better else 'red'}]{difference}[/]")
    return table


def seeds_note(results: Mapping[str, Sequence[Evaluation]], seed: int) -> str | None:
    """What a page of one seed says of the others, by the numbers of `comparison_table`; None if there are none."""
    (first, first_runs), (second, second_runs) = results.items()
    found = _compared("aurc", first_runs, second_runs)
    if len(first_runs) < 2 or found is None:
        return None
    one, other, difference, _ = found
    return (
        f"One of {len(first_runs)} seeds: seed {seed}. Over all of them, {SHOWN['aurc'].heading} is {one} for {first}"
        f" and {other} for {second} (± one standard deviation), a difference of {difference} (± its standard error)."
    )


def _compared(
    key: str, first_runs: Sequence[Evaluation], second_runs: Sequence[Evaluation]
) -> tuple[str, str, str, bool] | None:
    """A metric of two methods over the same seeds, their difference, and whether the second is better."""
    how = SHOWN[key]
    pairs = [(a.metrics[key], b.metrics[key]) for a, b in zip(first_runs, second_runs, strict=True)]
    known = [(a * how.factor, b * how.factor) for a, b in pairs if a is not None and b is not None]
    if not known:
        return None
    a, b = zip(*known, strict=True)
    gap = paired_difference(a, b)
    one, other = (with_spread(each.mean, each.std, mark=" ± ") for each in (summarise(a), summarise(b)))
    better = (gap.mean < 0) == how.lower_is_better and gap.mean != 0
    return one, other, with_spread(gap.mean, gap.standard_error, mark=" ± ", sign="+"), better


def listing_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Plain text in columns, wrapped where it is long and never read as markup."""
    table = Table(*headings)
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    return table

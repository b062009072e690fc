"""The paper's tables beside ours, for the terminal, Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Callable, Sequence
from typing import Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from confrank.metrics.repeats import Summary
from confrank.report.scales import ALL_SHOWN, with_spread


class CellLike(Protocol):
    """What is shown of a cell: where it stands, the paper's number, ours, and the gap in the paper's std."""

    @property
    def dataset(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def out_set(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def paper(self) -> Summary | None: ...
    @property
    def ours(self) -> Summary | None: ...
    @property
    def deviations(self) -> float | None: ...


Rows = list[list[str]]


def render(
    cells: Sequence[CellLike],
    form: str,
    *,
    paper_only: bool = False,
    ours_only: bool = False,
    width: int | None = None,
) -> str:
    """The table as text. One row per data set, network and method; `ours_only` leaves out rows not run.

    A terminal of `width` columns gets several tables below each other where one would be too wide.
    """
    if form == "csv":
        return _csv([cell for cell in cells if cell.ours or not ours_only])
    header, rows = _wide(cells, paper_only, ours_only)
    if form == "terminal" and width is not None:
        return _narrow(header, rows, len(header) - len({cell.metric for cell in cells}), width)
    return FORMS[form](header, rows)


def _narrow(header: list[str], rows: Rows, num_places: int, width: int) -> str:
    """One table if it fits; else what all rows share on a line above, and metrics as there is room for them."""
    if 1 + sum(_widths(header, rows)) <= width:
        return _terminal(header, rows)
    shared = {place: _shared([row[place] for row in rows]) for place in range(num_places)}
    rows = [[cell.removeprefix(shared.get(place, "")) for place, cell in enumerate(row)] for row in rows]
    title = ", ".join(f"{header[place]} {start}" for place, start in shared.items() if start)
    places = [place for place in range(num_places) if any(row[place] for row in rows)]
    needed = _widths(header, rows)
    groups: list[list[int]] = []
    for column in range(num_places, len(header)):
        if not groups or 1 + sum(needed[place] for place in [*places, *groups[-1], column]) > width:
            groups.append([])
        groups[-1].append(column)
    tables = (_terminal(_picked([header], places + group)[0], _picked(rows, places + group)) for group in groups)
    return (f"{title}\n" if title else "") + "".join(tables)


def _widths(header: list[str], rows: Rows) -> list[int]:
    return [max(len(line[column]) for line in [header, *rows]) + 3 for column in range(len(header))]


def _shared(names: list[str]) -> str:
    """What all names are, or begin with up to a slash.

    >>> _shared(["crl/odin", "crl/energy"]), _shared(["crl", "crl"]), _shared(["knn", "kde"])
    ('crl/', 'crl', '')
    """
    if len({*names}) == 1:
        return names[0]
    starts = {name[: name.rfind("/") + 1] for name in names}
    return starts.pop() if len(starts) == 1 else ""


def _picked(rows: Rows, columns: list[int]) -> Rows:
    return [[row[column] for column in columns] for row in rows]


def _csv(cells: Sequence[CellLike]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            "dataset",
            "model",
            "method",
            "out_set",
            "metric",
            "paper_mean",
            "paper_std",
            "mean",
            "std",
            "n",
            "deviations",
        ]
    )
    for cell in cells:
        ours = (cell.ours.mean, cell.ours.std, cell.ours.n) if cell.ours else (None, None, 0)
        place = [cell.dataset, cell.model, cell.method, cell.out_set, cell.metric]
        paper = (cell.paper.mean, cell.paper.std) if cell.paper else (None, None)
        values = [*paper, *ours, cell.deviations]
        writer.writerow(place + ["" if value is None else f"{value:.12g}" for value in values])
    return text.getvalue()


def _wide(cells: Sequence[CellLike], paper_only: bool, ours_only: bool) -> tuple[list[str], Rows]:
    """Metrics as columns; each value "ours (paper)" with the gap, or the paper's alone."""
    metrics = list(dict.fromkeys(cell.metric for cell in cells))
    groups: dict[tuple[str, ...], dict[str, CellLike]] = {}
    for cell in cells:
        key = (cell.dataset, cell.model, cell.method) + ((cell.out_set,) if cell.out_set else ())
        groups.setdefault(key, {})[cell.metric] = cell
    places = ["data set", "network", "method", "out-set"][: max(map(len, groups))]
    rows = []
    for key, group in groups.items():
        seeds = max((cell.ours.n for cell in group.values() if cell.ours), default=0)
        if ours_only and not seeds:
            continue
        shown = [cell_text(group[metric], paper_only) if metric in group else "" for metric in metrics]
        rows.append([*key, *([] if paper_only else [str(seeds) if seeds else "not run"]), *shown])
    return [*places, *([] if paper_only else ["runs"]), *map(_heading, metrics)], rows


def cell_text(cell: CellLike, paper_only: bool = False) -> str:
    """Ours, the paper's in brackets and the gap, as far as there are any."""
    factor = _factor(cell.metric)
    paper = "" if cell.paper is None else with_spread(cell.paper.mean, cell.paper.std, factor)
    if paper_only:
        return paper
    if cell.ours is None:
        return f"({paper})" if paper else "-"
    ours = with_spread(cell.ours.mean, cell.ours.std, factor)
    if not paper:
        return ours
    gap = "" if cell.deviations is None else f" {cell.deviations:+.1f}σ"
    return f"{ours} ({paper}){gap}"


def _factor(metric: str) -> float:
    return ALL_SHOWN[metric].factor if metric in ALL_SHOWN else 100


def _heading(metric: str) -> str:
    if metric.startswith("acc_stage"):
        return f"stage {metric.removeprefix('acc_stage')} accuracy %"
    return ALL_SHOWN[metric].heading if metric in ALL_SHOWN else f"{metric} %"


def _terminal(header: list[str], rows: Rows) -> str:
    table = Table()
    for name in header:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(width=max(200, 24 * len(header)), file=io.StringIO(), record=True)
    console.print(table)
    return console.export_text()


def markdown_table(header: list[str], rows: Rows) -> str:
    """The same for a document."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _latex(header: list[str], rows: Rows) -> str:
    def line(cells: list[str]) -> str:
        text = " & ".join(cells)
        for plain, escaped in (("%", r"\%"), ("^", r"\^{}"), ("±", r"$\pm$"), ("σ", r"$\sigma$"), ("_", r"\_")):
            text = text.replace(plain, escaped)
        return text + r" \\"

    body = [line(header), r"\midrule", *map(line, rows)]
    columns = "l" * len(header)
    return (
        "\n".join([rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *body, r"\bottomrule", r"\end{tabular}"]) + "\n"
    )


FORMS: dict[str, Callable[[list[str], Rows], str]] = {
    "terminal": _terminal,
    "markdown": markdown_table,
    "latex": _latex,
}

"""The paper's numbers and ours in one table, for the terminal, Markdown, LaTeX and CSV."""

import io
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from confrank.metrics.repeats import Cell
from confrank.report.scales import ALL_SHOWN, with_spread
from confrank.spreadsheet import csv_text

TextRows = list[list[str]]


def render(
    cells: Sequence[Cell],
    form: str,
    *,
    paper_only: bool = False,
    ours_only: bool = False,
    width: int | None = None,
) -> str:
    """The table as text, one row per data set, network and method; `ours_only` omits rows that were not run.

    If one table is too wide for a terminal of `width` columns, it is split into several.
    """
    if form == "csv":
        return _csv([cell for cell in cells if cell.ours or not ours_only])
    header, rows = _wide(cells, paper_only, ours_only)
    if form == "terminal" and width is not None:
        return _narrow(header, rows, len(header) - len({cell.metric for cell in cells}), width)
    return FORMS[form](header, rows)


def _narrow(header: list[str], rows: TextRows, num_names: int, width: int) -> str:
    """One table if it fits; otherwise a line with what all rows share, and tables of as many metrics as fit."""
    if 1 + sum(_widths(header, rows)) <= width:
        return _terminal(header, rows)
    shared = {column: _shared([row[column] for row in rows]) for column in range(num_names)}
    rows = [[cell.removeprefix(shared.get(column, "")) for column, cell in enumerate(row)] for row in rows]
    title = ", ".join(f"{header[column]} {start}" for column, start in shared.items() if start)
    names = [column for column in range(num_names) if any(row[column] for row in rows)]
    needed = _widths(header, rows)
    groups: list[list[int]] = []
    for column in range(num_names, len(header)):
        if not groups or 1 + sum(needed[each] for each in [*names, *groups[-1], column]) > width:
            groups.append([])
        groups[-1].append(column)
    tables = (_terminal(_picked([header], names + group)[0], _picked(rows, names + group)) for group in groups)
    return (f"{title}\n" if title else "") + "".join(tables)


def _widths(header: list[str], rows: TextRows) -> list[int]:
    return [max(len(line[column]) for line in [header, *rows]) + 3 for column in range(len(header))]


def _shared(names: list[str]) -> str:
    """The name if all are equal, or the common part up to a slash.

    >>> _shared(["crl/odin", "crl/energy"]), _shared(["crl", "crl"]), _shared(["knn", "kde"])
    ('crl/', 'crl', '')
    """
    if len({*names}) == 1:
        return names[0]
    starts = {name[: name.rfind("/") + 1] for name in names}
    return starts.pop() if len(starts) == 1 else ""


def _picked(rows: TextRows, columns: list[int]) -> TextRows:
    return [[row[column] for column in columns] for row in rows]


def _csv(cells: Sequence[Cell]) -> str:
    names = ["dataset", "model", "method", "out_set", "metric"]
    rows = [[*names, "paper_mean", "paper_std", "mean", "std", "n", "deviations"]]
    for cell in cells:
        ours = (cell.ours.mean, cell.ours.std, cell.ours.n) if cell.ours else (None, None, 0)
        paper = (cell.paper.mean, cell.paper.std) if cell.paper else (None, None)
        values = [*paper, *ours, cell.deviations]
        rows.append([*cell.key, *("" if value is None else f"{value:.12g}" for value in values)])
    return csv_text(rows)


def _wide(cells: Sequence[Cell], paper_only: bool, ours_only: bool) -> tuple[list[str], TextRows]:
    """Metrics as columns; each value is "ours (paper)" with the difference, or the paper's alone."""
    metrics = list(dict.fromkeys(cell.metric for cell in cells))
    groups: dict[tuple[str, ...], dict[str, Cell]] = {}
    for cell in cells:
        key = (cell.dataset, cell.model, cell.method) + ((cell.out_set,) if cell.out_set else ())
        groups.setdefault(key, {})[cell.metric] = cell
    names = ["data set", "network", "method", "out-set"][: max(map(len, groups))]
    rows = []
    for key, group in groups.items():
        seeds = max((cell.ours.n for cell in group.values() if cell.ours), default=0)
        if ours_only and not seeds:
            continue
        shown = [cell_text(group[metric], paper_only) if metric in group else "" for metric in metrics]
        rows.append([*key, *([] if paper_only else [str(seeds) if seeds else "not run"]), *shown])
    return [*names, *([] if paper_only else ["runs"]), *map(_heading, metrics)], rows


def cell_text(cell: Cell, paper_only: bool = False) -> str:
    """Ours, the paper's in brackets and the difference, as far as they exist."""
    factor = ALL_SHOWN[cell.metric].factor if cell.metric in ALL_SHOWN else 100
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


def _heading(metric: str) -> str:
    if metric.startswith("acc_stage"):
        return f"stage {metric.removeprefix('acc_stage')} accuracy %"
    return ALL_SHOWN[metric].heading if metric in ALL_SHOWN else f"{metric} %"


def _terminal(header: list[str], rows: TextRows) -> str:
    table = Table()
    for name in header:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(width=max(200, 24 * len(header)), file=io.StringIO(), record=True)
    console.print(table)
    return console.export_text()


def markdown_table(header: list[str], rows: TextRows) -> str:
    """The same for a document."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _latex(header: list[str], rows: TextRows) -> str:
    def line(cells: list[str]) -> str:
        return " & ".join(cells).translate(LATEX) + r" \\"

    body = [line(header), r"\midrule", *map(line, rows)]
    columns = "l" * len(header)
    return (
        "\n".join([rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *body, r"\bottomrule", r"\end{tabular}"]) + "\n"
    )


LATEX = str.maketrans({"%": r"\%", "±": r"$\pm$", "σ": r"$\sigma$", "×": r"$\times$", "³": r"$^3$", "_": r"\_"})
FORMS: dict[str, Callable[[list[str], TextRows], str]] = {
    "terminal": _terminal,
    "markdown": markdown_table,
    "latex": _latex,
}

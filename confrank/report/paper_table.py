"""The paper's numbers and ours in one table, for the terminal, Markdown, LaTeX and CSV."""

import io
import re
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from confrank.analysis.repeats import Cell
from confrank.errors import printable
from confrank.report.scales import ALL_SHOWN, Shown, with_spread
from confrank.spreadsheet import csv_text

# Marks a number that another table of the paper contradicts.
CONTRADICTED = "†"
# A best value stands between two pairs of asterisks, as in Markdown; the other forms translate that.
_BOLD = re.compile(r"\*\*(.+?)\*\*")
STAGE = "acc_stage"
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

    The best value of each data set and network is bold (of each detector, in a table of detectors): ours, or the
    paper's in a table of the paper alone. Notes under the table say where the paper has two numbers for a cell. A
    table too wide for a terminal of `width` columns is split into several.
    """
    if form == "csv":
        return _csv([cell for cell in cells if cell.ours or not ours_only])
    header, rows = _wide(cells, paper_only, ours_only)
    rows = [[*map(printable, row)] for row in rows]
    if form == "terminal" and width is not None:
        text = _narrow(header, rows, len(header) - len({cell.metric for cell in cells}), width)
    else:
        text = FORMS[form](header, rows)
    shown = [cell for cell in cells if cell.ours or not ours_only]
    notes = [note.translate(LATEX) if form == "latex" else note for note in contradiction_notes(shown)]
    return text + "".join(f"\n{note}\n" for note in notes)


def _narrow(header: list[str], rows: TextRows, num_names: int, width: int) -> str:
    """One table if it fits; otherwise a line with what all rows share, and tables of as many metrics as fit."""
    if 1 + sum(_widths(header, rows)) <= width:
        return _terminal(header, rows, styled=True)
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
    tables = (
        _terminal(_picked([header], names + group)[0], _picked(rows, names + group), styled=True) for group in groups
    )
    return (f"{title}\n" if title else "") + "".join(tables)


def _widths(header: list[str], rows: TextRows) -> list[int]:
    plain = [[_BOLD.sub(r"\1", cell) for cell in line] for line in [header, *rows]]
    return [max(len(line[column]) for line in plain) + 3 for column in range(len(header))]


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
    best = _best(cells, paper_only)
    rows = []
    for key, group in groups.items():
        seeds = max((cell.ours.n for cell in group.values() if cell.ours), default=0)
        if ours_only and not seeds:
            continue
        shown = [
            cell_text(group[metric], paper_only, bold=id(group[metric]) in best) if metric in group else ""
            for metric in metrics
        ]
        rows.append([*key, *([] if paper_only else [str(seeds) if seeds else "not run"]), *shown])
    return [*names, *([] if paper_only else ["runs"]), *map(_heading, metrics)], rows


def _best(cells: Sequence[Cell], paper_only: bool) -> set[int]:
    """The ids of the cells with the best value of two or more that compete; equal ones as shown are all best."""
    competing: dict[tuple[str, ...], list[tuple[float, Cell]]] = {}
    for cell in cells:
        value = cell.paper if paper_only else cell.ours
        if value is not None and _scale(cell.metric) is not None:
            # Only the same detector competes, and in active learning, the same settings.
            same = cell.method.partition("/")[2] or cell.method.partition(", ")[2]
            key = cell.dataset, cell.model, same, cell.out_set, cell.metric
            competing.setdefault(key, []).append((round(value.mean * _factor(cell.metric), 2), cell))
    best = set()
    for (*_, metric), entries in competing.items():
        if len(entries) > 1:
            scale = _scale(metric)
            lowest = scale is not None and scale.lower_is_better
            chosen = (min if lowest else max)(number for number, _ in entries)
            best |= {id(cell) for number, cell in entries if number == chosen}
    return best


def contradiction_notes(cells: Sequence[Cell]) -> list[str]:
    """A line for each cell to which the paper gives another number in another table."""
    return [
        f"{CONTRADICTED} {cell.dataset}, {cell.model}, {cell.method}, {_heading(cell.metric)}: another table of the"
        f" paper has {with_spread(other.mean, other.std, _factor(cell.metric))}"
        for cell in cells
        for other in cell.elsewhere
    ]


def cell_text(cell: Cell, paper_only: bool = False, *, bold: bool = False) -> str:
    """Ours, the paper's in brackets and the difference, as far as they exist; the shown value may be bold."""
    factor = _factor(cell.metric)
    mark = "**" if bold else ""
    paper = "" if cell.paper is None else with_spread(cell.paper.mean, cell.paper.std, factor)
    dagger = CONTRADICTED if cell.elsewhere else ""
    if paper_only:
        return f"{mark}{paper}{mark}{dagger}"
    paper += dagger
    if cell.ours is None:
        return f"({paper})" if paper else "-"
    ours = f"{mark}{with_spread(cell.ours.mean, cell.ours.std, factor)}{mark}"
    if not paper:
        return ours
    gap = "" if cell.deviations is None else f" {cell.deviations:+.1f}σ"
    return f"{ours} ({paper}){gap}"


def _scale(metric: str) -> Shown | None:
    """How a metric is shown; active learning has the accuracy of each stage."""
    return ALL_SHOWN.get("acc" if metric.startswith(STAGE) else metric)


def _factor(metric: str) -> float:
    scale = _scale(metric)
    return 100 if scale is None else scale.factor


def _heading(metric: str) -> str:
    if metric.startswith(STAGE):
        return f"stage {metric.removeprefix(STAGE)} accuracy %"
    return ALL_SHOWN[metric].heading if metric in ALL_SHOWN else f"{metric} %"


def _terminal(header: list[str], rows: TextRows, *, styled: bool = False) -> str:
    table = Table()
    for name in header:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*map(_with_bold, row))
    console = Console(width=1 + sum(_widths(header, rows)), file=io.StringIO(), record=True)
    console.print(table)
    return console.export_text(styles=styled)


def _with_bold(cell: str) -> Text:
    parts = _BOLD.split(cell)  # plain, bold, plain, ...
    return Text.assemble(*((part, "bold" if number % 2 else "") for number, part in enumerate(parts)))


def markdown_table(header: list[str], rows: TextRows) -> str:
    """The same for a document."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines) + "\n"


def _latex(header: list[str], rows: TextRows) -> str:
    def line(cells: list[str]) -> str:
        return " & ".join(_BOLD.sub(r"\\textbf{\1}", cell.translate(LATEX)) for cell in cells) + r" \\"

    body = [line(header), r"\midrule", *map(line, rows)]
    columns = "l" * len(header)
    return (
        "\n".join([rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *body, r"\bottomrule", r"\end{tabular}"]) + "\n"
    )


LATEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "%_&#${}"}
    | {"±": r"$\pm$", "σ": r"$\sigma$", "×": r"$\times$", "³": r"$^3$", "†": r"$\dagger$"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)
FORMS: dict[str, Callable[[list[str], TextRows], str]] = {
    "terminal": _terminal,
    "markdown": markdown_table,
    "latex": _latex,
}

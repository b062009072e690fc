"""Any table of the paper next to the results in a folder."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from confrank.active.records import Curves, Experiment, load_curves
from confrank.analysis.repeats import Cell, Summary
from confrank.config import changes
from confrank.recipes import RECIPES
from confrank.study import ood
from confrank.study.active import ACTIVE
from confrank.study.catalogue import recipe
from confrank.study.paper import paper_tables
from confrank.study.plan import plan
from confrank.study.tables import (
    ACTIVE_TABLE,
    active_cells,
    grouped,
    label_of,
    load_results,
    our_cells,
    summary_of,
    table_cells,
)

ALL = "all"
RECORD = "record"
# The paper's tables that our own studies fill.
STUDIES: dict[str, tuple[str, ...]] = {
    "reproduction": (
        "table-clf-perf",
        "stable-clf-perf-cifar10",
        "stable-clf-perf-cifar100",
        "stable-clf-perf-svhn",
        "table-clf-ensemble-perf",
    ),
    "ood": ("table-ood-perf",),
    "active": (ACTIVE_TABLE,),
}
# Settings of active learning that the paper takes from its other experiments without naming them.
OPEN_SETTINGS = ("lr", "weight_decay")


def comparison_cells(table: str, results: Path) -> list[Cell]:
    """The paper's cells with our numbers where there are any, then our cells that the paper does not have.

    Active learning is in results/active, out-of-distribution detection in results/ood. The table `ALL` shows every
    classification result, whatever its settings. One of our own studies shows the rows of its plan, or of the
    paper's tables that it fills.
    """
    if table == RECORD:
        return _record_cells(results)
    if table in STUDIES:
        first: dict[tuple[str, ...], Cell] = {}
        for cell in (cell for part in STUDIES[table] for cell in comparison_cells(part, results)):
            first.setdefault(cell.key, cell)
        return [*first.values()]
    if table == ACTIVE_TABLE:
        return _active_cells(results / ACTIVE)
    if table in ood.TABLES:
        return _ood_cells(table, results / ood.OOD)
    ours = load_results(results)
    if table == ALL:
        return our_cells(grouped(ours), list(dict.fromkeys(metric for result in ours for metric in result.metrics)))
    return table_cells(table, ours)


def shown_cells(table: str, results: Path, *, paper_only: bool = False, ours_only: bool = False) -> list[Cell]:
    """The cells of a table by name, or those of the paper alone; an error if there is nothing to show."""
    if table not in table_names():
        raise ValueError(f"expected a table among {', '.join(table_names())}, but got {table!r}")
    if paper_only and ours_only:
        raise ValueError("expected --paper-only or --ours-only, but got both")
    if paper_only:
        if table not in paper_tables():
            raise ValueError(f"expected a table of the paper for --paper-only, but got {table}")
        return table_cells(table, [])
    if not results.is_dir():
        raise ValueError(f"expected a folder of results, but {results} is not a folder; --paper-only needs none")
    cells = comparison_cells(table, results)
    if not cells:
        raise ValueError(f"expected results in {results}, but there are none; `confrank study` writes them")
    return cells


def table_names() -> list[str]:
    """The tables of the paper, then ours."""
    return [*paper_tables(), ALL, RECORD, *STUDIES]


def _record_cells(results: Path) -> list[Cell]:
    """Accuracy and AURC of each training recipe on each data set, with the published AURC."""
    ours = grouped(load_results(results))
    cells = []
    for config in {replace(run, seed=0): None for run in plan(*recipe(RECORD)).runs}:
        group = ours.get((config.dataset, config.model, label_of(config.as_dict())), ())
        published = RECIPES[config.recipe].published.get(config.dataset)
        for metric in ("acc", "aurc"):
            paper = None if metric == "acc" or published is None else Summary(published, None, 1)
            names = config.dataset, config.model, f"{config.recipe}: {config.method}"
            cells.append(Cell(*names, "", metric, paper, summary_of(group, metric)))
    return sorted(cells, key=lambda cell: cell.dataset)


def of_the_paper(curves: Curves) -> bool:
    """Whether an experiment follows the paper's protocol, with any number of stages, trials and strategies."""
    return not changes(_letter(curves), curves.config)


def is_comparable(curves: Curves) -> bool:
    """Whether an experiment follows the paper's protocol, with any learning rate and weight decay."""
    letter = {key: value for key, value in _letter(curves).items() if key not in OPEN_SETTINGS}
    return not changes(letter, curves.config)


def _letter(curves: Curves) -> dict[str, Any]:
    return Experiment(dataset=curves.config["dataset"]).settings()


def _active_cells(folder: Path) -> list[Cell]:
    """The paper's table, then a row for each strategy with another learning rate or weight decay."""
    letter: dict[str, Curves] = {}
    others: list[Cell] = []
    for path in sorted(folder.glob("*.json")):
        one = load_curves(path)
        dataset = one.config["dataset"]
        if of_the_paper(one):
            if letter.setdefault(dataset, one) != one:
                raise ValueError(f"expected one experiment on {dataset}, but {path} has another")
        elif is_comparable(one):
            settings = "".join(f", {key.replace('_', ' ')} {one.config[key]:g}" for key in OPEN_SETTINGS)
            others += [
                replace(cell, method=f"{cell.method}{settings}")
                for cell in active_cells({dataset: one.values()})
                if cell.ours
            ]
    return [*active_cells({dataset: one.values() for dataset, one in letter.items()}), *others]


def _ood_cells(table: str, folder: Path) -> list[Cell]:
    ours = {cell.key: cell for cell in ood.ood_cells(ood.stored_results(folder))}
    paper = {cell.key: cell for cell in table_cells(table, [])}
    return [*(ours.get(key, cell) for key, cell in paper.items()),
            *(cell for key, cell in ours.items() if key not in paper)]  # fmt: skip

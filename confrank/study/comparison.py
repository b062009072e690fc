"""Any table of the paper next to the results in a folder."""

from pathlib import Path

from confrank.active.records import Curves, Experiment, load_curves
from confrank.config import changes
from confrank.metrics.repeats import Cell
from confrank.ood.results import OodResult, read_results
from confrank.study import ood
from confrank.study.tables import ACTIVE_TABLE, active_cells, grouped, load_results, our_cells, table_cells

ACTIVE, OOD, ALL = "active", "ood", "all"


def comparison_cells(table: str, results: Path) -> list[Cell]:
    """The paper's cells with our numbers where there are any, then our cells that the paper does not have.

    Active learning is in results/active, out-of-distribution detection in results/ood. The table `ALL` shows every
    classification result, whatever its settings.
    """
    if table == ACTIVE_TABLE:
        curves: dict[str, Curves] = {}
        for path in sorted((results / ACTIVE).glob("*.json")):
            one = load_curves(path)
            if of_the_paper(one) and curves.setdefault(one.config["dataset"], one) != one:
                raise ValueError(f"expected one experiment on {one.config['dataset']}, but {path} has another")
        return active_cells({dataset: one.values() for dataset, one in curves.items()})
    if table in ood.TABLES:
        return _ood_cells(table, results / OOD)
    ours = load_results(results)
    if table == ALL:
        return our_cells(grouped(ours), list(dict.fromkeys(metric for result in ours for metric in result.metrics)))
    return table_cells(table, ours)


def of_the_paper(curves: Curves) -> bool:
    """Whether an experiment follows the paper's protocol, with any number of stages, trials and strategies."""
    return not changes(Experiment(dataset=curves.config["dataset"]).settings(), curves.config)


def _ood_cells(table: str, folder: Path) -> list[Cell]:
    results: dict[tuple[str, str, str, str], OodResult] = {}
    for path in sorted(folder.glob("*.json")):
        for one in read_results(path):
            key = one.run, str(one.config), one.detector, one.out_set
            if one.protocol.is_of_the_paper and results.setdefault(key, one).metrics != one.metrics:
                raise ValueError(f"expected one result of {' '.join((one.run, *key[2:]))}, but {path} has another")
    ours = {cell.key: cell for cell in ood.ood_cells(results.values())}
    paper = {cell.key: cell for cell in table_cells(table, [])}
    return [*(ours.get(key, cell) for key, cell in paper.items()),
            *(cell for key, cell in ours.items() if key not in paper)]  # fmt: skip

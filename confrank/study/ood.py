"""Out-of-distribution results of several runs: mean and spread, next to the paper's numbers."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from confrank.analysis.repeats import Cell, summarise
from confrank.metrics.separation import DETECTION_METRICS
from confrank.ood.protocol import Protocol
from confrank.ood.results import Group, OodResult, read_results, results_json
from confrank.study.tables import label_of, table_cells

# The supplement's table contains the paper's, plus iSUN.
TABLES = "table-ood-perf", "stable-ood-perf"
# The folder of these results in the folder of results.
OOD = "ood"


def stored_results(folder: Path) -> list[OodResult]:
    """Every result of the paper's protocol in a folder; two files may repeat one, but not differ."""
    results: dict[tuple[str, str, str, str], OodResult] = {}
    for path in sorted(folder.glob("*.json")):
        for one in read_results(path):
            key = one.run, str(one.config), one.detector, one.out_set
            if one.protocol.is_of_the_paper and results.setdefault(key, one).metrics != one.metrics:
                raise ValueError(f"expected one result of {' '.join((one.run, *key[2:]))}, but {path} has another")
    return list(results.values())


def by_group(results: Iterable[OodResult]) -> dict[Group, list[OodResult]]:
    """The results on each out-set of runs that differ in their seed only."""
    groups: dict[Group, list[OodResult]] = {}
    for result in results:
        groups.setdefault(_group(result), []).append(result)
    return groups


def _group(result: OodResult) -> Group:
    config = result.config
    return Group(config["dataset"], config["model"], label_of(config), result.out_set)


def ood_cells(results: Iterable[OodResult]) -> list[Cell]:
    """A cell for each data set, network, method/detector, out-set and metric, over the runs that share them."""
    repeats: dict[tuple[Group, str], list[OodResult]] = {}
    for result in results:
        repeats.setdefault((_group(result), result.detector), []).append(result)
    paper, cells = {cell.key: cell.paper for cell in table_cells(TABLES[1], [])}, []
    for (group, detector), members in repeats.items():
        key = group._replace(method=f"{group.method}/{detector}")
        comparable = group.method == members[0].config["method"]
        for metric in DETECTION_METRICS:
            numbers = [value for result in members if (value := result.metrics[metric]) is not None]
            published = paper.get((*key, metric)) if comparable else None
            cells.append(Cell(*key, metric, published, summarise(numbers) if numbers else None))
    return cells


def summary_json(cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """Each cell as a flat object: what it is of, our number and the paper's."""
    names = ("dataset", "model", "method", "out_set", "metric")
    return [
        {
            **dict(zip(names, cell.key, strict=True)),
            "ours": {"mean": cell.ours.mean, "std": cell.ours.std, "n": cell.ours.n} if cell.ours else None,
            "paper": {"mean": cell.paper.mean, "std": cell.paper.std} if cell.paper else None,
        }
        for cell in cells
    ]


def detection_json(results: Iterable[OodResult], protocol: Protocol, environment: Mapping[str, Any]) -> str:
    """The content of a file of results, with their summary."""
    results = list(results)
    content = results_json(results, protocol, environment)
    return json.dumps({**content, "summary": summary_json(ood_cells(results))}, indent=1)

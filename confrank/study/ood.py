"""Out-of-distribution outcomes of several runs: mean and spread, beside the paper's where it has the cell."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confrank.config import RunConfig
from confrank.metrics.detection import KEYS
from confrank.metrics.repeats import Summary, summarise
from confrank.ood import Outcome, Protocol
from confrank.study.paper import table_values
from confrank.study.tables import Cell

TABLE = "table-ood-perf"
# Data set, network, method/detector, out-set, metric.
Place = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class ExaminedRun:
    """A run and what every detector did on every out-set."""

    name: str
    config: RunConfig
    outcomes: Sequence[Outcome]


def ood_cells(runs: Sequence[ExaminedRun]) -> list[Cell]:
    """A cell for each data set, network, method/detector, out-set and metric, over the runs that share them."""
    values: dict[Place, list[float]] = {}
    comparable: dict[Place, bool] = {}
    for run in runs:
        for outcome in run.outcomes:
            place = (run.config.dataset, run.config.model, f"{group_of(run.config)}/{outcome.detector}")
            for metric in KEYS:
                key = (*place, outcome.out_set, metric)
                comparable[key] = _of_the_paper(run.config)
                value = outcome.detection.metrics[metric]
                values.setdefault(key, []).extend([] if value is None else [value])
    paper = _paper_cells()
    return [
        Cell(*key, paper.get(key) if comparable[key] else None, summarise(found) if found else None)
        for key, found in values.items()
    ]


def group_of(config: RunConfig) -> str:
    """The method, with its weight or number of epochs where they are not the paper's.

    >>> group_of(RunConfig(method="crl-softmax", weight=0.5)), group_of(RunConfig(method="baseline", epochs=60))
    ('crl-softmax-weight0.5', 'baseline-60epochs')
    """
    weight = f"-weight{config.weight:g}" if config.method.startswith("crl-") and config.weight != 1 else ""
    return f"{config.method}{weight}" + ("" if config.epochs == RunConfig.epochs else f"-{config.epochs}epochs")


def _of_the_paper(config: RunConfig) -> bool:
    return group_of(config) == config.method


def _paper_cells() -> dict[Place, Summary]:
    return {
        (value.dataset, value.model, value.method, value.out_set, value.metric): Summary(value.mean, value.std, 5)
        for value in table_values(TABLE)
    }


def ood_json(runs: Sequence[ExaminedRun], protocol: Protocol) -> dict[str, Any]:
    """Everything but the scores: the protocol in words and numbers, each run's outcomes, and the summary."""
    return {
        "protocol": {
            "description": protocol.describe(),
            "num_tuning": protocol.num_tuning,
            "uses_foreign_images": protocol.num_tuning > 0,
            "seed": protocol.seed,
            "aupr": protocol.aupr,
        },
        "runs": [
            {"name": run.name, "config": run.config.as_dict(), "outcomes": [_outcome(one) for one in run.outcomes]}
            for run in runs
        ],
        "summary": [_summary(cell) for cell in ood_cells(runs)],
    }


def _outcome(one: Outcome) -> dict[str, Any]:
    return {
        "detector": one.detector,
        "out_set": one.out_set,
        "num_in": len(one.inside),
        "num_out": len(one.outside),
        "settings": one.settings,
        "metrics": one.detection.metrics,
        "undefined": one.detection.undefined,
        "notes": one.notes,
    }


def _summary(cell: Cell) -> dict[str, Any]:
    place = {name: getattr(cell, name) for name in ("dataset", "model", "method", "out_set", "metric")}
    ours = {"mean": cell.ours.mean, "std": cell.ours.std, "n": cell.ours.n} if cell.ours else None
    paper = {"mean": cell.paper.mean, "std": cell.paper.std} if cell.paper else None
    return {**place, "ours": ours, "paper": paper}

"""Out-of-distribution outcomes of several runs: mean and spread, beside the paper's where it has the cell."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confrank.config import RunConfig
from confrank.metrics.repeats import Summary, summarise
from confrank.metrics.separation import DETECTION_METRICS
from confrank.ood import Outcome, Protocol
from confrank.study.paper import table_values
from confrank.study.tables import Cell, label_of

# The supplement's table holds the paper's, and iSUN besides.
TABLES = "table-ood-perf", "stable-ood-perf"
# Data set, network, method/detector, out-set, metric.
Place = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class ExaminedRun:
    """A run and what every detector did on every out-set."""

    name: str
    config: RunConfig
    outcomes: Sequence[Outcome]


@dataclass(frozen=True)
class Found:
    """The metrics of one run's detector on one out-set; `tuned`: by the paper's protocol."""

    run: str
    config: RunConfig
    detector: str
    out_set: str
    metrics: Mapping[str, float | None]
    tuned: bool


def ood_cells(found: Iterable[Found]) -> list[Cell]:
    """A cell for each data set, network, method/detector, out-set and metric, over the runs that share them."""
    values: dict[Place, list[float]] = {}
    comparable: dict[Place, bool] = {}
    for one in found:
        label = label_of(one.config.as_dict())
        place = (one.config.dataset, one.config.model, f"{label}/{one.detector}", one.out_set)
        for metric in DETECTION_METRICS:
            key = (*place, metric)
            comparable[key] = label == one.config.method
            value = one.metrics[metric]
            values.setdefault(key, []).extend([] if value is None else [value])
    paper = _paper_cells()
    return [
        Cell(*key, paper.get(key) if comparable[key] else None, summarise(numbers) if numbers else None)
        for key, numbers in values.items()
    ]


def found_in(runs: Sequence[ExaminedRun], protocol: Protocol) -> list[Found]:
    """What has just been measured."""
    return [
        Found(run.name, run.config, one.detector, one.out_set, one.detection.metrics, _is_usual(protocol))
        for run in runs
        for one in run.outcomes
    ]


def _is_usual(protocol: Protocol) -> bool:
    return (protocol.num_tuning, protocol.aupr) == (Protocol.num_tuning, Protocol.aupr)


def kept_in(path: Path) -> list[Found]:
    """What a file of `ood_json` holds."""
    try:
        content = json.loads(path.read_text())
        told = content["protocol"]
        tuned = _is_usual(Protocol(num_tuning=told["num_tuning"], aupr=told["aupr"]))
        return [
            Found(
                Path(run["name"]).name,
                RunConfig.from_dict(run["config"]),
                one["detector"],
                one["out_set"],
                one["metrics"],
                tuned,
            )
            for run in content["runs"]
            for one in run["outcomes"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"expected a file that `confrank ood --json` wrote, but {path} is none: {error}") from None


def _paper_cells() -> dict[Place, Summary]:
    return {
        (value.dataset, value.model, value.method, value.out_set, value.metric): Summary(value.mean, value.std, 5)
        for value in table_values(TABLES[1])
    }


def ood_json(runs: Sequence[ExaminedRun], protocol: Protocol, environment: Mapping[str, Any]) -> dict[str, Any]:
    """Everything but the scores: protocol, versions and hardware, each run's outcomes, and the summary."""
    return {
        "protocol": {
            "description": protocol.describe(),
            "num_tuning": protocol.num_tuning,
            "uses_foreign_images": protocol.num_tuning > 0,
            "seed": protocol.seed,
            "aupr": protocol.aupr,
        },
        "environment": dict(environment),
        "runs": [
            {
                # A file to be kept and passed on says nothing of where it was made.
                "name": Path(run.name).name,
                "config": run.config.as_dict(),
                "outcomes": [_outcome(one) for one in run.outcomes],
            }
            for run in runs
        ],
        "summary": [_summary(cell) for cell in ood_cells(found_in(runs, protocol))],
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

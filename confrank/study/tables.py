"""Our results beside the paper's: one cell per data set, network, method and metric."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confrank.metrics.repeats import Summary, summarise
from confrank.study.paper import ENSEMBLES, PaperValue, table_values
from confrank.study.results import Result, load_result


@dataclass(frozen=True)
class Cell:
    """A number of the paper and ours (None where there is none), raw; `deviations`: the gap in the paper's std."""

    dataset: str
    model: str
    method: str
    out_set: str
    metric: str
    paper: Summary | None
    ours: Summary | None

    @property
    def deviations(self) -> float | None:
        if self.ours is None or self.paper is None or not self.paper.std:
            return None
        return (self.ours.mean - self.paper.mean) / self.paper.std


def load_results(folder: Path) -> list[Result]:
    """Every result in a folder."""
    return [load_result(path) for path in sorted(folder.glob("*.json"))]


def table_cells(table: str, results: Sequence[Result]) -> list[Cell]:
    """The paper's table, in its order, with our values where there are full runs of the same protocol."""
    weight = ENSEMBLES.get(table, 1.0)
    return [_cell(value, _matching(value, results, weight)) for value in table_values(table)]


def _matching(value: PaperValue, results: Iterable[Result], weight: float) -> list[Result]:
    wanted = {"dataset": value.dataset, "model": value.model, "method": value.method, "epochs": 300}
    if "crl-" in value.method:
        wanted["weight"] = weight
    found = [result for result in results if all(result.config.get(key) == wish for key, wish in wanted.items())]
    return [result for result in found if "ensemble" not in value.method or len(result.config["members"]) == 5]


def _cell(value: PaperValue, results: Sequence[Result]) -> Cell:
    numbers = [number for result in results if (number := result.metrics.get(value.metric)) is not None]
    return Cell(
        value.dataset,
        value.model,
        value.method,
        value.out_set,
        value.metric,
        Summary(value.mean, value.std, 5 if value.std is not None else 1),
        summarise(numbers) if numbers else None,
    )


ACTIVE_TABLE = "stable-al-perf"
# The paper calls the strategy by what is trained: least confidence with CRL.
ACTIVE_STRATEGIES = {"crl-softmax": "least-confidence"}


def active_cells(curves: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]) -> list[Cell]:
    """The paper's accuracies stage by stage beside ours; `curves`: data set -> strategy -> [trials][stages]."""
    cells = []
    for value in table_values(ACTIVE_TABLE):
        strategy = ACTIVE_STRATEGIES.get(value.method, value.method)
        trials = curves.get(value.dataset, {}).get(strategy, ())
        place = int(value.metric.removeprefix("acc_stage")) - 1
        numbers = [trial[place] for trial in trials if place < len(trial)]
        paper = Summary(value.mean, value.std, 5)
        ours = summarise(numbers) if numbers else None
        cells.append(Cell(value.dataset, value.model, value.method, value.out_set, value.metric, paper, ours))
    return cells


def active_means(dataset: str) -> dict[str, list[float]]:
    """The paper's mean accuracies of each strategy, stage by stage."""
    means: dict[str, list[float]] = {}
    for value in table_values(ACTIVE_TABLE):
        if value.dataset == dataset:
            means.setdefault(ACTIVE_STRATEGIES.get(value.method, value.method), []).append(value.mean)
    return means

"""Our results next to the paper's: one cell per data set, network, method and metric."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confrank.analysis.repeats import Cell, Summary, summarise
from confrank.config import RECORDED, RunConfig, usual_settings
from confrank.data import LOADERS
from confrank.method_facts import facts_of
from confrank.study.paper import ENSEMBLES, PaperValue, contradictions, table_values
from confrank.study.results import Result, load_result

# Data set, network, label.
Setting = tuple[str, str, str]


def load_results(folder: Path) -> list[Result]:
    """Every result in a folder."""
    return [load_result(path) for path in sorted(folder.glob("*.json"))]


def label_of(config: Mapping[str, Any]) -> str:
    """The method, the recipe unless it is the paper's, the settings that differ from it, and the size of an ensemble.

    >>> label_of({"method": "baseline", "epochs": 60}), label_of({"method": "crl-softmax", "weight": 0.5})
    ('baseline-60epochs', 'crl-softmax-weight0.5')
    """
    recipe = config.get("recipe", "paper")
    method, usual = config["method"], usual_settings(config)
    differing = {key: value for key, value in config.items() if key in usual and value != usual[key]}
    weight = f"-weight{differing['weight']:g}" if "weight" in differing and facts_of(method).weighted else ""
    epochs = f"-{differing['epochs']}epochs" if "epochs" in differing else ""
    shown = ("dataset", "model", "method", "seed", "weight", "epochs", *RECORDED)
    others = [f"-{key}{value}" for key, value in differing.items() if key not in shown]
    trained = "" if recipe == "paper" else f"-{recipe}"
    return "".join((method, trained, weight, epochs, *others, size_of(config)))


def size_of(config: Mapping[str, Any]) -> str:
    """The size of an ensemble as the end of a label; empty for other methods."""
    return f" of {len(config['members'])}" if facts_of(config["method"]).ensemble else ""


def grouped(results: Sequence[Result]) -> dict[Setting, list[Result]]:
    """The results by data set, network and label: those of a group differ in their seed only."""
    groups: dict[Setting, list[Result]] = {}
    for result, dataset in zip(results, _data_names(results), strict=True):
        config = result.config
        group = groups.setdefault((dataset, config["model"], label_of(config)), [])
        for other in group:
            if all(config.get(key) == other.config.get(key) for key in ("seed", "members")):
                raise ValueError(
                    f"expected one result per run, but {other.name} and {result.name} are of the same run"
                )
        group.append(result)
    return groups


def _data_names(results: Sequence[Result]) -> list[str]:
    """The data set of each result; a custom one has one name for all its paths, and another one for other images.

    Digests are not compared for runs with held-out images, which depend on the seed; early results have no digest.
    """
    names: dict[tuple[str, str], str] = {}
    taken: dict[tuple[str, object], str] = {}
    datasets = []
    for result in results:
        name, digest = result.config["dataset"], result.environment.get("data")
        if digest is not None and not result.config.get("holdout"):
            if name not in LOADERS:
                name = names.setdefault((digest, os.path.basename(os.path.abspath(name))), name)
            if taken.setdefault((name, result.config.get("image_size")), digest) != digest:
                name = f"{name} ({digest[:6]})"
        datasets.append(name)
    return datasets


def table_cells(table: str, results: Sequence[Result]) -> list[Cell]:
    """The paper's table in its order, with our values where there are full runs with the same protocol.

    Ensembles of another size than the paper's five follow in separate rows.
    """
    groups, values = grouped(results), table_values(table)
    settings = {(value.dataset, value.model, _label(value)) for value in values}
    bases = set(map(_without_size, settings))
    others = {setting: group for setting, group in groups.items()
              if setting not in settings and _without_size(setting) in bases}  # fmt: skip
    cells = []
    for value in values:
        group = groups.get((value.dataset, value.model, _label(value)), ())
        cells.append(_cell(value, summary_of(group, value.metric)))
    return cells + our_cells(others, list(dict.fromkeys(value.metric for value in values)))


def our_cells(groups: Mapping[Setting, Sequence[Result]], metrics: Sequence[str]) -> list[Cell]:
    """Our results without the paper's, a row for each group."""
    return [Cell(*setting, "", metric, None, summary_of(group, metric)) for setting, group in groups.items()
            for metric in metrics]  # fmt: skip


def _label(value: PaperValue) -> str:
    """The label of the runs that the paper's number is from."""
    weight = ENSEMBLES.get(value.table, RunConfig.weight)
    size = {"members": range(5)} if facts_of(value.method).ensemble else {}
    return label_of({"method": value.method, "weight": weight, **size})


def _without_size(setting: Setting) -> Setting:
    dataset, model, label = setting
    return dataset, model, label.partition(" of ")[0]


def summary_of(results: Sequence[Result], metric: str) -> Summary | None:
    """Mean and spread of a metric over results that differ in their seed; None if no result has it."""
    numbers = [number for result in results if (number := result.metrics.get(metric)) is not None]
    return summarise(numbers) if numbers else None


def _cell(value: PaperValue, ours: Summary | None) -> Cell:
    others = tuple(map(_of_the_paper, contradictions().get(value, ())))
    return Cell(
        value.dataset, value.model, value.method, value.out_set, value.metric, _of_the_paper(value), ours, others
    )


def _of_the_paper(value: PaperValue) -> Summary:
    return Summary(value.mean, value.std, 5 if value.std is not None else 1)


ACTIVE_TABLE = "stable-al-perf"
# The paper names this strategy, least confidence, after its method.
ACTIVE_STRATEGIES = {"crl-softmax": "least-confidence"}


def active_cells(curves: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]) -> list[Cell]:
    """The paper's accuracies at each stage next to ours; `curves`: data set -> strategy -> [trials][stages]."""
    cells = []
    for value in table_values(ACTIVE_TABLE):
        strategy = ACTIVE_STRATEGIES.get(value.method, value.method)
        trials = curves.get(value.dataset, {}).get(strategy, ())
        stage = int(value.metric.removeprefix("acc_stage")) - 1
        numbers = [trial[stage] for trial in trials if stage < len(trial)]
        cells.append(_cell(value, summarise(numbers) if numbers else None))
    return cells


def active_means(dataset: str) -> dict[str, list[float]]:
    """The paper's mean accuracies of each strategy at each stage."""
    means: dict[str, list[float]] = {}
    for value in table_values(ACTIVE_TABLE):
        if value.dataset == dataset:
            means.setdefault(ACTIVE_STRATEGIES.get(value.method, value.method), []).append(value.mean)
    return means

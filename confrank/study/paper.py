"""The numbers of the paper's tables, read from `paper.csv`, with confrank's names and as raw fractions."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

OUR_DATASETS = {
    "CIFAR-10": "cifar10",
    "CIFAR-100": "cifar100",
    "SVHN": "svhn",
    "TinyImageNet": "tinyimagenet",
    "LSUN": "lsun",
    "iSUN": "isun",
    "": "",
}
OUR_MODELS = {"VGG-16": "vgg16", "ResNet110": "resnet110", "DenseNet": "densenet-bc", "ResNet18": "resnet18"}
OUR_METHODS = {
    "Baseline": "baseline",
    "CRL-softmax": "crl-softmax",
    "CRL-entropy": "crl-entropy",
    "CRL-margin": "crl-margin",
    "MCdropout": "mcdropout",
    "Aleatoric+MC": "aleatoric-mc",
    "AES(k=10)": "aes-10",
    "AES(k=30)": "aes-30",
    "random": "random",
    "entropy": "entropy",
    "coreset": "core-set",
    "MC-entropy": "mc-entropy",
}
OUR_DETECTORS = {"msp": "max-probability", "odin": "odin", "mahalanobis": "mahalanobis", "": ""}
OUR_METRICS = {"eaurc": "e_aurc", "aupr_err": "aupr_error"}
# The file has AURC and E-AURC times 1000, NLL times 10, and everything else in percent.
UNITS = {"aurc": 1e-3, "e_aurc": 1e-3, "nll": 1e-1}
ENSEMBLES = {"table-clf-ensemble-perf": 0.5, "stable-clf-ensemble-weight0.5": 0.5, "stable-clf-ensemble-weight1": 1.0}


@dataclass(frozen=True)
class PaperValue:
    """One number of the paper with its standard deviation over five runs (None for ensembles: one each)."""

    table: str
    dataset: str
    model: str
    method: str
    out_set: str
    metric: str
    mean: float
    std: float | None


@cache
def paper_values() -> tuple[PaperValue, ...]:
    """Every number of every table."""
    text = (files("confrank.study") / "paper.csv").read_text()
    return tuple(_value(row) for row in csv.DictReader(text.splitlines()))


def paper_tables() -> list[str]:
    """The names of the tables, in the paper's order."""
    return list(dict.fromkeys(value.table for value in paper_values()))


def table_values(table: str) -> list[PaperValue]:
    """The numbers of one table."""
    if table not in paper_tables():
        raise ValueError(f"expected a table among {', '.join(paper_tables())}, but got {table!r}")
    return [value for value in paper_values() if value.table == table]


@cache
def contradictions() -> dict[PaperValue, tuple[PaperValue, ...]]:
    """The values of cells that stand in two tables with different numbers, each with the other numbers."""
    cells: dict[tuple[object, ...], list[PaperValue]] = {}
    for value in paper_values():
        cell = value.dataset, value.model, value.method, value.out_set, value.metric, ENSEMBLES.get(value.table)
        cells.setdefault(cell, []).append(value)
    return {
        value: others
        for values in cells.values()
        for value in values
        if (others := tuple(other for other in values if (other.mean, other.std) != (value.mean, value.std)))
    }


def _value(row: dict[str, str]) -> PaperValue:
    metric = OUR_METRICS.get(row["metric"], row["metric"])
    unit = UNITS.get(metric, 1e-2)
    name, slash, detector = row["method"].partition("/")
    method = f"{OUR_METHODS[name]}{slash}{OUR_DETECTORS[detector]}"
    if row["table"] in ENSEMBLES:
        method = f"ensemble-{method}"
    return PaperValue(
        row["table"],
        OUR_DATASETS[row["dataset"]],
        OUR_MODELS[row["model"]],
        method,
        OUR_DATASETS[row["ood"]],
        metric,
        float(row["mean"]) * unit,
        float(row["std"]) * unit if row["std"] else None,
    )

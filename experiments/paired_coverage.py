"""How often does a 95% interval of a paired difference contain the true difference, and how often is p below 0.05?

    python experiments/paired_coverage.py RESULTS.jsonl [--sizes 50 100] [--repetitions 300] [--seed 17] [--rounded]
    python experiments/paired_coverage.py RESULTS.jsonl --repetitions 0

Two models of the same rows: a row's logits are three normal variables, of which that of the true class is raised, and
a share of their variance is common to both models (0.5, 0.9, 0.99). In `scores` both models have the same predictions
and differ in the confidence alone, each with noise of its own. Under `none` both models are equally good; under
`some` the second raises the true class by more (in `scores`: has more noise), by about two standard errors of a
difference. The true difference is that of 2,000,000 rows. `percentiles` is what confrank gave for all metrics before
2026-11; `confrank` is what it gives now. `--rounded` measures NLL alone, of probabilities with two decimals.

Measures the cells that the results lack, and appends a line per cell and metric; with 0 repetitions, nothing is
measured. Prints the table of docs/evidence/intervals.md, the same over cells by the expected number of errors with
all columns, and the cells.
"""

import argparse
import json
import math
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import softmax

from confrank.metrics import PairedDifference, Samples, bootstrap, evaluation_of, paired_differences, sample_values

Floats = NDArray[np.float64]
Pair = tuple[Samples, Samples]
Cell = tuple[int, str, float, str]
KEYS = ("acc", "aurc", "e_aurc", "augrc", "aupr_error", "fpr95", "auroc", "nll", "brier")
RESAMPLES, POPULATION, CHUNK = 500, 2_000_000, 500_000
NOISE = 0.7
# Expected errors of a cell (n times error rate) over which the tables average.
ERRORS = ((1, 4), (5, 10), (15, 30), (50, 200))
ERROR_TEXTS = [f"{low} to {high}" for low, high in ERRORS]
# Cells in which fewer repetitions had an interval are left out of these averages.
FEWEST = 40
NAMES = ("covered_percentiles", "covered", "below_percentiles", "below")
SHOWN = {
    "aurc": "AURC",
    "e_aurc": "E-AURC",
    "augrc": "AUGRC",
    "aupr_error": "AUPR-Error",
    "nll": "NLL",
    "brier": "Brier",
}
COLUMNS = "repetitions | covered by percentiles % | by confrank % | p < 0.05, percentiles % | confrank % | width"
Row = dict[str, Any]


def raised(error_rate: float) -> float:
    """By how much the true class is raised for this error rate."""
    noise = np.random.default_rng(0).normal(size=(400_000, 3))

    def excess(by: float) -> float:
        return float((noise[:, 1:].max(axis=1) > noise[:, 0] + by).mean()) - error_rate

    return float(brentq(excess, 0.05, 6, xtol=1e-4))


def change(size: int, common: str, error_rate: float) -> float:
    """The relative change of the second model under `some`: about two standard errors of a difference in AURC."""
    if common == "scores":
        return min(2.0, 12 / math.sqrt(size * error_rate))
    return min(0.3, 2 * math.sqrt((1 - float(common)) / (size * error_rate)))


def drawn(size: int, common: str, by: float, more: float, rounded: bool, rng: np.random.Generator) -> Pair:
    label, shared = rng.integers(0, 3, size), rng.normal(size=(size, 3))
    models = []
    for factor in (1.0, 1 + more):
        own = rng.normal(size=(size, 3))
        if common == "scores":
            logits = shared.copy()
            logits[np.arange(size), label] += by
            prediction = logits.argmax(axis=1)
            noisy = softmax(by * (logits + NOISE * factor * own), axis=1)
            models.append(Samples(noisy[np.arange(size), prediction], prediction == label))
            continue
        logits = math.sqrt(float(common)) * shared + math.sqrt(1 - float(common)) * own
        logits[np.arange(size), label] += factor * by
        probabilities = softmax(factor * by * logits, axis=1)
        if rounded:
            probabilities = probabilities.round(2)
            probabilities /= probabilities.sum(axis=1, keepdims=True)
        models.append(sample_values(probabilities=probabilities, label=label))
    return models[0], models[1]


def true_differences(common: str, by: float, more: float, rounded: bool, seed: int) -> Floats:
    if not more:
        return np.zeros(len(KEYS))
    parts = []
    for number in range(POPULATION // CHUNK):
        pair = drawn(CHUNK, common, by, more, rounded, np.random.default_rng([seed, 1, number]))
        first, second = (evaluation_of(one).metrics for one in pair)
        parts.append([_minus(second[key], first[key]) for key in KEYS])
    return np.mean(parts, axis=0)


def _minus(second: float | None, first: float | None) -> float:
    return np.nan if first is None or second is None else second - first


def percentiles(resampled: Floats, gap: PairedDifference) -> tuple[float, float]:
    """Percentiles as before, with 0 where `gap`, of plain percentiles, has p > 0.05."""
    known = resampled[np.isfinite(resampled)]
    low, high = np.quantile(known, [0.025, 0.975], method="weibull") - (known.mean() - gap.value)
    return (min(low, 0.0), max(high, 0.0)) if gap.p > 0.05 else (float(low), float(high))


def measured(pair: Pair, truth: Floats, keys: tuple[str, ...], seed: int) -> Iterator[tuple[str, list[float]]]:
    """For each metric: whether percentiles cover the truth and p < 0.05, the same for confrank, and both widths."""
    metrics = [evaluation_of(one).metrics for one in pair]
    first, second = bootstrap(pair, RESAMPLES, seed=seed)
    plain, found = (
        paired_differences(first, second, *metrics),
        paired_differences(first, second, *metrics, samples=pair),
    )
    for key, true in zip(KEYS, truth, strict=True):
        gap, old = found[key], plain[key]
        if key not in keys or gap is None or old is None or not np.nanstd(second[key] - first[key]):
            continue
        assert (gap.p <= 0.05) == (not gap.low <= 0 <= gap.high), gap
        low, high = percentiles(second[key] - first[key], old)  # an area has the same p, but another interval
        before = [low <= true <= high, old.p <= 0.05]
        after = [gap.low <= true <= gap.high, gap.p <= 0.05]
        yield key, [*map(float, before + after), high - low, gap.high - gap.low]


def cell_rows(cell: Cell, repetitions: int, seed: int, rounded: bool) -> Iterator[Row]:
    """The results of a cell, one for each metric."""
    size, common, error_rate, effect = cell
    by, more = raised(error_rate), change(size, common, error_rate) if effect == "some" else 0.0
    truth = true_differences(common, by, more, rounded, seed)
    keys, found = ("nll",) if rounded else KEYS, dict[str, list[list[float]]]()
    for repetition in range(repetitions):
        rng = np.random.default_rng([seed, repetition, size, round(1000 * error_rate)])
        pair = drawn(size, common, by, more, rounded, rng)
        for key, row in measured(pair, truth, keys, repetition):
            found.setdefault(key, []).append(row)
    for key, rows in found.items():
        yield {"metric": key, **of_cell(cell, rounded), "repetitions": len(rows), **shares(rows)}


def of_cell(cell: Cell, rounded: bool) -> Row:
    return {**dict(zip(("n", "common", "error_rate", "difference"), cell, strict=True)), "rounded": rounded}


def shares(rows: list[list[float]]) -> dict[str, float]:
    values = np.array(rows)
    covered_percentiles, below_percentiles, covered, below = map(float, values[:, :4].mean(axis=0))
    width = float(np.median(values[:, 5]) / max(np.median(values[:, 4]), 1e-12))
    found = covered_percentiles, covered, below_percentiles, below, width
    return dict(zip((*NAMES, "width"), found, strict=True))


def over_cells(results: Iterable[Row]) -> dict[tuple[str, str, str], Row]:
    """By metric, difference and expected errors: means over cells, each weighted by its repetitions."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for one in results:
        errors = round(one["n"] * one["error_rate"], 6)
        for (low, high), text in zip(ERRORS, ERROR_TEXTS, strict=True):
            if low <= errors <= high and one["repetitions"] >= FEWEST:
                groups.setdefault((one["metric"], one["difference"], text), []).append(one)
    order = sorted(groups, key=lambda group: (*group[:2], ERROR_TEXTS.index(group[2])))
    return {group: _mean(groups[group]) for group in order}


def _mean(cells: list[Row]) -> Row:
    weights = [one["repetitions"] for one in cells]
    means = {name: float(np.average([one[name] for one in cells], weights=weights)) for name in (*NAMES, "width")}
    return {"cells": len(cells), "repetitions": sum(weights), **means}


def table(headings: Iterable[str], results: Iterable[tuple[Iterable[object], Row]]) -> list[str]:
    """One line of Markdown per result: what it is of, and its columns."""
    head = f"| {' | '.join(headings)} | {COLUMNS} |"
    lines = [head, "|" + "---|" * (head.count(" | ") + 1)]
    for of, one in results:
        texts = [f"{one['repetitions']:,}", *(f"{100 * one[name]:.1f}" for name in NAMES), f"{one['width']:.2f}"]
        lines.append(f"| {' | '.join([*map(str, of), *texts])} |")
    return lines


def short_table(means: dict[tuple[str, str, str], Row], difference: str, name: str) -> list[str]:
    """A share of confrank, and in brackets that of percentiles, by metric and errors; of three cells at least."""
    lines = [f"| metric | {' | '.join(ERROR_TEXTS).replace(' |', ' errors |', 1)} |", "|---|" + "---|" * len(ERRORS)]
    for metric, heading in SHOWN.items():
        found = [means.get((metric, difference, errors)) for errors in ERROR_TEXTS]
        cells = [
            "-" if one is None or one["cells"] < 3 else f"{one[name]:.1%} ({one[f'{name}_percentiles']:.1%})"
            for one in found
        ]
        lines.append(f"| {heading} | {' | '.join(cells)} |")
    return lines


def printed(results: list[Row]) -> list[str]:
    """All tables."""
    plain, rounded = ([one for one in results if one["rounded"] is kind] for kind in (False, True))
    means = over_cells(plain)
    lines = ["## Covered, where the models differ", "", *short_table(means, "some", "covered"), ""]
    lines += ["## p < 0.05, where the models are equally good", "", *short_table(means, "none", "below"), ""]
    by_errors = [((*group, one["cells"]), one) for group, one in means.items()]
    lines += ["## Over cells, by the expected number of errors", ""]
    lines += table(("metric", "difference", "errors", "cells"), by_errors)
    headings = ("metric", "n", "common", "error rate", "difference")
    for title, part in (("NLL of probabilities rounded to two decimals", rounded), ("Cells", plain)):
        cells = [
            ((one["metric"], f"{one['n']:,}", one["common"], one["error_rate"], one["difference"]), one)
            for one in part
        ]
        lines += ["", f"## {title}", "", *table(headings, cells)]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 100, 300, 1000, 10_000])
    parser.add_argument("--error-rates", type=float, nargs="+", default=[0.02, 0.05, 0.2])
    parser.add_argument("--common", nargs="+", default=["0.5", "0.9", "0.99", "scores"])
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--rounded", action="store_true")
    given = parser.parse_args()
    results = [json.loads(line) for line in given.results.read_text().splitlines()] if given.results.exists() else []
    cells = product(given.sizes, given.common, given.error_rates, ("none", "some")) if given.repetitions else ()
    for cell in cells:
        of = of_cell(cell, given.rounded)
        if any(of.items() <= one.items() for one in results):
            continue
        found = [{**one, "seed": given.seed} for one in cell_rows(cell, given.repetitions, given.seed, given.rounded)]
        with given.results.open("a") as file:
            file.writelines(f"{json.dumps(one)}\n" for one in found)
        results += found
    print(*printed(results), sep="\n")


if __name__ == "__main__":
    main()

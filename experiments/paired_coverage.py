"""How often does a 95% interval of a paired difference contain the true difference, and how often is p below 0.05?

    python experiments/paired_coverage.py --sizes 50 100 --repetitions 300 [--seed 17] [--rounded]

Two models of the same rows: a row's logits are three normal variables, of which that of the true class is raised, and
a share of their variance is common to both models (0.5, 0.9, 0.99). In `scores` both models have the same predictions
and differ in the confidence alone, each with noise of its own. Under `none` both models are equally good; under
`some` the second raises the true class by more (in `scores`: has more noise), by about two standard errors of a
difference. The true difference is that of 2,000,000 rows. `percentiles` is what confrank gave for all metrics before
2026-11; `confrank` is what it gives now. `--rounded` measures NLL alone, of probabilities with two decimals. Prints a
table of cells, then one over cells by the number of errors, then one JSON line.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from itertools import product

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
# Pairs with fewer errors than the first of these in either model say little.
ERRORS = ((2, 4), (5, 9), (10, 29), (30, 10**9))


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


def cell_rows(cell: Cell, repetitions: int, seed: int, rounded: bool) -> Iterator[tuple[str, int, list[float]]]:
    size, common, error_rate, effect = cell
    by, more = raised(error_rate), change(size, common, error_rate) if effect == "some" else 0.0
    truth = true_differences(common, by, more, rounded, seed)
    keys = ("nll",) if rounded else KEYS
    for repetition in range(repetitions):
        rng = np.random.default_rng([seed, repetition, size, round(1000 * error_rate)])
        pair = drawn(size, common, by, more, rounded, rng)
        few = min(int((~one.correct).sum()) for one in pair)
        for key, row in measured(pair, truth, keys, repetition):
            yield key, few, row


def summary(rows: list[list[float]]) -> dict[str, float]:
    values = np.array(rows)
    shares = values[:, :4].mean(axis=0)
    names = ("covered_percentiles", "below_percentiles", "covered", "below")
    width = float(np.median(values[:, 5]) / max(np.median(values[:, 4]), 1e-12))
    return {**dict(zip(names, map(float, shares), strict=True)), "width": width, "repetitions": len(rows)}


def line(head: list[str], one: dict[str, float]) -> str:
    names = ("covered_percentiles", "covered", "below_percentiles", "below")
    texts = [f"{one['repetitions']:,}", *(f"{100 * one[name]:.1f}" for name in names), f"{one['width']:.2f}"]
    return f"| {' | '.join(head + texts)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 100, 300, 1000, 10_000])
    parser.add_argument("--error-rates", type=float, nargs="+", default=[0.02, 0.05, 0.2])
    parser.add_argument("--common", nargs="+", default=["0.5", "0.9", "0.99", "scores"])
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--rounded", action="store_true")
    arguments = parser.parse_args()
    start, cells, by_errors = time.perf_counter(), [], dict[tuple[str, str, str], list[list[float]]]()
    columns = "repetitions | covered by percentiles % | by confrank % | p < 0.05, percentiles % | confrank % | width"
    print(f"| metric | n | common | error rate | difference | {columns} |\n|{'---|' * 11}")
    for cell in product(arguments.sizes, arguments.common, arguments.error_rates, ("none", "some")):
        rows: dict[str, list[list[float]]] = {}
        for key, few, row in cell_rows(cell, arguments.repetitions, arguments.seed, arguments.rounded):
            rows.setdefault(key, []).append(row)
            for low, high in ERRORS:
                if low <= few <= high:
                    name = f"{low}-{high}" if high < 10**9 else f"{low} or more"
                    by_errors.setdefault((key, cell[3], name), []).append(row)
        for key, values in rows.items():
            print(line([key, f"{cell[0]:,}", *map(str, cell[1:])], summary(values)), flush=True)
            cells.append({"cell": [key, *cell], **summary(values)})
    print(f"\n| metric | difference | errors | {columns} |\n|{'---|' * 9}")
    totals = {name: summary(rows) for name, rows in sorted(by_errors.items(), key=lambda one: KEYS.index(one[0][0]))}
    for name, total in totals.items():
        print(line([*name], total))
    print(
        f"\n{arguments.repetitions} repetitions a cell, seed {arguments.seed}, {time.perf_counter() - start:.0f} s\n"
    )
    print(json.dumps({"arguments": vars(arguments), "totals": [{"of": [*k], **v} for k, v in totals.items()]}))


if __name__ == "__main__":
    main()

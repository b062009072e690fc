"""How often does a 95% interval contain the true value, in worlds that are hard in different ways?

    python experiments/interval_worlds.py RESULTS.jsonl [--repetitions 1000] [--sizes 50 200 1000 2000] [--seed 17]
    python experiments/interval_worlds.py RESULTS.jsonl --repetitions 0

Files are drawn from populations in which the chance of each row to be wrong is known: calibrated models with 1%, 5%
and 20% errors; one with 2% confident errors; one whose confidence is exactly 1 in 84% of the rows; one with three
values; one with 1% wrong labels; one that guesses its confidence, with 40% errors. The true value is that of the
population: of 1,000,000 rows, with the chances themselves instead of drawn errors. The expected AURC of n rows is
higher than that, by up to 6% for n = 50 and 2% for n = 200, far less than an interval is wide. Clusters: 100 clusters
of 20 rows whose chances share a part, judged with clusters and, for comparison, without. Coverage is in per cent.

Measures the cells that the results lack, with 1,000 repetitions in about 15 minutes on one core, and appends a line
per cell and metric; with 0 repetitions, nothing is measured. Prints the tables of docs/evidence/intervals.md and all
cells.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from confrank.metrics import Samples, bootstrap, evaluation_of, intervals_of, sample_values
from confrank.metrics.areas import best_aurc

Floats = NDArray[np.float64]
Drawn = tuple[Floats, Floats]  # the confidence and the chance of being wrong of each row
Row = dict[str, Any]
AREAS = ("aurc", "e_aurc", "augrc")
KEYS = (*AREAS, "naurc", "acc", "fpr95", "auroc", "nll_correct", "brier_correct")
# Expected errors over which a table takes the lowest and the highest coverage.
ERRORS = ((2, 19), (20, 99), (100, 800))
POPULATION, CLUSTERS, CLUSTER_SIZE = 1_000_000, 100, 20
# Of the metrics that need some: fewer than `evaluate` takes.
RESAMPLES = 200


def calibrated(error_rate: float) -> Callable[[int, np.random.Generator], Drawn]:
    def draw(size: int, rng: np.random.Generator) -> Drawn:
        confidence = rng.beta(1 / error_rate - 1, 1, size)
        return confidence, 1 - confidence

    return draw


def confident_errors(size: int, rng: np.random.Generator) -> Drawn:
    confidence, wrong = calibrated(0.05)(size, rng)
    sure = rng.random(size) < 0.02
    confidence[sure], wrong[sure] = 1 - 0.01 * rng.random(np.count_nonzero(sure)), 1
    return confidence, wrong


def saturated(size: int, rng: np.random.Generator) -> Drawn:
    confidence, wrong = calibrated(0.2)(size, rng)
    sure = rng.random(size) < 0.84
    confidence[sure], wrong[sure] = 1, 0.01
    return confidence, wrong


def three_values(size: int, rng: np.random.Generator) -> Drawn:
    confidence = rng.choice([0.6, 0.8, 0.95], size, p=[0.2, 0.3, 0.5])
    return confidence, 1 - confidence


def label_noise(size: int, rng: np.random.Generator) -> Drawn:
    confidence, wrong = calibrated(0.05)(size, rng)
    return confidence, 0.99 * wrong + 0.01 * (1 - wrong)


def chance(size: int, rng: np.random.Generator) -> Drawn:
    return rng.random(size), np.full(size, 0.4)


def clustered(size: int, rng: np.random.Generator) -> Drawn:
    """Rows in clusters of 20, one after another: most of a row's confidence is that of its cluster."""
    shared = np.repeat(rng.normal(2, 1.5, -(-size // CLUSTER_SIZE)), CLUSTER_SIZE)[:size]
    confidence = expit(shared + rng.normal(0, 0.5, size))
    difficulty = np.repeat(rng.normal(0, 0.7, -(-size // CLUSTER_SIZE)), CLUSTER_SIZE)[:size]
    return confidence, 1 - expit(logit(confidence) + difficulty)


WORLDS: dict[str, Callable[[int, np.random.Generator], Drawn]] = {
    "calibrated, 1% errors": calibrated(0.01),
    "calibrated, 5% errors": calibrated(0.05),
    "calibrated, 20% errors": calibrated(0.2),
    "2% confident errors": confident_errors,
    "84% at exactly 1": saturated,
    "three values": three_values,
    "1% label noise": label_noise,
    "chance, 40% errors": chance,
}
WITH_CLUSTERS, WITHOUT = "100 clusters of 20", "100 clusters of 20, as rows"


def truth(draw: Callable[[int, np.random.Generator], Drawn]) -> dict[str, float]:
    """The metrics of the population: sums over its rows with the chance of an error instead of errors."""
    confidence, wrong = draw(POPULATION, np.random.default_rng(0))
    order = np.argsort(-confidence, kind="stable")
    confidence, wrong = confidence[order], wrong[order]
    starts = np.flatnonzero(np.append(True, confidence[1:] != confidence[:-1]))
    sizes = np.diff(starts, append=POPULATION)
    errors = np.add.reduceat(wrong, starts)
    spread = np.repeat(errors / sizes, sizes)  # each row of a tie has the mean of it
    error_rate, accepted = float(wrong.mean()), np.arange(1, POPULATION + 1)
    area = float((np.cumsum(spread) / accepted).mean())
    least = float(best_aurc(np.array(error_rate)))
    rights, all_errors = np.cumsum(sizes - errors), np.cumsum(errors)
    right = sizes - errors
    won = right @ (all_errors[-1] - all_errors + errors / 2)
    point = int((rights >= 0.95 * rights[-1]).argmax())
    nearest = np.finfo(float).tiny
    return {
        "acc": 1 - error_rate,
        "aurc": area,
        "e_aurc": area - least,
        "naurc": (area - least) / (error_rate - least),
        "augrc": float(np.cumsum(spread).mean() / POPULATION),
        "fpr95": float(all_errors[point] / all_errors[-1]),
        "auroc": float(won / (rights[-1] * all_errors[-1])),
        "nll_correct": float(
            -(
                (1 - wrong) * np.log(np.maximum(confidence, nearest))
                + wrong * np.log(np.maximum(1 - confidence, nearest))
            ).mean()
        ),
        "brier_correct": float(((1 - wrong) * (1 - confidence) ** 2 + wrong * confidence**2).mean()),
    }


def measured(
    name: str, size: int, repetitions: int, seed: int, keys: Sequence[str] = KEYS, num_resamples: int = RESAMPLES
) -> list[Row]:
    """Coverage and width of the interval of each metric over files of this many rows, one row per metric."""
    draw = clustered if name in (WITH_CLUSTERS, WITHOUT) else WORLDS[name]
    true, limits, wrongs = truth(draw), {key: [] for key in keys}, 0
    for repetition in range(repetitions):
        rng = np.random.default_rng([seed, size, repetition, *name.encode()])
        confidence, wrong = draw(size, rng)
        correct = rng.random(size) >= wrong
        wrongs += np.count_nonzero(~correct)
        samples = sample_values(confidence=confidence, correct=correct)
        if name == WITH_CLUSTERS:
            samples = replace(samples, cluster=np.arange(size) // CLUSTER_SIZE)
        for key, interval in _intervals(samples, keys, num_resamples, repetition).items():
            limits[key].append((np.nan, np.nan) if interval is None else (interval.low, interval.high))
    rows = []
    for key in keys:
        low, high = np.array(limits[key]).T
        known = np.isfinite(low)
        row: Row = {"world": name, "n": size, "metric": key, "true": true[key], "errors": wrongs / repetitions}
        row |= {"repetitions": repetitions, "intervals": int(known.sum()), "seed": seed}
        if known.any():
            too_high, too_low = (low > true[key] + 1e-9)[known].mean(), (high < true[key] - 1e-9)[known].mean()
            row |= {"covered": 1 - too_high - too_low, "too_high": too_high, "too_low": too_low}
            row |= {"width": float((high - low)[known].mean())}
        rows.append(row)
    return rows


def _intervals(samples: Samples, keys: Sequence[str], num_resamples: int, seed: int) -> dict[str, Any]:
    metrics = {key: value for key, value in evaluation_of(samples).metrics.items() if key in keys}
    (resampled,) = bootstrap([samples], num_resamples, seed) if num_resamples else ({},)
    found = intervals_of(samples, metrics, resampled)
    return {key: found.get(key) for key in keys}


def worlds_table(rows: Sequence[Row]) -> list[str]:
    """A line per world and a column per n: the coverage of the three areas."""
    sizes = sorted({row["n"] for row in rows if row["world"] in WORLDS})
    lines = [f"| world | {' | '.join(f'n = {size:,}' for size in sizes)} |", "|" + "---|" * (1 + len(sizes))]
    for world in WORLDS:
        cells = []
        for size in sizes:
            found = {row["metric"]: row for row in rows if (row["world"], row["n"]) == (world, size)}
            cells.append(" / ".join(f"{100 * found[key]['covered']:.1f}" for key in AREAS))
        lines.append(f"| {world} | {' | '.join(cells)} |")
    return lines


def others_table(rows: Sequence[Row]) -> list[str]:
    """A line per metric and a column per range of expected errors: lowest and highest coverage over worlds and n.

    Only where at least half of the files have an interval.
    """
    lines = [f"| metric | {' | '.join(f'{low} to {high} errors' for low, high in ERRORS)} |", "|---|---|---|---|"]
    for key in KEYS:
        cells = []
        for low, high in ERRORS:
            found = [
                100 * row["covered"]
                for row in rows
                if row["world"] in WORLDS
                and row["metric"] == key
                and low <= round(row["errors"]) <= high
                and row["intervals"] >= row["repetitions"] / 2
            ]
            cells.append(f"{min(found):.1f} to {max(found):.1f}" if found else "-")
        lines.append(f"| {SHOWN[key]} | {' | '.join(cells)} |")
    return lines


def clusters_table(rows: Sequence[Row]) -> list[str]:
    lines = ["| metric | with clusters | as rows |", "|---|---|---|"]
    covered = {(row["world"], row["metric"]): row.get("covered") for row in rows}
    for key in KEYS:
        shares = [covered.get((world, key)) for world in (WITH_CLUSTERS, WITHOUT)]
        lines.append(f"| {SHOWN[key]} | {' | '.join('-' if one is None else f'{100 * one:.1f}' for one in shares)} |")
    return lines


SHOWN = {
    "acc": "accuracy",
    "aurc": "AURC",
    "e_aurc": "E-AURC",
    "naurc": "NAURC",
    "augrc": "AUGRC",
    "fpr95": "FPR-95%-TPR",
    "auroc": "AUROC",
    "nll_correct": "NLL of being right",
    "brier_correct": "Brier of being right",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 200, 1000, 2000])
    parser.add_argument("--seed", type=int, default=17)
    arguments = parser.parse_args()
    known = arguments.results.read_text().splitlines() if arguments.results.exists() else []
    rows = [json.loads(line) for line in known]
    cells = [(name, size) for name in WORLDS for size in arguments.sizes]
    cells += [(name, CLUSTERS * CLUSTER_SIZE) for name in (WITH_CLUSTERS, WITHOUT)]
    for name, size in cells:
        known_keys = {row["metric"] for row in rows if (row["world"], row["n"]) == (name, size)}
        keys = [key for key in KEYS if key not in known_keys]
        if not arguments.repetitions or not keys:
            continue
        found = measured(name, size, arguments.repetitions, arguments.seed, keys)
        with arguments.results.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in found)
        rows += found
    print("## AURC / E-AURC / AUGRC\n", *worlds_table(rows), sep="\n")
    print("\n## All metrics\n", *others_table(rows), sep="\n")
    print("\n## Clusters\n", *clusters_table(rows), sep="\n")
    print("\n## All cells\n")
    print("| world | n | errors | metric | true | covered % | too high % | too low % | mean width | intervals |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        shares = [f"{100 * row[name]:.1f}" if name in row else "-" for name in ("covered", "too_high", "too_low")]
        width = f"{row['width']:.4f}" if "width" in row else "-"
        print(
            f"| {row['world']} | {row['n']:,} | {row['errors']:.1f} | {SHOWN[row['metric']]} | {row['true']:.4f} |"
            f" {' | '.join(shares)} | {width} | {row['intervals']:,} of {row['repetitions']:,} |"
        )


if __name__ == "__main__":
    main()

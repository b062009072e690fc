"""What is guaranteed and what comes, on predictions that others published.

    python experiments/published_predictions.py FOLDER [--repeats 200]

FOLDER is a checkout of github.com/cleanlab/label-errors. Its predicted probabilities are out of sample: 20
newsgroups, CIFAR-10 and IMDB. Each repetition splits a file at random. One half makes the guarantee, and the other
shows what comes:

- a threshold with a guaranteed error rate (delta = 0.1), conformal sets, and a selection with a false-discovery rate.
  "broken" is the share of splits whose threshold has a higher error rate than guaranteed on the whole file, the
  population that the half was drawn from;
- for IMDB, whose reviews have ratings, the monitor: the guarantee is made on 6,000 reviews with extreme ratings
  (1, 2, 9, 10). 1,000 other ones follow, and then 3,000 reviews with mild ratings (3, 4, 7, 8), which are harder.

Prints tables, then one JSON line.
"""

import argparse
import json
import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from confrank.decisions import UnreachableError, conformal_sets, guaranteed_threshold, monitor, select_with_fdr
from confrank.decisions.drift import reference_of

Array = NDArray[np.float64]
DELTA, LEVEL, FDR = 0.1, 0.9, 0.05
RISKS = {"20news": 0.02, "cifar10": 0.02, "imdb": 0.05}
BEFORE, AFTER, CALIBRATION = 1000, 3000, 6000
EXTREME = (1, 2, 9, 10)


def load(folder: Path, name: str) -> tuple[Array, NDArray[np.int64]]:
    table = np.load(folder / "cross_validated_predicted_probabilities" / f"{name}_test_set_pyx.npy")
    label = np.load(folder / "original_test_labels" / f"{name}_test_set_original_labels.npy").astype(np.int64)
    return table / table.sum(axis=1, keepdims=True), label


def ratings(folder: Path) -> NDArray[np.int64]:
    """The rating of each review, which its file name ends in."""
    names = json.loads((folder / "dataset_indexing" / "imdb_test_set_index_to_filename.json").read_text())
    return np.array([int(name.rpartition("_")[2].partition(".")[0]) for name in names])


def came(table: Array, label: NDArray[np.int64], risk: float, seed: int) -> dict[str, float]:
    """One split: what the guarantees of one half give on the other."""
    order = np.random.default_rng(seed).permutation(len(label))
    one, other = order[: len(order) // 2], order[len(order) // 2 :]
    confidence, right = table.max(axis=1), table.argmax(axis=1) == label
    try:
        threshold = guaranteed_threshold(confidence[one], right[one], risk, delta=DELTA).threshold
    except UnreachableError:
        threshold = np.inf
    accepted = confidence[other] >= threshold
    sets = conformal_sets(probabilities=table[one], label=label[one], level=LEVEL, method="aps", seed=seed)
    members = sets.sets(probabilities=table[other])
    chosen = select_with_fdr(confidence[one], right[one], confidence[other], FDR).selected
    return {
        "coverage": float(accepted.mean()),
        "broken": float((~right[confidence >= threshold]).mean() > risk),
        "error": float((~right[other][accepted]).mean()) if accepted.any() else np.nan,
        "hit": float(members[np.arange(len(other)), label[other]].mean()),
        "size": float(members.sum(axis=1).mean()),
        "selected": float(chosen.mean()),
        "fdp": float((~right[other][chosen]).mean()) if chosen.any() else 0.0,
    }


def watch(table: Array, label: NDArray[np.int64], rating: NDArray[np.int64], seed: int) -> dict[str, float | None]:
    """One repetition of the monitor: when it notices that mild reviews come, and whether it alarms before."""
    rng = np.random.default_rng(seed)
    extreme = rng.permutation(np.flatnonzero(np.isin(rating, EXTREME)))
    mild = rng.permutation(np.flatnonzero(~np.isin(rating, EXTREME)))
    confidence, right = table.max(axis=1), table.argmax(axis=1) == label
    made, new = extreme[:CALIBRATION], np.append(extreme[CALIBRATION : CALIBRATION + BEFORE], mild[:AFTER])
    point = guaranteed_threshold(confidence[made], right[made], RISKS["imdb"], delta=DELTA)
    accepted = confidence[new] >= point.threshold
    reference = reference_of(confidence[made])
    result = monitor(right[new], RISKS["imdb"], accepted=accepted, confidence=confidence[new], reference=reference)
    rate = (~right[new] & accepted)[BEFORE:].sum() / accepted[BEFORE:].sum()
    drift = result.drift.alarm if result.drift is not None else None
    return {"risk": result.watches[0].alarm_row, "drift": drift, "rate": float(rate)}


def promise_rows(folder: Path, repeats: int) -> Iterator[dict[str, float | str]]:
    for name, risk in RISKS.items():
        table, label = load(folder, name)
        runs = [came(table, label, risk, seed) for seed in range(repeats)]
        means = {key: float(np.nanmean([run[key] for run in runs])) for key in runs[0]}
        yield {"file": name, "n": len(label), "risk": risk, **means}


def delays(alarms: list[float | None]) -> dict[str, float]:
    early = [alarm is not None and alarm < BEFORE for alarm in alarms]
    later = [alarm - BEFORE + 1 for alarm in alarms if alarm is not None and alarm >= BEFORE]
    number = len(alarms) - sum(early)
    quantiles = np.quantile(later, [0.5, 0.95]).tolist() if later else [np.nan, np.nan]
    return {
        "early": float(np.mean(early)),
        "noticed": len(later) / number,
        "median": quantiles[0],
        "q95": quantiles[1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int, default=200)
    arguments = parser.parse_args()
    rows = [*promise_rows(arguments.folder, arguments.repeats)]
    print(f"{arguments.repeats} random halves of each file; delta {DELTA:g}, level {LEVEL:g}, FDR {FDR:g}")
    for row in rows:
        print(json.dumps({key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}))
    (table, label), rating = load(arguments.folder, "imdb"), ratings(arguments.folder)
    runs = [watch(table, label, rating, seed) for seed in range(arguments.repeats)]
    watched = {name: delays([run[name] for run in runs]) for name in ("risk", "drift")}
    watched["rate"] = {"mean": float(np.mean([run["rate"] for run in runs]))}
    print(json.dumps(watched, indent=1))
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    print(json.dumps({"versions": versions, "repeats": arguments.repeats, "promises": rows, "monitor": watched}))


if __name__ == "__main__":
    main()

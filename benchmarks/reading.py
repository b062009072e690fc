"""Join predictions with the labels of another file: time of `read(a, truth=b)` against reading both files.

    python benchmarks/reading.py [--rows 6] [--repeats 5]

`both` reads each file alone: the predictions with their labels in place, and the labels. `joined` reads the shuffled
predictions and finds their labels in the other file. The keys are whole numbers or file names. All times are of one
process, in turns; the files are in the page cache.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np

from confrank.predictions import read
from confrank.predictions.tables import Wanted, open_table

KEYS: dict[str, Callable[[int], str]] = {
    "numbers": str,
    "file names": lambda row: f"images/{row % 97:02d}/{row:08d}.png",
}


def write_files(folder: Path, rows: int, key: Callable[[int], str]) -> None:
    """`truth.csv`, `predictions.csv` in another order, and `complete.csv`, the predictions with their labels."""
    rng = np.random.default_rng(0)
    label, prediction = rng.integers(0, 10, (2, rows)).tolist()
    confidence, names = rng.random(rows).tolist(), [key(row) for row in range(rows)]
    order = rng.permutation(rows).tolist()
    lines = [f"{names[row]},{prediction[row]},{confidence[row]:.6f}" for row in order]
    (folder / "truth.csv").write_text(
        "\n".join(["id,label", *(f"{n},{y}" for n, y in zip(names, label, strict=True)), ""])
    )
    (folder / "predictions.csv").write_text("\n".join(["id,prediction,confidence", *lines, ""]))
    complete = [f"{line},{label[row]}" for line, row in zip(lines, order, strict=True)]
    (folder / "complete.csv").write_text("\n".join(["id,prediction,confidence,label", *complete, ""]))


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6, help="exponent of the number of rows of each file")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    results = []
    print(f"{os.cpu_count()} cores, {10**arguments.rows:,} x {10**arguments.rows:,} rows")
    print(f"{'keys':<12} {'both s':>8} {'joined s':>9} {'ratio':>6} {'lowest':>7} {'highest':>8}")
    for name, key in KEYS.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            write_files(folder, 10**arguments.rows, key)
            tasks: dict[str, Callable[[], object]] = {
                "complete": lambda folder=folder: read(folder / "complete.csv"),
                "truth": lambda folder=folder: open_table(folder / "truth.csv").load(
                    Wanted(words=["label"], keys=["id"])
                ),
                "joined": lambda folder=folder: read(folder / "predictions.csv", truth=folder / "truth.csv"),
            }
            runs: dict[str, list[float]] = {task: [] for task in tasks}
            for _ in range(arguments.repeats):
                for task, run in tasks.items():
                    runs[task].append(seconds(run))
            expected = read(folder / "complete.csv")
            joined = read(folder / "predictions.csv", truth=folder / "truth.csv")
            assert np.array_equal(joined.label, expected.label), "the join is exact"
        both = np.array(runs["complete"]) + np.array(runs["truth"])
        ratio = np.array(runs["joined"]) / both
        middle = [float(np.median(values)) for values in (both, runs["joined"], ratio)]
        shown = f"{middle[0]:>8.2f} {middle[1]:>9.2f} {middle[2]:>6.2f} {ratio.min():>7.2f} {ratio.max():>8.2f}"
        print(f"{name:<12} {shown}", flush=True)
        results.append({"keys": name, "rows": 10**arguments.rows, "seconds": runs, "ratio": ratio.tolist()})
    versions = {"python": platform.python_version(), **{name: version(name) for name in ("numpy", "pyarrow")}}
    print(json.dumps({"versions": versions, "results": results}))


if __name__ == "__main__":
    main()

"""Time and peak memory of reading 2 million rows of CSV and 5 million rows of Parquet with 10 classes.

    python benchmarks/tables.py [--against CHECKOUT] [--repeats 3] [--scale 1]

Each reading is a process of its own, in turns with one of another checkout of confrank; its peak of memory is the
kernel's. Files are in the page cache. `--scale 0.01` takes a hundredth of the rows.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

READ = """
import sys, time
from pathlib import Path
from confrank.predictions import read
started = time.process_time()
assert len(read(sys.argv[1])) == int(sys.argv[2])
seconds = time.process_time() - started
(line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(seconds, int(line.split()[1]) / 1e3)
"""


def table_of(rows: int) -> pa.Table:
    rng = np.random.default_rng(0)
    shares = rng.random((rows, 10))
    shares = (shares / shares.sum(axis=1, keepdims=True)).round(6)
    columns = {"id": np.arange(rows), "label": rng.integers(0, 10, rows)}
    return pa.table(columns | {f"probability_{number}": shares[:, number] for number in range(10)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout to compare with")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1)
    arguments = parser.parse_args()
    here = Path(__file__).resolve().parents[1]
    checkouts = [*([arguments.against] if arguments.against else []), here]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, rows in (("a.csv", int(2e6 * arguments.scale)), ("a.parquet", int(5e6 * arguments.scale))):
            path = Path(folder) / name
            (csv.write_csv if name.endswith("csv") else parquet.write_table)(table_of(rows), path)
            found: dict[str, list[list[float]]] = {str(checkout): [] for checkout in checkouts}
            for _ in range(arguments.repeats):
                for checkout, runs in found.items():
                    command = [sys.executable, "-c", READ, str(path), str(rows)]
                    output = subprocess.run(command, capture_output=True, text=True, check=True, cwd=checkout)
                    runs.append([float(number) for number in output.stdout.split()])
            for checkout, runs in found.items():
                seconds, peak = (statistics.median(values) for values in zip(*runs, strict=True))
                print(f"{name:<10} {rows:>9,} rows  {seconds:6.2f} s of CPU  {peak:6,.0f} MB  {checkout}", flush=True)
                results.append({"file": name, "rows": rows, "checkout": checkout, "runs": runs})
    print(json.dumps(results))


if __name__ == "__main__":
    main()

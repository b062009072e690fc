"""From a file to the finished page: time and memory of `confrank evaluate`, against parsing the file alone.

    python benchmarks/evaluate.py [--rows 6] [--pairs 8] [--repeats 5]

`parse pyarrow` reads the CSV with pyarrow.csv (all cores) into memory and does nothing else: the fastest common
reader here; numpy, polars and pandas are measured where they are installed, to show that it is. `page` is `confrank
evaluate FILE --report PAGE --resamples 0` inside a process that has imported what it needs; the `command` tasks are
both of these as shell commands, including start-up and imports. Each task runs in a separate process, in turns;
memory is the peak of the process. `pairs` evaluates npy rows of (confidence, correct), page included.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

CLASSES = 10
Result = TypeVar("Result")


def write_csv(path: Path, rows: int) -> None:
    """Label and ten calibrated probabilities with 8 decimals."""
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        file.write("label," + ",".join(f"probability_{k}" for k in range(CLASSES)) + "\n")
        for start in range(0, rows, 100_000):
            size = min(100_000, rows - start)
            table = rng.dirichlet(np.full(CLASSES, 0.2), size)
            label = (rng.random((size, 1)) > np.cumsum(table, axis=1)[:, :-1]).sum(axis=1)
            np.savetxt(file, np.column_stack([label, table]), fmt="%d" + ",%.8f" * CLASSES)


def write_pairs(path: Path, rows: int) -> None:
    """Float32 (confidence, correct), written in chunks."""
    rng = np.random.default_rng(0)
    both = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, 2))
    for start in range(0, rows, 10**7):
        part = both[start : start + 10**7]
        part[:, 0] = rng.random(len(part), dtype=np.float32)
        part[:, 1] = rng.random(len(part), dtype=np.float32) < part[:, 0]
    both.flush()


def parse_pyarrow(path: str) -> Callable[[], object]:
    from pyarrow import csv

    return lambda: csv.read_csv(path)


def parse_command(path: str) -> Callable[[], object]:
    arguments = [sys.executable, "-c", f"from pyarrow import csv; csv.read_csv({path!r})"]
    return lambda: subprocess.run(arguments, check=True)


def parse_numpy(path: str) -> Callable[[], object]:
    return lambda: np.loadtxt(path, delimiter=",", skiprows=1)


def parse_pandas(path: str) -> Callable[[], object]:
    import pandas

    return lambda: pandas.read_csv(path)


def parse_polars(path: str) -> Callable[[], object]:
    import polars

    return lambda: polars.read_csv(path)


def page(path: str) -> Callable[[], object]:
    from confrank.cli import main

    # A first, tiny run imports everything that a later one needs.
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.csv"
        with Path(path).open() as file:
            small.write_text("".join(next(file) for _ in range(50)))
        _quietly(lambda: main(["evaluate", str(small), "--report", f"{folder}/small.html", "--resamples", "0"]))
    return lambda: _quietly(lambda: main(["evaluate", path, "--report", f"{path}.html", "--resamples", "0"]))


def command(path: str) -> Callable[[], object]:
    arguments = [sys.executable, "-m", "confrank", "evaluate", path, "--report", f"{path}.html", "--resamples", "0"]
    return lambda: subprocess.run(arguments, check=True, capture_output=True)


def pairs(path: str) -> Callable[[], object]:
    from confrank.cli import main

    return lambda: _quietly(lambda: main(["evaluate", path, "--report", f"{path}.html", "--resamples", "0"]))


def _quietly(run: Callable[[], None]) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        run()


TASKS: dict[str, Callable[[str], Callable[[], object]]] = {
    "parse pyarrow": parse_pyarrow,
    "command parse": parse_command,
    "parse numpy": parse_numpy,
    "parse pandas": parse_pandas,
    "parse polars": parse_polars,
    "page": page,
    "command page": command,
    "pairs": pairs,
}


def measure(task: str, path: str) -> tuple[float, float]:
    """Seconds and the peak of memory in bytes."""
    run = TASKS[task](path)
    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    who = resource.RUSAGE_CHILDREN if task.startswith("command") else resource.RUSAGE_SELF
    return seconds, resource.getrusage(who).ru_maxrss * 1024


def apart(function: Callable[..., Result], *arguments: Any) -> Result:
    """What a function returns in a new process, whose time and memory nothing else has touched."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        return processes.submit(function, *arguments).result()


def resident(field: str) -> int:
    """Bytes of memory of this process (Linux): VmRSS now, or VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def row_of(task: str, rows: int, runs: list[tuple[float, float]]) -> dict[str, object]:
    seconds, memory = [run[0] for run in runs], max(run[1] for run in runs)
    best, middle = min(seconds), sorted(seconds)[len(seconds) // 2]
    print(f"{task:<14} {rows:>12,} {best:>8.2f} {middle:>8.2f} {max(seconds):>8.2f} {memory / 1e9:>8.2f}", flush=True)
    return {"task": task, "rows": rows, "seconds": seconds, "peak_bytes": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6, help="exponent of the number of CSV rows")
    parser.add_argument("--pairs", type=int, default=8, help="exponent of the number of npy rows")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        table, both = Path(folder) / "table.csv", Path(folder) / "pairs.npy"
        write_csv(table, 10**arguments.rows)
        readers = ["pyarrow", *(name for name in ("pandas", "polars") if importlib.util.find_spec(name))]
        tasks = [*(f"parse {name}" for name in readers), "page", "command parse", "command page"]
        print(f"{os.cpu_count()} cores, CSV of {table.stat().st_size / 1e6:.0f} MB")
        print(f"{'task':<14} {'rows':>12} {'best s':>8} {'median s':>8} {'worst s':>8} {'peak GB':>8}")
        runs: dict[str, list[tuple[float, float]]] = {task: [] for task in tasks}
        for _ in range(arguments.repeats):
            for task in tasks:
                runs[task].append(apart(measure, task, str(table)))
        rows += [row_of(task, 10**arguments.rows, results) for task, results in runs.items()]
        rows.append(row_of("parse numpy", 10**arguments.rows, [apart(measure, "parse numpy", str(table))]))
        print(f"page: {Path(f'{table}.html').stat().st_size / 1e6:.2f} MB")
        write_pairs(both, 10**arguments.pairs)
        rows.append(row_of("pairs", 10**arguments.pairs, [apart(measure, "pairs", str(both))]))
    medians = {str(row["task"]): float(np.median(row["seconds"])) for row in rows}  # type: ignore[arg-type]
    fastest = min((task for task in medians if task.startswith("parse")), key=lambda task: medians[task])
    inside, outside = medians["page"] / medians[fastest], medians["command page"] / medians["command parse"]
    print(f"fastest reader: {fastest}; the page takes {inside:.2f}x its time inside a process,")
    print(f"and {outside:.2f}x as commands with start and imports (medians)")
    packages = ("numpy", "pyarrow", "torch", "jinja2")
    versions = {"python": platform.python_version(), **{name: version(name) for name in packages}}
    print(json.dumps({"versions": versions, "rows": rows}))


if __name__ == "__main__":
    main()

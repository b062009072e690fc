"""Time and memory of `confrank scores`, against `confrank evaluate --resamples 0` on the same file.

    python benchmarks/scores.py [--rows 6] [--repeats 5]

The file is an npz of float64 logits with 10 classes. `scores` computes all eleven scores, fits three of them,
chooses one, and gives one paired interval. `inside` is the command inside a process that has imported what it needs;
`command` is the shell command, including start-up and imports. Each task runs in a separate process, in turns.
Memory is the peak of the process above what it had before the command, in multiples of the table (Linux). On a busy
machine, compare the seconds of processor time.
"""

import argparse
import contextlib
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from evaluate import apart, resident

CLASSES = 10
COMMANDS = {"evaluate": ["evaluate", "FILE", "--resamples", "0"], "scores": ["scores", "FILE"]}


def write(path: Path, rows: int) -> None:
    """Logits of an overconfident model and labels."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (rows, CLASSES))
    np.savez(path, logits=logits, label=(logits + 2 * rng.gumbel(size=logits.shape)).argmax(axis=1))


def arguments_of(name: str, path: Path) -> list[str]:
    return [str(path) if word == "FILE" else word for word in COMMANDS[name]]


def inside(name: str, path: Path, small: Path) -> tuple[float, float, float]:
    """Run the command on a small file, which imports everything, then on the file; seconds, processor time, bytes."""
    from confrank.cli import main

    with contextlib.redirect_stdout(io.StringIO()):
        with contextlib.suppress(SystemExit):
            main(arguments_of(name, small))
        before, start, busy = resident("VmRSS"), time.perf_counter(), time.process_time()
        with contextlib.suppress(SystemExit):
            main(arguments_of(name, path))
        seconds, processor = time.perf_counter() - start, time.process_time() - busy
    return seconds, processor, resident("VmHWM") - before


def command_seconds(name: str, path: Path) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "confrank", *arguments_of(name, path)], check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6, help="exponent of the number of rows")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    kinds = ("inside", "processor", "command")
    rows, runs = 10**arguments.rows, {(name, how): [] for how in kinds for name in COMMANDS}
    memory = dict.fromkeys(COMMANDS, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        path, small = Path(folder) / "table.npz", Path(folder) / "small.npz"
        write(path, rows)
        write(small, 200)
        for _ in range(arguments.repeats):
            for name in COMMANDS:
                seconds, processor, peak = apart(inside, name, path, small)
                runs[name, "inside"].append(seconds)
                runs[name, "processor"].append(processor)
                memory[name] = max(memory[name], peak)
                runs[name, "command"].append(command_seconds(name, path))
    table = rows * CLASSES * 8
    print(f"{os.cpu_count()} cores, {rows:,} rows x {CLASSES} classes, {table / 1e6:.0f} MB")
    print(f"{'task':<18} {'best s':>8} {'median s':>9} {'worst s':>8}")
    for (name, how), seconds in runs.items():
        print(f"{f'{how} {name}':<18} {min(seconds):>8.2f} {np.median(seconds):>9.2f} {max(seconds):>8.2f}")
    for how in kinds:
        ratio = np.median(runs["scores", how]) / np.median(runs["evaluate", how])
        best = min(runs["scores", how]) / min(runs["evaluate", how])
        print(f"{how}: scores take {ratio:.1f}x the time of evaluate (medians; best against best {best:.1f}x)")
    print(", ".join(f"{name} needs {peak / table:.2f}x the table" for name, peak in memory.items()))
    versions = {"python": platform.python_version(), "numpy": version("numpy")}
    timed = [{"task": f"{how} {name}", "seconds": seconds} for (name, how), seconds in runs.items()]
    print(json.dumps({"versions": versions, "rows": rows, "peak_bytes": memory, "runs": timed}))


if __name__ == "__main__":
    main()

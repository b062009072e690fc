"""Time and memory of the metrics, against a loop in the published style, scikit-learn and one plain sort.

    python benchmarks/metrics.py [--largest 8] [--repeats 3]

`published` is the usual way to compute AURC (Python loop over sorted lists), up to 1e6 rows; `sort` is `numpy.sort`
of n float32 values, a lower bound for anything that ranks. Each task runs in a separate process; memory is the peak
above what the process held before, which includes the inputs.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from evaluate import apart, resident
from sklearn.metrics import average_precision_score, roc_auc_score

from confrank import evaluate, metrics

Floats = np.ndarray


def published_aurc(confidence: Floats, correct: Floats) -> float:
    """AURC and E-AURC as published scripts compute them: sort a list of pairs, then loop over it."""
    pairs = sorted(zip(confidence, correct, strict=True), key=lambda pair: pair[0], reverse=True)
    risks, coverages, wrong = [], [], 0
    for position, (_, right) in enumerate(pairs):
        coverages.append((position + 1) / len(pairs))
        if right == 0:
            wrong += 1
        risks.append(wrong / (position + 1))
    area = 0.0
    for risk in risks:
        area += risk * (1 / len(risks))
    return area


TASKS: dict[str, tuple[Callable[[Floats, Floats], object], float]] = {
    "sort": (lambda confidence, correct: np.sort(confidence), 1e8),
    "aurc": (metrics.aurc, 1e8),
    "published aurc": (published_aurc, 1e6),
    "auroc": (metrics.auroc, 1e8),
    "sklearn auroc": (lambda confidence, correct: roc_auc_score(correct, confidence), 1e7),
    "aupr_error": (metrics.aupr_error, 1e8),
    "sklearn ap": (lambda confidence, correct: average_precision_score(~correct, -confidence), 1e7),
    "fpr_at_tpr": (metrics.fpr_at_tpr, 1e8),
    "ece": (metrics.ece, 1e8),
    "evaluate": (lambda confidence, correct: evaluate(confidence=confidence, correct=correct), 1e8),
}


def inputs(size: int) -> tuple[Floats, Floats]:
    """Float32 confidences with the ties that float32 has, right with that probability."""
    rng = np.random.default_rng(0)
    confidence = rng.random(size, dtype=np.float32)
    return confidence, rng.random(size, dtype=np.float32) < confidence


def measure(task: str, size: int, repeats: int) -> tuple[list[float], float]:
    """Seconds of each repetition, and bytes above the inputs."""
    confidence, correct = inputs(size)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak left by creating the inputs
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        TASKS[task][0](confidence, correct)
        seconds.append(time.perf_counter() - start)
    return seconds, resident("VmHWM") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=8, help="exponent of the largest n")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    rows = []
    print(f"{'n':>6} {'task':<15} {'best s':>10} {'spread':>8} {'x sort':>8} {'extra MB':>9}")
    for exponent in range(4, arguments.largest + 1):
        size, sort_seconds = 10**exponent, 0.0
        for task, (_, limit) in TASKS.items():
            if size > limit:
                continue
            seconds, extra = apart(measure, task, size, arguments.repeats)
            best = min(seconds)
            sort_seconds = best if task == "sort" else sort_seconds
            row = {"n": size, "task": task, "seconds": seconds, "x_sort": best / sort_seconds, "extra_bytes": extra}
            rows.append(row)
            print(
                f"{f'1e{exponent}':>6} {task:<15} {best:>10.5f} {max(seconds) / best:>7.2f}x"
                f" {row['x_sort']:>8.2f} {extra / 1e6:>9.1f}",
                flush=True,
            )
    aurc, published = (
        min(row["seconds"][0] if arguments.repeats == 1 else min(row["seconds"]) for row in rows
            if row["n"] == 10**6 and row["task"] == task)
        for task in ("aurc", "published aurc")
    )  # fmt: skip
    print(f"at 1e6 aurc is {published / aurc:.0f}x faster than the published style")
    versions = {"numpy": np.__version__, "python": platform.python_version(), "machine": platform.machine()}
    print(json.dumps({"versions": versions, "rows": rows}))


if __name__ == "__main__":
    main()

"""k-center greedy against naive forms of it: 2,000 of 50,000 x 512, no centres at first.

    python benchmarks/active.py [--device cuda]

The naive forms would take hours, so a part of their work is timed and scaled:

- "all distances": the O(n^2) form, one row of the distance matrix after the other in numpy (differences), then the
  greedy choice from the matrix; timed for a few rows, times n rows, the choice not counted.
- "by definition": each step takes the distances to all centres so far; timed at a few steps and integrated over all.
- "matrix product": the distance matrix by blocks of a BLAS product, which rounds near ties differently; timed for a
  few blocks, scaled to n rows. The full matrix would need 10 GB in float32.

The choices of the first picks are compared with the naive form, which is exact.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable

import numpy as np
import torch

from confrank.active import k_center_greedy


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def row_of_distances(features: np.ndarray, row: int) -> np.ndarray:
    return np.sqrt(((features - features[row]) ** 2).sum(axis=1))


def naive_choice(features: np.ndarray, count: int, seed: int) -> list[int]:
    """The first picks, each with the distances to all centres in numpy."""
    priority = np.random.default_rng(seed).permutation(len(features))
    chosen = [int(priority.argmin())]
    while len(chosen) < count:
        gap = np.min([row_of_distances(features, row) for row in chosen], axis=0)
        gap[chosen] = -1
        chosen.append(int(np.where(gap == gap.max(), priority, len(features)).argmin()))
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", type=str, default="cpu")
    arguments = parser.parse_args()
    n, count = arguments.samples, arguments.count
    # Like penultimate features: non-negative and clustered.
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(100, arguments.width))
    features = np.maximum(centres[rng.integers(0, 100, n)] + rng.normal(size=(n, arguments.width)), 0).astype(
        np.float32
    )
    device = torch.device(arguments.device)
    placed = torch.from_numpy(features).to(device)

    ours = [seconds(lambda: k_center_greedy(placed, count, seed=0)) for _ in range(arguments.repeats)]
    picks = 8
    assert k_center_greedy(placed, picks, seed=0).tolist() == naive_choice(features, picks, 0), "choices differ"

    rows = [seconds(lambda row=row: row_of_distances(features, row)) for row in range(20)]
    one = float(np.median(rows))
    block, host = 256, torch.from_numpy(features)
    blocks = [
        seconds(lambda: torch.cdist(host[:block], host, compute_mode="use_mm_for_euclid_dist")) for _ in range(5)
    ]
    forms = {
        "ours": float(np.median(ours)),
        "all distances (scaled)": one * n,
        "by definition (scaled)": one * count * (count - 1) / 2,
        "matrix product (scaled)": float(np.median(blocks)) * n / block,
    }
    print(f"{n:,} x {arguments.width}, choosing {count:,}; {arguments.device}, {torch.get_num_threads()} threads")
    print(f"{'form':<26} {'seconds':>10} {'against ours':>13}")
    for name, value in forms.items():
        print(f"{name:<26} {value:>10.1f} {value / forms['ours']:>12.1f}x")
    print(f"ours: {min(ours):.1f} to {max(ours):.1f} s, n = {len(ours)}; one numpy row {1e3 * one:.1f} ms,"
          f" {1e3 * min(rows):.1f} to {1e3 * max(rows):.1f}, n = {len(rows)}; first {picks} picks equal")  # fmt: skip
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    load = os.getloadavg()[0]
    print(
        json.dumps({"versions": versions, "load": load, "ours": ours, "row": rows, "block": blocks, "seconds": forms})
    )


if __name__ == "__main__":
    main()

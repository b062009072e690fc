"""Scoring by training features, in batches and in a per-sample Python loop: time and memory.

    python benchmarks/ood.py [--train 50000] [--images 10000] [--width 342] [--repeats 5] [--loop 100]

Features are random (342 is the width of the last block of DenseNet-BC), so this measures the detectors alone,
without a network. `loop` is the natural per-sample code in numpy: for kNN the distances to all stored features and a
partial sort, for Mahalanobis a quadratic form per class with a precomputed precision matrix. It is timed on the
first --loop images and scaled to all of them. Each task runs in a separate process; memory is the peak while
scoring, above what is resident once the features exist (Linux). Both must give the same scores, and both use one
thread, since the loop could not use more.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from evaluate import apart, resident

CLASSES, NEIGHBOURS = 10, 50
Features = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def features(train: int, images: int, width: int) -> Features:
    """Training features of ten classes, their labels, and features to score; knn scales them to length 1 itself."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(CLASSES, width, generator=generator)
    label = torch.randint(CLASSES, (train,), generator=generator)
    stored = torch.randn(train, width, generator=generator).add_(centres[label])
    return stored, label, torch.randn(images, width, generator=generator)


def knn(data: Features) -> Callable[[int], np.ndarray]:
    from confrank.ood.neighbours import kth_distance

    stored, queries = (torch.nn.functional.normalize(part, dim=1) for part in (data[0], data[2]))
    return lambda count: -kth_distance(queries[:count], stored, NEIGHBOURS).numpy()


def knn_loop(data: Features) -> Callable[[int], np.ndarray]:
    stored, queries = (torch.nn.functional.normalize(part, dim=1).numpy() for part in (data[0], data[2]))

    def score(count: int) -> np.ndarray:
        scores = []
        for query in queries[:count]:
            distances = np.linalg.norm(stored - query, axis=1)
            scores.append(-np.partition(distances, NEIGHBOURS - 1)[NEIGHBOURS - 1])
        return np.array(scores)

    return score


def gaussians(data: Features, batch_size: int) -> Any:
    """The Gaussians of the training features, added batch by batch."""
    from confrank.ood.gaussian import Moments

    moments = Moments(CLASSES)
    for start in range(0, len(data[0]), batch_size):
        moments.add(data[0][start : start + batch_size], data[1][start : start + batch_size])
    return moments.gaussians()


def mahalanobis(data: Features) -> Callable[[int], np.ndarray]:
    fitted = gaussians(data, len(data[0]))
    return lambda count: fitted.score(data[2][:count]).numpy()


def mahalanobis_fit(data: Features) -> Callable[[int], np.ndarray]:
    return lambda count: gaussians(data, 500).score(data[2][:10]).numpy()


def mahalanobis_loop(data: Features) -> Callable[[int], np.ndarray]:
    fitted = gaussians(data, len(data[0]))
    means, precision = fitted.mean.numpy(), (fitted.whitening @ fitted.whitening.T).numpy()
    queries = data[2].double().numpy()

    def score(count: int) -> np.ndarray:
        scores = []
        for query in queries[:count]:
            scores.append(-min((query - mean) @ precision @ (query - mean) for mean in means))  # noqa: PERF401
        return np.array(scores)

    return score


TASKS: dict[str, Callable[[Features], Callable[[int], np.ndarray]]] = {
    "knn": knn,
    "knn loop": knn_loop,
    "mahalanobis": mahalanobis,
    "mahalanobis loop": mahalanobis_loop,
    "mahalanobis fit": mahalanobis_fit,
}


def measure(task: str, sizes: tuple[int, int, int], count: int) -> tuple[float, float, list[float]]:
    """Seconds, bytes above what is there once the features exist, and the first scores."""
    torch.set_num_threads(1)
    score = TASKS[task](features(*sizes))
    score(min(count, 10))
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = resident("VmRSS")
    start = time.perf_counter()
    scores = score(count)
    seconds = time.perf_counter() - start
    return seconds, resident("VmHWM") - before, scores[:100].tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("train", 50_000), ("images", 10_000), ("width", 342), ("repeats", 5), ("loop", 100)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # for the child processes
    sizes = arguments.train, arguments.images, arguments.width
    runs: dict[str, list[tuple[float, float, list[float]]]] = {task: [] for task in TASKS}
    for _ in range(arguments.repeats):
        for task in TASKS:
            count = arguments.loop if "loop" in task else arguments.images
            runs[task].append(apart(measure, task, sizes, count))
    print(f"{os.cpu_count()} cores, {arguments.train:,} x {arguments.width} features, {arguments.images:,} images")
    print(
        f"{'task':<18} {'images':>7} {'best s':>8} {'median s':>9} {'worst s':>8} {'for all s':>10} {'peak + MB':>10}"
    )
    rows, whole = [], {}
    for task, repeats in runs.items():
        seconds, count = [run[0] for run in repeats], arguments.loop if "loop" in task else arguments.images
        median, memory = float(np.median(seconds)), max(run[1] for run in repeats)
        whole[task] = median * arguments.images / count
        print(
            f"{task:<18} {count:>7,} {min(seconds):>8.3f} {median:>9.3f} {max(seconds):>8.3f} {whole[task]:>10.2f}"
            f" {memory / 1e6:>10.0f}"
        )
        rows.append({"task": task, "images": count, "seconds": seconds, "grown_bytes": memory})
    for task in ("knn", "mahalanobis"):
        slow = runs[f"{task} loop"][0][2]
        same = np.allclose(runs[task][0][2][: len(slow)], slow, rtol=1e-4)
        print(f"{task}: {whole[f'{task} loop'] / whole[task]:.0f}x the loop (medians), same scores: {same}")
    versions = {"python": platform.python_version(), **{name: version(name) for name in ("torch", "numpy")}}
    print(json.dumps({"versions": versions, "rows": rows}))


if __name__ == "__main__":
    main()

"""What the correctness ranking loss adds to a training step, on this machine's CPU.

    python benchmarks/loss.py

First the criterion alone (batch 128): cross-entropy forward and backward, and the ranking part on top of it
(confidence, rates, loss, recording, backward). Then a full step of a small network with and without CRL.
"""

import json
import platform
import statistics
import time
from collections.abc import Callable

import torch
from torch.nn import functional

from confrank import CorrectnessHistory, CorrectnessRankingLoss, models
from confrank.confidence import CONFIDENCES

BATCH = 128


def microseconds(functions: dict[str, Callable[[], object]], rounds: int = 60, calls: int = 50) -> dict[str, float]:
    """Median time of each function over the rounds; they take turns, so a slow moment affects all of them."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            function()
            start = time.perf_counter()
            for _ in range(calls):
                function()
            times[name].append((time.perf_counter() - start) / calls * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def criterion_rows(num_classes: int) -> list[dict[str, object]]:
    logits = torch.randn(BATCH, num_classes, requires_grad=True)
    label, index = torch.randint(0, num_classes, (BATCH,)), torch.randperm(50_000)[:BATCH]

    def cross_entropy() -> None:
        logits.grad = None
        functional.cross_entropy(logits, label).backward()

    def step_of(criterion: CorrectnessRankingLoss) -> Callable[[], None]:
        def step() -> None:
            logits.grad = None
            criterion(logits, label, index).backward()

        return step

    criteria = {name: step_of(CorrectnessRankingLoss(CorrectnessHistory(50_000), name)) for name in CONFIDENCES}
    times = microseconds({"cross_entropy": cross_entropy, **criteria})
    plain = times.pop("cross_entropy")
    return [
        {"classes": num_classes, "confidence": name, "cross_entropy_us": plain, "ranking_us": value - plain}
        for name, value in times.items()
    ]


def network_step(weight: float | None) -> Callable[[], None]:
    model = models.create("small", 10, in_channels=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = CorrectnessRankingLoss(CorrectnessHistory(50_000), weight=weight or 0.0)
    image, label, index = torch.randn(BATCH, 1, 8, 8), torch.randint(0, 10, (BATCH,)), torch.arange(BATCH)

    def step() -> None:
        logits = model(image)
        loss = functional.cross_entropy(logits, label) if weight is None else criterion(logits, label, index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = [row for num_classes in (10, 1000) for row in criterion_rows(num_classes)]
    print(f"{'classes':>7} {'confidence':<17} {'cross-entropy us':>16} {'ranking part us':>16} {'ratio':>6}")
    for row in rows:
        row["ratio"] = row["ranking_us"] / row["cross_entropy_us"]
        print(
            f"{row['classes']:>7} {row['confidence']:<17} {row['cross_entropy_us']:>16.0f}"
            f" {row['ranking_us']:>16.0f} {row['ratio']:>6.2f}"
        )
    steps = microseconds({"without CRL": network_step(None), "with CRL": network_step(1.0)}, rounds=20, calls=10)
    print(*(f"small network, full step {name}: {value:.0f} us" for name, value in steps.items()), sep="\n")
    versions = {"torch": str(torch.__version__), "python": platform.python_version(), "threads": 1}
    print(json.dumps({"versions": versions, "criterion": rows, "network_step_us": steps}))


if __name__ == "__main__":
    main()

"""How often the interval of a cross-fitted cost contains the true cost of the chosen threshold.

Confidence is uniform and a prediction is wrong with probability (1 - confidence)^2 / 2, so accepting confidence >= t
costs a (1 - t)^3 / 6 + t per prediction, if an error costs a and a rejection 1. Rejecting everything costs 1.

    python benchmarks/costs.py [--repetitions 2000]

Prints a table, then one JSON line.
"""

import argparse
import json
import math
import platform

import numpy as np
import scipy

from confrank.decisions import cost_at, cost_threshold

SIZES, ERRORS = (100, 500, 2000), (3, 10, 50)


def true_cost(threshold: float, error: float) -> float:
    lowest = max(threshold, 0)  # all confidences are at least 0
    return 1.0 if threshold == math.inf else error * (1 - lowest) ** 3 / 6 + lowest


def measured(size: int, error: float, repetitions: int, rng: np.random.Generator) -> dict[str, float]:
    """Coverage of the intervals by folds and by a split of half the rows, and the mean error of each estimate."""
    folds, split, errors = 0, 0, []
    half = size // 2
    for _ in range(repetitions):
        confidence = rng.random(size)
        correct = rng.random(size) >= (1 - confidence) ** 2 / 2
        rule = cost_threshold(confidence, correct, cost_error=error, cost_reject=1)
        truth = true_cost(rule.threshold, error)
        assert rule.held_out is not None
        folds += rule.held_out.low <= truth <= rule.held_out.high
        errors.append((rule.held_out.value - truth, rule.cost - truth))
        other = cost_threshold(confidence[:half], correct[:half], cost_error=error, cost_reject=1, folds=0)
        rest = cost_at(confidence[half:], correct[half:], other.threshold, cost_error=error, cost_reject=1)
        split += rest.low <= true_cost(other.threshold, error) <= rest.high
    held_out, chosen = np.mean(errors, axis=0)
    return {"folds": folds / repetitions, "split": split / repetitions, "held_out": held_out, "chosen": chosen}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=2000)
    repetitions = parser.parse_args().repetitions
    rng, results = np.random.default_rng(2026), []
    errors = "error of the cross-fitted cost | of the cost of the choosing rows"
    print(f"| rows | an error costs | covered, 5 folds | covered, split | {errors} |")
    print("|---|---|---|---|---|---|")
    for size in SIZES:
        for error in ERRORS:
            found = measured(size, error, repetitions, rng)
            results.append({"n": size, "cost_error": error, **found})
            covered = f"{found['folds']:.1%} | {found['split']:.1%}"
            gaps = f"{found['held_out']:+.3f} | {found['chosen']:+.3f}"
            print(f"| {size:,} | {error} | {covered} | {gaps} |", flush=True)
    versions = {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
    print(json.dumps({"repetitions": repetitions, **versions, "results": results}))


if __name__ == "__main__":
    main()

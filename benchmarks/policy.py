"""Does the guarantee of a policy hold after a score was fitted to the same file?

    python benchmarks/policy.py [--repetitions 2000] [--seed 0]

Correctness does not depend on the logits (1,000 rows, 100 classes, 20% wrong), so no score ranks better than chance,
and the true error rate among accepted answers is 20% whatever the threshold. Each repetition fits RelU (and in one
case an isotonic calibrator) and asks for less than 20%: every threshold that is certified breaks the guarantee.
- policy: RelU is fitted to the design half, the guarantee uses the other half, as `confrank threshold --policy` does;
- same rows: both use all rows, which a policy refuses.
A row of the policy passes if the share of broken guarantees is at most delta + 3 standard errors.
"""

import argparse
import json
import math
import platform
import time
from importlib.metadata import version
from typing import Any

import numpy as np

from confrank.decisions import Policy, UnreachableError, calibrate, guaranteed_threshold
from confrank.decisions.policy import CalibratorPart, ScorePart, ThresholdPart
from confrank.predictions import Predictions
from confrank.scores import fit

NUM_ROWS, NUM_CLASSES, WRONG = 1000, 100, 0.2
Row = dict[str, Any]


def draw(rng: np.random.Generator, num_rows: int = NUM_ROWS) -> Predictions:
    """Logits whose largest is right with probability 0.8, whatever the logits are."""
    logits = 2 * rng.normal(size=(num_rows, NUM_CLASSES))
    shift = np.where(rng.random(num_rows) < WRONG, rng.integers(1, NUM_CLASSES, num_rows), 0)
    return Predictions(logits=logits, label=(logits.argmax(axis=1) + shift) % NUM_CLASSES)


def fitted(predictions: Predictions, *, isotonic: bool, every: bool = False) -> tuple[Policy, np.ndarray]:
    """A policy with a fitted RelU, and perhaps an isotonic calibrator; the rows they saw."""
    policy = Policy.of(predictions)
    correct = policy.correct(predictions)
    index, rows = policy.usable(predictions, "design", every=every)
    assert predictions.logits is not None
    parameters = fit("relu", logits=predictions.logits[index], correct=correct[index])
    policy = policy.with_part(ScorePart("relu", parameters, rows))
    if isotonic:
        confidence = policy.confidence(predictions)
        calibrator = calibrate("isotonic", confidence=confidence[index], correct=correct[index])
        policy = policy.with_part(CalibratorPart("isotonic", calibrator.parameters, rows))
    return policy, index


def breaks(predictions: Predictions, risk: float, delta: float, *, isotonic: bool, every: bool) -> bool:
    """Whether a threshold is certified, although every threshold has a higher risk."""
    policy, seen = fitted(predictions, isotonic=isotonic, every=every)
    confidence, correct = policy.confidence(predictions), policy.correct(predictions)
    index, rows = np.arange(len(correct)), None
    if not every:
        index, rows = policy.usable(predictions, "promise")
        assert not np.intersect1d(index, seen).size and len(index) + len(seen) == len(correct)
    try:
        point = guaranteed_threshold(confidence[index], correct[index], risk, delta=delta)
    except UnreachableError:
        return False
    if rows is not None:
        policy.with_part(ThresholdPart(point.threshold, rows, promise="The error rate is low."))
    return True


def judged(case: str, values: np.ndarray, limit: float | None, **facts: Any) -> Row:
    """A line of the table: the mean of independent values, and whether it is at most the limit + 3 s.e."""
    mean, error = float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))
    tolerance = 0.0 if limit is None else 3 * math.sqrt(limit * (1 - limit) / len(values))
    holds = None if limit is None else mean <= limit + tolerance
    return {"case": case, **facts, "mean": mean, "se": error, "limit": limit, "n": len(values), "holds": holds}


def measure(repetitions: int, seed: int) -> list[Row]:
    """All lines of the table."""
    rows = []
    for number, (isotonic, risk, delta) in enumerate([(False, 0.19, 0.05), (False, 0.1, 0.001), (True, 0.19, 0.05)]):
        names = {"parts": "RelU, isotonic" if isotonic else "RelU", "risk": risk, "delta": delta}
        for every, count in ((False, repetitions), (True, min(repetitions, 100))):
            rng = np.random.default_rng([seed, number, every])
            flags = [breaks(draw(rng), risk, delta, isotonic=isotonic, every=every) for _ in range(count)]
            case = "same rows" if every else "policy"
            rows.append(judged(case, np.array(flags, dtype=float), None if every else delta, **names))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.perf_counter()
    rows = measure(arguments.repetitions, arguments.seed)
    print("| case | parts | asked for | repetitions | broken | s.e. | allowed | holds |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        asked = f"risk {row['risk']:g}, delta {row['delta']:g}"
        allowed = "-" if row["limit"] is None else f"up to {row['limit']:g}"
        cells = [row["case"], row["parts"], asked, f"{row['n']:,}", f"{row['mean']:.4f}", f"{row['se']:.4f}", allowed]
        print(f"| {' | '.join(cells)} | {'-' if row['holds'] is None else row['holds']} |")
    versions = {"python": platform.python_version(), "numpy": version("numpy"), "scipy": version("scipy")}
    seconds = round(time.perf_counter() - start, 1)
    print(json.dumps({"rows": rows, "repetitions": arguments.repetitions, "seconds": seconds, **versions}))


if __name__ == "__main__":
    main()

"""Do the guarantees hold? Simulations of conformal sets, selection with FDR control, and thresholds per group.

    python benchmarks/guarantees.py [--repetitions 2000] [--seed 0]

Each repetition draws a calibration set and new rows from a known distribution, makes the decision, and measures what
was guaranteed on the new rows (sets, FDR) or computes it exactly (risk of a threshold). A row passes if
- sets: the mean coverage is within [level - 3 s.e., level + 1/(m + 1) + 3 s.e.], m the calibration rows of the class
  or group;
- selection: the mean share of wrong answers among selected (0 if none) is at most the level + 3 s.e.;
- thresholds per group: the share of repetitions in which any group's true risk exceeds its limit is at most
  delta + 3 s.e.
"""

import argparse
import json
import math
import platform
import time
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np

from confrank.decisions import conformal_sets, group_thresholds, select_with_fdr
from confrank.decisions.nonconformity import SET_METHODS, SetMethod

NUM_CLASSES, NUM_NEW = 4, 40
LEVEL = 0.9
Row = dict[str, Any]


def draw(rng: np.random.Generator, label: np.ndarray) -> np.ndarray:
    """Probabilities [n, K] of an overconfident model; class 0 is the hardest."""
    noise = rng.normal(0, 1, (len(label), NUM_CLASSES))
    logits = 2 * (noise + (0.6 + 0.5 * label[:, None]) * (label[:, None] == np.arange(NUM_CLASSES)))
    exponentials = np.exp(logits)
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def judged(task: str, values: np.ndarray, low: float, high: float, **facts: Any) -> Row:
    """A line of the table: the mean of independent values, and whether it is within [low, high] up to 3 s.e."""
    mean, error = float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))
    holds = low - 3 * error <= mean <= high + 3 * error
    return {"task": task, **facts, "mean": mean, "se": error, "low": low, "high": high, "holds": holds}


def coverage(method: SetMethod, per: str, num_rows: int, repetitions: int, seed: int) -> Iterator[Row]:
    """Coverage of sets; per class or group, each class or group has its fixed number of calibration rows."""
    rng = np.random.default_rng(seed)
    names = ["all"] if per == "all" else [str(number) for number in range(NUM_CLASSES)]
    covered = {name: np.empty(repetitions) for name in names}
    for repetition in range(repetitions):
        label = np.arange(num_rows + NUM_NEW) % NUM_CLASSES if per == "class" else None
        label = rng.integers(0, NUM_CLASSES, num_rows + NUM_NEW) if label is None else label
        group = np.arange(len(label)) % NUM_CLASSES if per == "group" else None
        # A group is harder if its number is higher.
        table = draw(rng, label) if group is None else draw(rng, np.where(group > 1, label // 2, label))
        key = np.arange(len(label)) + repetition * len(label)
        old, new = slice(0, num_rows), slice(num_rows, None)
        rule = conformal_sets(
            probabilities=table[old], label=label[old], level=LEVEL, method=method, per_class=per == "class",
            group=None if group is None else group[old], key=key[old], penalty=0.05, free_rank=1,
        )  # fmt: skip
        sets = rule.sets(probabilities=table[new], group=None if group is None else group[new], key=key[new])
        hit = sets[np.arange(NUM_NEW), label[new]]
        of = {
            "all": np.zeros(NUM_NEW, dtype=int),
            "class": label[new],
            "group": group if group is None else group[new],
        }
        for number, name in enumerate(names):
            covered[name][repetition] = hit[of[per] == number].mean()
    cell = num_rows // len(names)
    for name in names:
        facts = {"method": method, "per": per, "cell": name, "m": cell}
        yield judged("coverage of sets", covered[name], LEVEL, LEVEL + 1 / (cell + 1), **facts)


def discoveries(num_rows: int, num_new: int, fdr: float, repetitions: int, seed: int) -> Row:
    """The share of wrong answers among selected, if few answers are wrong where the confidence is high."""
    rng = np.random.default_rng(seed)
    shares, selected = np.zeros(repetitions), 0
    for repetition in range(repetitions):
        confidence = rng.random(num_rows + num_new).round(2)  # with ties
        wrong = rng.random(len(confidence)) < 0.02 + 0.7 * (1 - confidence)
        new = slice(num_rows, None)
        chosen = select_with_fdr(confidence[:num_rows], ~wrong[:num_rows], confidence[new], fdr).selected
        shares[repetition] = (chosen & wrong[new]).sum() / max(1, chosen.sum())
        selected += int(chosen.sum())
    facts = {"m": num_rows, "new": num_new, "selected": selected / repetitions / num_new}
    return judged("false-discovery rate", shares, -math.inf, fdr, **facts)


# How often answers are wrong in each of four groups: floor + slope (1 - c)^2, as (lowest confidence, floor, slope),
# the most confident part first.
ORDERED = tuple([(0.0, *values)] for values in ((0.0, 0.4), (0.01, 0.4), (0.0, 0.8), (0.02, 0.3)))
FLAT = ([(0.0, 0.08 + 1e-9, 0.0)],) * 4
UNORDERED = ([(0.85, 0.09, 0.0), (0.6, 0.04, 0.0), (0.0, 0.25, 0.0)],) * 4
GROUPS = {"ordered": ORDERED, "flat": FLAT, "unordered": UNORDERED}


def error_rate(confidence: np.ndarray, parts: list[tuple[float, float, float]]) -> np.ndarray:
    """The probability that an answer with this confidence is wrong."""
    rate = np.zeros(len(confidence))
    for low, floor, slope in reversed(parts):
        rate = np.where(confidence >= low, floor + slope * (1 - confidence) ** 2, rate)
    return rate


def true_risk(threshold: float, parts: list[tuple[float, float, float]]) -> float:
    """The error rate of accepting uniform confidences >= threshold."""
    total, top = 0.0, 1.0
    for low, floor, slope in parts:
        bottom = max(low, threshold)
        if bottom < top:
            total += floor * (top - bottom) + slope * ((1 - bottom) ** 3 - (1 - top) ** 3) / 3
        top = low
    return total / (1 - threshold)


def group_risk(case: str, delta: float, repetitions: int, seed: int) -> Row:
    """Whether any of four groups has a true risk above its limit.

    In the case "flat", the confidence says nothing and each group is just above its limit: any threshold breaks the
    guarantee. In the case "unordered", the most confident answers are not the best ones.
    """
    rng = np.random.default_rng(seed)
    sizes, risk = (300, 600, 1200, 2400), 0.08
    group, groups = np.repeat(np.arange(4), sizes), GROUPS[case]
    broken, accepted = np.zeros(repetitions), 0
    for repetition in range(repetitions):
        confidence = rng.random(len(group))
        rate = np.concatenate([error_rate(confidence[group == number], groups[number]) for number in range(4)])
        wrong = rng.random(len(group)) < rate
        result = group_thresholds(confidence, ~wrong, group, risk, delta)
        for one, parts in zip(result.groups, groups, strict=True):
            if one.point is not None:
                broken[repetition] = max(broken[repetition], true_risk(one.point.threshold, parts) > risk)
                accepted += one.point.accepted
    facts = {"case": case, "accepted": accepted / repetitions / len(group)}
    return judged("broken guarantee in any group", broken, -math.inf, delta, **facts)


def simulate(repetitions: int, seed: int) -> Iterator[Row]:
    """All lines of the table."""
    for method in SET_METHODS:
        for per, num_rows in (("all", 100), ("class", 120), ("group", 120)):
            yield from coverage(method, per, num_rows, repetitions, seed)
    yield discoveries(200, 100, 0.1, repetitions, seed)
    yield discoveries(1000, 50, 0.05, repetitions, seed)
    for case in GROUPS:
        yield group_risk(case, 0.1, repetitions, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start, results = time.perf_counter(), []
    print("| task | case | mean | s.e. | allowed | holds |\n|---|---|---|---|---|---|")
    for row in simulate(arguments.repetitions, arguments.seed):
        results.append(row)
        facts = ("task", "mean", "se", "low", "high", "holds")
        case = ", ".join(f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
                         for name, value in row.items() if name not in facts)  # fmt: skip
        low = f"{row['low']:g} to " if row["low"] > 0 else "up to "
        allowed = f"{low}{row['high']:.4g}"
        print(f"| {row['task']} | {case} | {row['mean']:.4f} | {row['se']:.4f} | {allowed} | {row['holds']} |")
    versions = {name: version(name) for name in ("numpy", "scipy")} | {"python": platform.python_version()}
    seconds = round(time.perf_counter() - start, 1)
    results = [{name: None if value == -math.inf else value for name, value in row.items()} for row in results]
    print(json.dumps({"repetitions": arguments.repetitions, "seconds": seconds, **versions, "results": results}))


if __name__ == "__main__":
    main()

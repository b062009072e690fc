"""What is the choice of a score worth on published predictions, and what does it cost?

    python experiments/published_scores.py FOLDER [--splits 100] [--json experiments/published_scores_202611.json]

FOLDER is a checkout of github.com/cleanlab/label-errors, as in published_predictions.py. First, what `confrank
scores` says about each file. Then each file is split at random many times: one half is for validation, the other half
stands for new answers. A threshold with a guaranteed error rate (delta = 0.05) is set in these ways:

- policy: the score is chosen on one half of the validation rows, the threshold certified on the other half, as
  `confrank scores --policy` and `confrank threshold --policy` do;
- max-probability, margin: nothing is chosen, and all validation rows certify;
- relu, same rows: RelU is fitted and certified on the same rows, which a policy refuses.

Prints tables, then one JSON line.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from confrank.decisions import UnreachableError, guaranteed_threshold
from confrank.decisions.policy import Policy, ScorePart, ThresholdPart
from confrank.metrics import at_or_above
from confrank.predictions import Predictions
from confrank.scores import choose, fit, score
from confrank.scores.choice import chosen
from confrank.scores.table import table_of

DELTA = 0.05
FILES = {"20news": ("20 newsgroups", 0.03), "cifar10": ("CIFAR-10", 0.02), "imdb": ("IMDB", 0.05)}
Array = np.ndarray


@dataclass(frozen=True)
class DataSet:
    """A published table, and the error rate to guarantee."""

    title: str
    risk: float
    probabilities: Array
    label: Array

    @property
    def correct(self) -> Array:
        return self.probabilities.argmax(axis=1) == self.label


def load(folder: Path, name: str) -> DataSet:
    table = np.load(folder / "cross_validated_predicted_probabilities" / f"{name}_test_set_pyx.npy")
    label = np.load(folder / "original_test_labels" / f"{name}_test_set_original_labels.npy").astype(np.int64)
    return DataSet(*FILES[name], table, label)


def compared(data: DataSet) -> dict[str, Any]:
    """What `confrank scores` says about the file."""
    choice = choose(probabilities=data.probabilities, label=data.label)
    areas = {name: metrics["aurc"] for name, metrics in choice.judged.metrics.items()}
    return {"chosen": choice.name, "aurc": areas}


def by_policy(data: DataSet, validation: Array, new: Array) -> Array | None:
    """Which new answers are accepted: the score chosen on the design half, the threshold on the other half."""
    part = Predictions(probabilities=data.probabilities[validation], label=data.label[validation])
    policy = Policy.of(part)
    index, rows = policy.usable(part, "design")
    choice = chosen(table_of(None, part.probabilities), policy.correct(part), rows=index)
    policy = policy.with_part(ScorePart(choice.name, choice.parameters, rows))
    index, rows = policy.usable(part, "promise")
    confidence, correct = policy.confidence(part)[index], policy.correct(part)[index]
    try:
        point = guaranteed_threshold(confidence, correct, data.risk, delta=DELTA)
    except UnreachableError:
        return None
    policy = policy.with_part(ThresholdPart(point.threshold, rows, "promise"))
    return policy.apply({"probabilities": data.probabilities[new]}).accepted


def by_score(data: DataSet, validation: Array, new: Array, name: str) -> Array | None:
    """Which new answers are accepted by a score that is fitted and certified on the same rows."""
    table, correct = data.probabilities[validation], data.correct[validation]
    parameters = fit(name, probabilities=table, correct=correct)
    confidence = score(name, probabilities=table, **parameters)
    try:
        point = guaranteed_threshold(confidence, correct, data.risk, delta=DELTA)
    except UnreachableError:
        return None
    return at_or_above(score(name, probabilities=data.probabilities[new], **parameters), point.threshold)


WAYS = {
    "policy": by_policy,
    "max-probability": lambda *given: by_score(*given, "max-probability"),
    "margin": lambda *given: by_score(*given, "margin"),
    "relu, same rows": lambda *given: by_score(*given, "relu"),
}


def repeated(data: DataSet, splits: int) -> dict[str, Any]:
    """Each way with many splits: how often a threshold was certified, and what it accepted."""
    came: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    for seed in range(1, splits + 1):
        order = np.random.default_rng(seed).permutation(len(data.label))
        validation, new = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
        for name, way in WAYS.items():
            accepted = way(data, validation, new)
            if accepted is not None:
                wrong = np.count_nonzero(accepted & ~data.correct[new])
                came[name].append((float(accepted.mean()), wrong / max(1, np.count_nonzero(accepted))))
    return {name: summary(np.array(items), splits, data.risk) for name, items in came.items()}


def summary(items: Array, splits: int, risk: float) -> dict[str, Any]:
    coverage, rate = items.T
    return {
        "splits": splits,
        "certified": len(items),
        "above": int(np.count_nonzero(rate > risk)),
        "mean_coverage": float(coverage.mean()),
        "mean_error_rate": float(rate.mean()),
        "largest_error_rate": float(rate.max()),
    }


def tables(results: dict[str, Any]) -> list[str]:
    """The scores of each file, and what came in the splits, as Markdown."""
    names = [*next(iter(results.values()))["aurc"]]
    scores = [f"| AURC × 10³ | {' | '.join(item['title'] for item in results.values())} |", "|---|---|---|---|"]
    for name in names:
        cells = [_area(item, name) for item in results.values()]
        scores.append(f"| {name} | {' | '.join(cells)} |")
    ways = [
        "| file, guaranteed error rate | way | mean coverage | mean error rate | largest | above the guarantee |",
        "|---|---|---|---|---|---|",
    ]
    for item in results.values():
        for way, each in item["repeated"].items():
            ways.append(
                f"| {item['title']}, at most {item['risk']:.0%} | {way} | {each['mean_coverage']:.1%} |"
                f" {each['mean_error_rate']:.2%} | {each['largest_error_rate']:.2%} |"
                f" {each['above']} of {each['certified']} |"
            )
    return ["\n".join(scores), "\n".join(ways)]


def _area(item: dict[str, Any], name: str) -> str:
    if name not in item["aurc"]:
        return "-"
    text = f"{item['aurc'][name] * 1000:.2f}"
    return f"**{text}**" if name == item["chosen"] else text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--splits", type=int, default=100)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    for name in FILES:
        data = load(arguments.folder, name)
        results[name] = {"title": data.title, "num_rows": len(data.label), "risk": data.risk, "delta": DELTA}
        results[name] |= compared(data) | {"repeated": repeated(data, arguments.splits)}
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    print("\n\n".join(tables(results)))
    print(json.dumps(results))


if __name__ == "__main__":
    main()

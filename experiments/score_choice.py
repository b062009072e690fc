"""How often does `confrank.scores.choose` choose which score, where the truth is known?

    python experiments/score_choice.py [--repeats 100]

Normal logits, 10 classes, standard deviation 2. `null`: correctness does not depend on the logits (70% right), so no
score is better than another. `calibrated`: right with the maximum probability, which no other score can beat.
`margin`: right with probability 1 - 0.95 (1 - margin)^2, so that the margin is best.
"""

import argparse
import json
import platform
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version

import numpy as np

from confrank.scores import choose, score

WORLDS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "null": lambda logits: np.full(len(logits), 0.7),
    "calibrated": lambda logits: score("max-probability", logits=logits),
    "margin": lambda logits: 1 - 0.95 * (1 - score("margin", logits=logits)) ** 2,
}
SIZES = (500, 2000, 5000)


def choices(world: str, size: int, repeats: int) -> list[str]:
    names = []
    for seed in range(repeats):
        rng = np.random.default_rng([seed, size])
        logits = rng.normal(0, 2, (size, 10))
        names.append(choose(logits=logits, correct=rng.random(size) < WORLDS[world](logits), seed=seed).name)
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=100)
    repeats = parser.parse_args().repeats
    rows = []
    print(f"{'world':<12} {'rows':>6} {'max-probability':>16} {'margin':>8}  others")
    for world in WORLDS:
        for size in SIZES:
            counts = Counter(choices(world, size, repeats))
            rows.append({"world": world, "rows": size, "chosen": dict(counts)})
            others = {name: n for name, n in counts.most_common() if name not in ("max-probability", "margin")}
            standard, margin = (counts[name] / repeats for name in ("max-probability", "margin"))
            print(f"{world:<12} {size:>6} {standard:>16.1%} {margin:>8.1%}  {others or '-'}", flush=True)
    versions = {"python": platform.python_version(), "numpy": version("numpy")}
    print(json.dumps({"versions": versions, "repeats": repeats, "rows": rows}))


if __name__ == "__main__":
    main()

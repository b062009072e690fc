"""How overconfident are the baselines of `experiments/when.py`? Mean confidence minus accuracy.

    python experiments/overconfidence.py [--data digits] [--model NAME] [--root DATA] [--samples N] [--plain]
                                         [--epochs 5 10 20 40 100 200 300] [--seeds 3] [--first-seed 200]

Trains the baseline as `experiments/when.py` does, on the CPU. ECE has no sign: underconfident networks have a large
one too. Prints the mean over the seeds, in points, with its range, for the held-out samples and for the test split,
and then a JSON line. The rule of thumb in docs/when-to-use.md uses these numbers.
"""

import argparse
import json
import platform
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from when import limited, settings_for

from confrank.config import RunConfig
from confrank.data import DataSet, load
from confrank.metrics import sample_values
from confrank.predictions import Predictions, load_predictions
from confrank.runs.folder import RunFolder
from confrank.training import train

SPLITS = ("holdout", "test")


def overconfidence(predictions: Predictions) -> float:
    """Mean confidence minus accuracy, in points."""
    samples = sample_values(**predictions.evaluation_inputs())
    return 100 * float(samples.confidence.mean() - samples.correct.mean())


def measured(config: RunConfig, data: DataSet) -> dict[str, float]:
    """The overconfidence of one run on each split."""
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder) / "run", data=data, device="cpu")
        files = RunFolder(Path(folder) / "run")
        return {split: overconfidence(load_predictions(files.predictions(split))) for split in SPLITS}


def line_of(epochs: int, runs: list[dict[str, float]]) -> str:
    cells = []
    for split in SPLITS:
        values = [run[split] for run in runs]
        cells.append(f"{np.mean(values):+.1f} [{min(values):+.1f}, {max(values):+.1f}]")
    return f"| {epochs} | {len(runs)} | {' | '.join(cells)} |"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--model")
    parser.add_argument("--root")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--epochs", type=int, nargs="+", default=[5, 10, 20, 40, 100, 200, 300])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=200)
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    torch.set_num_threads(1)
    base = {**settings_for(arguments.data, arguments.model, arguments.plain), "method": "baseline", "weight": 0.0}
    data = limited(load(arguments.data, arguments.root, **RunConfig(**base).reading), arguments.samples)
    print("| epochs | n | held-out samples | test split |\n|---|---|---|---|")
    every: dict[int, Any] = {}
    for epochs in arguments.epochs:
        seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
        every[epochs] = [measured(RunConfig(**base, epochs=epochs, seed=seed), data) for seed in seeds]
        print(line_of(epochs, every[epochs]), flush=True)
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    print(json.dumps({"data": Path(arguments.data).stem, **versions, "runs": every}))


if __name__ == "__main__":
    main()

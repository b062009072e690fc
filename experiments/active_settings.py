"""Which learning rate and weight decay suit active learning, chosen on unlabelled images?

    python experiments/active_settings.py --root DATA [--dataset cifar10] [--seeds 1 2]

ResNet-18 on 2,000 samples (the first labelled set of trial 0) with the schedule of the paper's experiment, judged on
10,000 unlabelled training images; the test split is not used. Prints a table, then one JSON line. Run time on one
NVIDIA H200: about 75 s of steps for the 12 runs.
"""

import argparse
import json
import platform
import statistics
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch

from confrank.active.experiment import Experiment, first_labelled
from confrank.data import DataSet, load
from confrank.training import Finished, train_together

LABELS, JUDGED = 2000, 10_000
# The first of each is the letter of the paper. The code base of its ResNet-18 has a weight decay of 5e-4.
CASES = [(lr, decay) for decay in (1e-4, 5e-4) for lr in (0.1, 0.05, 0.02)]


def first_stage(dataset: str, root: Path) -> DataSet:
    """The first labelled set of trial 0, and unlabelled images to judge by in place of the test split."""
    whole = load(dataset, root)
    rows = np.sort(first_labelled(len(whole.train), LABELS, 0))
    unlabelled = np.setdiff1d(np.arange(len(whole.train)), rows)
    judged = np.random.default_rng(99).choice(unlabelled, JUDGED, replace=False)
    return replace(whole, train=whole.train.select(rows), test=whole.train.select(judged))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    data = first_stage(arguments.dataset, arguments.root)
    runs = list(product(CASES, arguments.seeds))
    with tempfile.TemporaryDirectory() as folder:
        configs = [
            Experiment(dataset=arguments.dataset, lr=lr, weight_decay=decay).config("baseline", 0, seed)
            for (lr, decay), seed in runs
        ]
        outs = [Path(folder) / str(number) for number in range(len(runs))]
        results = train_together(configs, outs, data=data, on_note=print)
    accuracy: dict[tuple[float, float], list[float]] = {}
    for (case, _), result in zip(runs, results, strict=True):
        if isinstance(result, Finished):
            accuracy.setdefault(case, []).append(100 * (result.evaluations["test"].metrics["acc"] or 0.0))
    print(f"{'lr':>6} {'weight decay':>13} {'accuracy %':>11} {'std':>6}  n")
    for (lr, decay), values in accuracy.items():
        spread = statistics.stdev(values) if len(values) > 1 else float("nan")
        print(f"{lr:>6g} {decay:>13g} {statistics.mean(values):>11.2f} {spread:>6.2f}  {len(values)}")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    versions = {"torch": str(torch.__version__), "python": platform.python_version(), "device": device}
    cells = [{"lr": lr, "weight_decay": decay, "accuracy": values} for (lr, decay), values in accuracy.items()]
    print(json.dumps({"dataset": arguments.dataset, "versions": versions, "cells": cells}))


if __name__ == "__main__":
    main()

"""How were the settings of `confrank demo` chosen? On held-out training images, with other seeds than the demo uses.

    python experiments/demo_settings.py [--networks mlp] [--optimizers adamw] [--lrs 0.001 0.003] [--epochs 40 200]
                                        [--weights 1] [--widths 128] [--seeds 6]

Trains baseline and crl-softmax on 720 of the 900 training images of `digits` and measures AURC on the other 180. Each
seed, from 100 on, holds out other images. Both methods of a seed share the images, the initial weights and the order
of the samples, so their difference is a paired one. Prints one row per combination. The last two columns show, for
the guarantees in RISKS (95% probability), which share of the 180 images the guaranteed thresholds accept on average;
a network that cannot guarantee it accepts none. The test split is not read.
"""

import argparse
import itertools
import json
import platform
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from confrank import models
from confrank.config import RunConfig
from confrank.data import DataSet, hold_out, load
from confrank.decisions import UnreachableError, guaranteed_threshold
from confrank.methods import predict_split
from confrank.metrics import Samples, evaluation_of, sample_values
from confrank.models.images import mlp, small
from confrank.training import Run

FACTORIES = {"mlp": mlp, "small": small}
FIRST_SEED = 100
RISKS, DELTA = (0.2, 0.25, 0.3), 0.05
HEADER = (
    "network width optimizer    lr weight epochs | baseline: train err, held-out err, AURC x10^3"
    " | crl-softmax: the same | AURC difference +- s.e. | accepted % at guarantees of"
    f" {', '.join(f'{risk:.0%}' for risk in RISKS)}: baseline | crl-softmax"
)


def measured(config: RunConfig, digits: DataSet) -> tuple[float, ...]:
    """Training error, held-out error, held-out AURC, and the share accepted at each guarantee, of one run."""
    data, held = hold_out(digits, 0.2, config.seed)
    assert held is not None
    run = Run(config, data, torch.device("cpu"))
    while not run.finished:
        run.step()
        if run.next_step == run.num_steps:
            record = run.finish_epoch()
    predictions = predict_split(run.method, run.model, held, data.mean, data.std)
    samples = sample_values(**predictions.evaluation_inputs())
    metrics = evaluation_of(samples).metrics
    shares = [guaranteed_share(samples, risk) for risk in RISKS]
    return 1 - record["acc"], 1 - (metrics["acc"] or 0), metrics["aurc"] or 0, *shares


def guaranteed_share(samples: Samples, risk: float) -> float:
    """The share that a guaranteed threshold accepts; 0 if there is none."""
    try:
        return guaranteed_threshold(samples.confidence, samples.correct, risk, delta=DELTA).coverage or 0
    except UnreachableError:
        return 0.0


def compared(config: RunConfig, seeds: range, digits: DataSet) -> dict[str, Any]:
    """The means of both methods over the seeds, and the paired difference in AURC with its standard error."""
    base, crl = (
        np.array([measured(replace(config, method=method, seed=seed), digits) for seed in seeds])
        for method in ("baseline", "crl-softmax")
    )
    gap = (crl - base)[:, 2]
    return {
        "n": len(seeds), "baseline": base.mean(0).tolist(), "crl": crl.mean(0).tolist(),
        "aurc_std": [float(base[:, 2].std(ddof=1)), float(crl[:, 2].std(ddof=1))],
        "aurc_difference": float(gap.mean()), "standard_error": float(gap.std(ddof=1) / np.sqrt(len(gap))),
    }  # fmt: skip


def combinations(arguments: argparse.Namespace) -> Iterator[tuple[int, RunConfig]]:
    """Each width and config to try."""
    names = ("networks", "widths", "optimizers", "lrs", "weights", "epochs")
    for model, width, optimizer, lr, weight, epochs in itertools.product(*(getattr(arguments, n) for n in names)):
        yield width, RunConfig(model=model, optimizer=optimizer, lr=lr, weight=weight, epochs=epochs)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=FACTORIES, default=["mlp"])
    parser.add_argument("--widths", type=int, nargs="+", default=[128])
    parser.add_argument("--optimizers", nargs="+", choices=("sgd", "adamw"), default=["adamw"])
    parser.add_argument("--lrs", type=float, nargs="+", default=[0.001, 0.003])
    parser.add_argument("--weights", type=float, nargs="+", default=[1.0])
    parser.add_argument("--epochs", type=int, nargs="+", default=[40, 200])
    parser.add_argument("--seeds", type=int, default=6)
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    torch.set_num_threads(1)
    seeds, rows, start = range(FIRST_SEED, FIRST_SEED + arguments.seeds), [], time.monotonic()
    print(HEADER)
    for width, config in combinations(arguments):
        models.MODELS[config.model] = partial(FACTORIES[config.model], width=width)
        row = compared(config, seeds, load(config.dataset))
        settings = {name: getattr(config, name) for name in ("model", "optimizer", "lr", "weight", "epochs")}
        rows.append({"width": width, **settings, **row})
        means = row["baseline"], row["crl"]
        columns = [f"{100 * m[0]:5.1f}% {100 * m[1]:5.1f}% {1000 * m[2]:6.1f}" for m in means]
        shares = [" ".join(f"{100 * share:4.1f}" for share in m[3:]) for m in means]
        print(
            f"{config.model:7} {width:5d} {config.optimizer:9} {config.lr:5g} {config.weight:6g} {config.epochs:6d}"
            f" | {columns[0]} | {columns[1]}"
            f" | {1000 * row['aurc_difference']:+.1f} +- {1000 * row['standard_error']:.1f} | {' | '.join(shares)}",
            flush=True,
        )
    print(
        f"{len(seeds)} seeds a row, {time.monotonic() - start:.0f} s, torch {torch.__version__}, {platform.machine()}"
    )
    print(json.dumps({"torch": torch.__version__, "python": platform.python_version(), "rows": rows}))


if __name__ == "__main__":
    main()

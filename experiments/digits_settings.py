"""How were the settings of the first demo, a small convolutional network with SGD, chosen? On held-out images.

    python experiments/digits_settings.py [--seeds 6] [--noises 0.3 0.4 0.5] [--widths 32 64] [--epochs 60 120]

Prints, for each noise level, network width and number of epochs, the error rates on training and held-out images
and the AURC of baseline and crl-softmax on the held-out fifth of the 900 training images, with seeds from 100 on that
the demo does not use. The test split is not read. `experiments/demo_settings.py` replaced it for today's demo.
"""

import argparse
import itertools
import json
from functools import partial

import numpy as np
import torch

from confrank import evaluate, models
from confrank.config import RunConfig
from confrank.data import hold_out
from confrank.data.digits import load_digits
from confrank.methods import predict_split
from confrank.models.small import small
from confrank.training import Run


def held_out_run(noise: float, width: int, epochs: int, method: str, seed: int) -> tuple[float, float, float]:
    """(training error, held-out error, held-out AURC) of one run."""
    models.MODELS["small"] = partial(small, width=width)
    data, held = hold_out(load_digits(noise=noise), 0.2, seed)
    assert held is not None
    run = Run(RunConfig(method=method, epochs=epochs, seed=seed), data, torch.device("cpu"))
    while not run.finished:
        run.step()
        if run.next_step == run.num_steps:
            record = run.finish_epoch()
    predictions = predict_split(run.method, run.model, held, data.mean, data.std)
    metrics = evaluate(**predictions.evaluation_inputs()).metrics
    return 1 - record["acc"], 1 - (metrics["acc"] or 0), metrics["aurc"] or 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--noises", type=float, nargs="+", default=[0.3, 0.4, 0.5])
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--epochs", type=int, nargs="+", default=[60, 120])
    arguments = parser.parse_args()
    seeds = range(100, 100 + arguments.seeds)
    rows = []
    print("noise width epochs | train err held err AURC x10^3 (baseline) | (crl-softmax) | difference +- s.e.")
    for noise, width, epochs in itertools.product(arguments.noises, arguments.widths, arguments.epochs):
        base = np.array([held_out_run(noise, width, epochs, "baseline", seed) for seed in seeds])
        crl = np.array([held_out_run(noise, width, epochs, "crl-softmax", seed) for seed in seeds])
        gap = 1000 * (crl - base)[:, 2]
        row = {
            "noise": noise, "width": width, "epochs": epochs, "n": len(seeds),
            "baseline": base.mean(0).tolist(), "crl": crl.mean(0).tolist(),
            "aurc_difference": float(gap.mean()), "standard_error": float(gap.std(ddof=1) / np.sqrt(len(gap))),
        }  # fmt: skip
        rows.append(row)
        columns = [f"{100 * m[0]:5.1f}% {100 * m[1]:5.1f}% {1000 * m[2]:6.1f}" for m in (base.mean(0), crl.mean(0))]
        print(
            f"{noise} {width} {epochs:3d} | {columns[0]} | {columns[1]} | {row['aurc_difference']:+.1f}"
            f" +- {row['standard_error']:.1f}",
            flush=True,
        )
    print(json.dumps({"torch": torch.__version__, "rows": rows}))


if __name__ == "__main__":
    main()

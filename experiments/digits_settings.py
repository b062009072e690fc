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

import torch
from demo_settings import compared

from confrank import models
from confrank.config import RunConfig
from confrank.data.digits import load_digits
from confrank.models.images import small


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
        models.MODELS["small"] = partial(small, width=width)
        row = compared(RunConfig(epochs=epochs), seeds, load_digits(noise=noise))
        row |= {key: 1000 * row[key] for key in ("aurc_difference", "standard_error")}
        rows.append({"noise": noise, "width": width, "epochs": epochs, **row})
        means = row["baseline"], row["crl"]
        columns = [f"{100 * m[0]:5.1f}% {100 * m[1]:5.1f}% {1000 * m[2]:6.1f}" for m in means]
        print(
            f"{noise} {width} {epochs:3d} | {columns[0]} | {columns[1]} | {row['aurc_difference']:+.1f}"
            f" +- {row['standard_error']:.1f}",
            flush=True,
        )
    print(json.dumps({"torch": torch.__version__, "rows": rows}))


if __name__ == "__main__":
    main()

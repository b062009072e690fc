"""Does it matter whether correctness rates are plain shares, or stretched so that the lowest is 0?

    python experiments/rate_range.py [--noise 0.2] [--seeds 0 1 2] [--out runs/rate-range]
    python experiments/rate_range.py --dataset cifar10 --model vgg16 --root DATA

The paper defines c as the share of correct examinations. The code published with it takes (n - m) / (epochs - m) for
n correct examinations, m the smallest n of all training samples, which makes every margin of the ranking loss
1 / (1 - m / epochs) times as wide. Prints the test metrics of crl-softmax with either, the lowest share, and the
paired difference with its standard error. --noise applies to the embedded digits. Runs are resumed from --out.
"""

import argparse
from pathlib import Path

import numpy as np

from confrank.config import RunConfig
from confrank.data.digits import load_digits
from confrank.report.scales import SHOWN
from confrank.study.results import read_run
from confrank.training import Failed, train_together

UNITS = {key: shown.factor for key, shown in SHOWN.items() if key not in ("augrc", "auroc")}  # those of the paper


STRETCHED = "crl-softmax-stretched"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--model", default="small")
    parser.add_argument("--noise", type=float, default=0.2)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4, 5, 6, 7])
    parser.add_argument("--root", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=Path("runs/rate-range"))
    arguments = parser.parse_args()
    data = load_digits(noise=arguments.noise) if arguments.dataset == "digits" else None
    values: dict[str, np.ndarray] = {}
    settings = {"dataset": arguments.dataset, "model": arguments.model, "epochs": arguments.epochs}
    print(f"{'method':24} lowest  " + "  ".join(f"{name:>13}" for name in UNITS))
    for method in ("crl-softmax", STRETCHED):
        configs = [RunConfig(method=method, seed=seed, **settings) for seed in arguments.seeds]
        outs = [arguments.out / config.run_name for config in configs]
        for result in train_together(configs, outs, root=arguments.root, data=data):
            if isinstance(result, Failed):
                raise result.error
        results = [read_run(out) for out in outs]
        lowest = [float((arrays["history_correct"] / arrays["history_examined"]).min()) for _, arrays in results]
        values[method] = np.array(
            [[result.metrics[name] * unit for name, unit in UNITS.items()] for result, _ in results]
        )
        print(f"{method:24} {np.mean(lowest):6.3f}  " + _row(values[method]))
    difference = values[STRETCHED] - values["crl-softmax"]
    print(f"{'difference, mean ± s.e.':32}" + _row(difference, len(difference) ** 0.5))


def _row(values: np.ndarray, divisor: float = 1.0) -> str:
    spread = values.std(axis=0, ddof=1) / divisor if len(values) > 1 else np.full(values.shape[1], np.nan)
    return "  ".join(f"{mean:6.2f}±{std:6.2f}" for mean, std in zip(values.mean(axis=0), spread, strict=True))


if __name__ == "__main__":
    main()

"""Training steps of each recipe on one GPU, against the plain step of the same network, in one process.

    python benchmarks/recipes.py [--network resnet18] [--steps 300] [--json FILE]

One captured run at a time, batch 128, random 32x32 images. `plain` is the step of the default settings: one pass,
cross-entropy alone. Times are milliseconds per step; the spread is over repeated blocks of steps. `plain` is measured
first and again last, so that a drift of the machine shows.
"""

import argparse
import json
import platform
import statistics
import time

import torch
from training import milliseconds, random_set, stepping

from confrank.config import RunConfig
from confrank.data import DataSet
from confrank.recipes import RECIPES, settings
from confrank.training.captured import CapturedRun
from confrank.training.run import Run


def recipe_of(form: str) -> str:
    return "paper" if form.startswith("plain") else form


def config_of(form: str, network: str) -> RunConfig:
    changes = {"method": "baseline"} if form.startswith("plain") else {}
    return settings(recipe_of(form), dataset="random", model=network, **changes)


def measured(form: str, network: str, data: DataSet, steps: int) -> dict[str, object]:
    start = time.perf_counter()
    run = CapturedRun(Run(config_of(form, network), data, torch.device("cuda")))
    seconds = time.perf_counter() - start
    blocks = milliseconds(stepping([run]), steps)
    return {"form": form, "ms": statistics.median(blocks), "blocks": blocks, "prepare_s": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--json", default=None)
    arguments = parser.parse_args()
    data = random_set()
    rows = []
    print(f"{'form':<12} {'passes':>6} {'ms a step':>10} {'spread':>14} {'x plain':>8} {'prepare s':>10}")
    for form in ("plain", *RECIPES, "plain again"):
        row = measured(form, arguments.network, data, arguments.steps)
        row["passes"] = RECIPES[recipe_of(form)].passes
        rows.append(row)
        blocks = row["blocks"]
        print(
            f"{form:<12} {row['passes']:>6} {row['ms']:>10.3f} {min(blocks):>6.2f}-{max(blocks):<7.2f}"
            f" {row['ms'] / rows[0]['ms']:>8.2f} {row['prepare_s']:>10.1f}",
            flush=True,
        )
    versions = {"torch": str(torch.__version__), "python": platform.python_version()}
    device = torch.cuda.get_device_name()
    result = {"network": arguments.network, "device": device, "versions": versions, "rows": rows}
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(result, file, indent=1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()

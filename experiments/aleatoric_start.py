"""How far does the log-variance diverge in the first steps of aleatoric-mc, with and without its bound?

    python experiments/aleatoric_start.py --root DATA [--steps 200] [--dataset cifar10] [--seed 0]

VGG-16 from the paper's start (learning rate 0.1, batch 128), as `confrank train` takes its steps, float32 on a CPU.
Prints the mean loss of every 20 steps, the largest log-variance s in them and the largest norm of the gradient.
"""

import argparse
import math
from pathlib import Path

import torch
from torch import Tensor

from confrank.config import RunConfig
from confrank.data import load
from confrank.methods import method
from confrank.training import Run

EVERY = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bounds", type=float, nargs="+", default=[math.inf, method.MAX_LOG_VARIANCE])
    arguments = parser.parse_args()
    data = load(arguments.dataset, arguments.root)
    config = RunConfig(dataset=arguments.dataset, model="vgg16", method="aleatoric-mc", seed=arguments.seed)
    for bound in arguments.bounds:
        method.MAX_LOG_VARIANCE = bound
        print(f"s cut off at {bound:g}\n{'steps':>9} {'loss':>6} {'largest s':>9} {'gradient':>9}")
        print_steps(Run(config, data, torch.device("cpu")), arguments.steps)


def print_steps(run: Run, steps: int) -> None:
    largest: list[float] = []
    norms: list[float] = []
    run.model.variance_head.register_forward_hook(lambda module, given, output: largest.append(output.max().item()))
    for start in range(0, steps, EVERY):
        for _ in range(EVERY):
            run.step()
            norms.append(_norm([value.grad for value in run.model.parameters()]))
        loss = run.step_loss[start : start + EVERY].mean()
        print(f"{start + 1:4}-{start + EVERY:4} {loss:6.3f} {max(largest):9.2f} {max(norms):9.2f}", flush=True)
        largest.clear()
        norms.clear()


def _norm(gradients: list[Tensor | None]) -> float:
    return math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients if gradient is not None))


if __name__ == "__main__":
    main()

"""How should a network with dropout predict? Ours, and other readings of "50 stochastic passes".

    python experiments/dropout_prediction.py RUN... --root DATA [--limit 10000]

For finished runs of mcdropout or aleatoric-mc: one pass without dropout; 50 passes with batch norm in evaluation mode
(ours); 10 of them; 50 passes with all layers in training mode, where batch norm takes the means and variances of
each batch of 128 test images; 50 passes with the mean of the logits. Prints the test metrics of each.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from confrank import evaluate
from confrank.confidence import negative_entropy
from confrank.environment import default_device
from confrank.methods.method import DROPOUT
from confrank.methods.prediction import evaluating, normalised
from confrank.models import logits_of
from confrank.report.scales import SHOWN
from confrank.runs.trained import load_run

METRICS = {key: shown.factor for key, shown in SHOWN.items() if key not in ("augrc", "auroc")}  # those of the paper
BATCH = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=10_000, help="only the first so many test images")
    arguments = parser.parse_args()
    for run in arguments.runs:
        trained = load_run(run, root=arguments.root, device=default_device())
        test = trained.data.test.select(range(min(arguments.limit, len(trained.data.test))))
        print(f"{run.name}, {len(test):,} test images\n{'':30}" + " ".join(f"{name:>10}" for name in METRICS))
        with torch.inference_mode(), evaluating(trained.network) as device:
            batches = list(normalised(test.images, trained.provenance.mean, trained.provenance.std, device, BATCH))
            for name, passes, mode, through in (
                ("one pass, no dropout", 1, (), torch.softmax),
                ("50 passes", 50, DROPOUT, torch.softmax),
                ("10 passes", 10, DROPOUT, torch.softmax),
                ("50 passes, batch norm trains", 50, nn.Module, torch.softmax),
                ("50 passes, mean of logits", 50, DROPOUT, _unchanged),
            ):
                torch.manual_seed(0)
                logits = mean_logits(trained.network, batches, passes, mode, through)
                result = evaluate(
                    logits=logits.cpu().numpy(),
                    label=test.labels,
                    confidence=negative_entropy(logits).cpu().numpy(),
                    prediction=logits.argmax(dim=1).cpu().numpy(),
                )
                cells = (result.metrics[metric] * unit for metric, unit in METRICS.items())
                print(f"{name:30}" + " ".join(f"{value:10.2f}" for value in cells), flush=True)


def mean_logits(
    network: nn.Module,
    batches: list[Tensor],
    passes: int,
    mode: type | tuple[type, ...],
    through: Callable[[Tensor, int], Tensor],
) -> Tensor:
    """Logits [n, K] of the mean over the passes, with the modules of those types in training mode."""
    means = []
    for batch in batches:
        total: Tensor | float = 0.0
        for _ in range(passes):
            with _training(network, mode):
                logits = logits_of(network(batch))
            total = total + through(logits.double(), 1)
        mean = torch.as_tensor(total) / passes
        means.append(mean if through is _unchanged else mean.log())
    return torch.cat(means)


def _unchanged(logits: Tensor, dim: int) -> Tensor:
    return logits


@contextmanager
def _training(network: nn.Module, kinds: type | tuple[type, ...]) -> Iterator[None]:
    """Modules of these types in training mode; running means and variances are left unchanged."""
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta = [module.momentum for module in norms]
    for module in norms:
        module.momentum = 0.0
    chosen = [module for module in network.modules() if isinstance(module, kinds)]
    for module in chosen:
        module.training = True
    try:
        yield
    finally:
        for module in chosen:
            module.training = False
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


if __name__ == "__main__":
    main()

"""Does the initialisation explain accuracies below the paper's in the first stage of active learning?

    python experiments/active_initialisation.py --root DATA

ResNet-18 on 2,000 samples of CIFAR-10 (the first labelled set of trial 0), the paper's protocol, with torch's own
initialisation and with He-normal convolutions, two seeds each. Accuracy is measured on 10,000 unlabelled training
images; the test split is not used.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from active_settings import first_stage

from confrank import models
from confrank.active.experiment import Experiment
from confrank.models.network import initialise
from confrank.training import Finished, train_together

SEEDS = (1, 2)


def network(kind: str, seed: int, num_classes: int) -> torch.nn.Module:
    """A fresh ResNet-18: `create` gives He-normal convolutions; torch's initialisation is drawn again if asked."""
    torch.manual_seed(seed + (100 if kind == "he-normal" else 0))
    fresh = models.create("resnet18", num_classes)
    if kind == "he-normal":
        initialise(fresh)
    else:
        for module in fresh.modules():
            if isinstance(module, torch.nn.Conv2d):
                module.reset_parameters()
    return fresh


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="folder of the data sets")
    data = first_stage("cifar10", parser.parse_args().root)
    cases = [(kind, seed) for kind in ("torch", "he-normal") for seed in SEEDS]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = train_together(
            [Experiment().config("baseline", 0, seed) for _, seed in cases],
            [Path(folder) / f"{kind}-{seed}" for kind, seed in cases],
            data=data,
            networks=[network(kind, seed, data.num_classes) for kind, seed in cases],
            on_note=print,
        )
    for (kind, seed), result in zip(cases, results, strict=True):
        if isinstance(result, Finished):
            print(f"{kind:<10} seed {seed}  accuracy {100 * result.evaluations['test'].metrics['acc']:.2f}%")
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()

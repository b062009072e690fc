"""Which images should batch norm see when weights are averaged and images are mixed?

    python experiments/mixed_statistics.py --dataset cifar100 --root DATA [--epochs 24] [--seed 0] [--json OUT]

Trains SWA with mixup or CutMix as an additional loss in two forms: clean and mixed images passed through the network
together, so that both share the statistics of a batch, or one after the other. Then it estimates the statistics of
the averaged network over clean images alone, and over clean and mixed ones; it prints metrics on held-out images.
"""

import argparse
import json
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from confrank import evaluate, models
from confrank.environment import default_device
from confrank.methods import predict_split
from confrank.recipes import settings
from confrank.runs.trained import TrainedOn, load_run
from confrank.training import Failed, estimate_statistics, train
from confrank.training.run import Run
from confrank.training.step import StepFunctions
from confrank.training.store import Batch

METRICS = ("aurc", "e_aurc", "auroc", "ece", "acc")


def one_after_the_other(run: Run, batch: Batch, do: StepFunctions, *, bf16: bool = False) -> tuple[Tensor, Tensor]:
    """`Run.judge_batch` with a pass for the clean and a pass for the mixed images."""
    assert run.mixing is not None
    loss, num_correct = do.judge(run.criterion, do.infer(run.called, batch.image, bf16), batch.label, batch.index)
    mixed, share = do.mix(batch.image, run.mixing.at(run.step_number), None)
    logits = models.logits_of(do.infer(run.called, mixed, bf16))
    return loss + run.config.mix_weight * do.mixed_loss(logits, batch.label, share, None), num_correct


def clean_images(run: Run) -> Iterator[Tensor]:
    """The first half of what a step passes."""
    return (images[: len(images) // 2] for images in run._passed_images())


def measured(trained: TrainedOn, run: Run, images: Iterator[Tensor]) -> dict[str, float | None]:
    """The metrics on held-out images with statistics over these images."""
    run.model.load_state_dict(trained.network.state_dict())
    estimate_statistics(run.model.train(), images)
    record, held_out = trained.provenance, trained.held_out
    assert held_out is not None
    predictions = predict_split(trained.method, run.model.eval(), held_out, record.mean, record.std)
    metrics = evaluate(**predictions.evaluation_inputs()).metrics
    return {name: metrics[name] for name in METRICS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cifar100")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--root", type=Path, default=None)
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    changes = {"sam": 0.0, "mix": "both", "holdout": 0.1, "seed": given.seed}
    config = settings("fmfp", dataset=given.dataset, model=given.model, **changes)  # SWA and mixed images alone
    config = replace(config, epochs=given.epochs)
    rows: list[dict[str, Any]] = []
    print(f"{'passes':22}{'statistics over':18}" + "".join(f"{name:>9}" for name in METRICS))
    for passes, form in (("together", Run.judge_batch), ("one after the other", one_after_the_other)):
        with tempfile.TemporaryDirectory() as folder, patch.object(Run, "judge_batch", form):
            out = Path(folder) / "run"
            result = train(config, out, root=given.root)
            if isinstance(result, Failed):
                raise SystemExit(result.why)
            trained = load_run(out, root=given.root, device=default_device())
            run = Run(config, trained.data, default_device())
            for name, images in (("clean", clean_images(run)), ("clean and mixed", run._passed_images())):
                metrics = measured(trained, run, images)
                print(f"{passes:22}{name:18}" + "".join(f"{value:9.4f}" for value in metrics.values()), flush=True)
                rows.append({"passes": passes, "statistics": name, **metrics})
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    line = json.dumps(
        {"config": config.as_dict(), "device": str(default_device()), "versions": versions, "rows": rows}
    )
    print(line)
    if given.json:
        given.json.write_text(line + "\n")


if __name__ == "__main__":
    main()

"""Further measurements of a trained network: with mirrored images, and under shift."""

from dataclasses import replace
from pathlib import Path

import torch

from confrank.data import DataSet, Split
from confrank.data.corruption import CORRUPTIONS, STRENGTHS, corrupted
from confrank.environment import default_device
from confrank.metrics import evaluate
from confrank.runs.trained import TrainedOn, load_run
from confrank.study.results import extend_result, is_of_run, load_result

Metrics = dict[str, float | None]


def examine_run(
    run: Path,
    results: Path,
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    data: DataSet | None = None,
) -> Path:
    """Add `mirrored` and `shift` to the result of a finished run, unless it has them; options as in `load_run`.

    Without `device`, it is the one that training would use: eighteen passes over a test set take long on a CPU.
    """
    path = results / f"{run.name}.json"
    if load_result(path).shift:
        return path
    if not is_of_run(path, run):
        raise ValueError(f"expected the network of {path} in {run}, but it was trained again; remove the result")
    trained = load_run(run, root=root, device=device or default_device(), data=data)
    if trained.data.is_text:
        raise ValueError(f"expected images to mirror and corrupt, but {run} was trained on texts")
    return extend_result(path, {"mirrored": mirrored_metrics(trained), "shift": shift_metrics(trained)})


def mirrored_metrics(trained: TrainedOn) -> dict[str, Metrics]:
    """The metrics of the mean prediction for each image and its mirror image: `test`, and `validation` if any."""
    splits = {"test": trained.data.test, "validation": trained.held_out}
    return {name: _metrics(trained, split, mirror=True) for name, split in splits.items() if split is not None}


def shift_metrics(trained: TrainedOn) -> dict[str, dict[str, Metrics]]:
    """The metrics on corrupted test images by corruption and strength; seed 0, so that networks see the same ones."""
    test = trained.data.test
    return {
        name: {
            str(strength): _metrics(trained, replace(test, images=corrupted(test.images, name, strength)))
            for strength in STRENGTHS
        }
        for name in CORRUPTIONS
    }


def _metrics(trained: TrainedOn, split: Split, **options: bool) -> Metrics:
    return evaluate(**trained.predict(split, **options).evaluation_inputs()).metrics

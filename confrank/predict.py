"""Checkpoint + split -> predictions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from confrank import methods, models
from confrank.checkpoint import load_latest
from confrank.config import RunConfig, RunFolder, load_config
from confrank.data import hold_out, load
from confrank.methods import Method
from confrank.predictions import Predictions, run_metadata


@dataclass(frozen=True)
class Trained:
    """A run's newest network on a device, and what its checkpoint says about the images it takes."""

    config: RunConfig
    method: Method
    model: nn.Module
    meta: dict[str, Any]


def load_trained(run: Path, device: torch.device | None = None, network: nn.Module | None = None) -> Trained:
    """The network of a run folder's newest whole checkpoint.

    `network` takes the weights where the run was trained with a network of one's own.
    """
    config = load_config(run)
    checkpoint, _ = load_latest(RunFolder(run).checkpoint)
    meta = checkpoint.meta
    method = methods.get(config.method)
    form = method.dropout, method.variance_head
    model = network or models.create(config.model, meta["num_classes"], *form, in_channels=meta["image_shape"][-1])
    models.load_weights(model, checkpoint.weights)
    return Trained(config, method, model.to(device or torch.device("cpu")), meta)


def predict(
    run: Path,
    split: str = "test",
    *,
    root: Path | None = None,
    device: torch.device | None = None,
    network: nn.Module | None = None,
) -> Predictions:
    """Predictions of a run's newest checkpoint for "train", "test" or "holdout" of its data set."""
    trained = load_trained(run, device, network)
    config = trained.config
    full = load(config.dataset, root, image_size=config.image_size)
    data, held_out = hold_out(full, config.holdout, config.seed)
    splits = {"train": data.train, "test": data.test} | ({"holdout": held_out} if held_out else {})
    if split not in splits:
        raise ValueError(f"expected a split among {', '.join(splits)}, but got {split!r}")
    return methods.predict_split(
        trained.method,
        trained.model,
        splits[split],
        trained.meta["mean"],
        trained.meta["std"],
        metadata=run_metadata(config, data.class_names, split),
    )

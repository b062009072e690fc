"""Checkpoint + split -> predictions."""

from pathlib import Path

import torch
from torch import nn

from confrank import methods, models
from confrank.checkpoint import load_latest
from confrank.config import RunFolder, load_config
from confrank.data import hold_out, load
from confrank.predictions import Predictions, run_metadata


def predict(
    run: Path,
    split: str = "test",
    *,
    root: Path | None = None,
    device: torch.device | None = None,
    network: nn.Module | None = None,
) -> Predictions:
    """Predictions of a run's newest checkpoint for "train", "test" or "holdout" of its data set.

    `network` takes the weights where the run was trained with a network of one's own.
    """
    config = load_config(run)
    checkpoint, _ = load_latest(RunFolder(run).checkpoint)
    meta = checkpoint.meta
    method = methods.get(config.method)
    form = method.dropout, method.variance_head
    model = network or models.create(config.model, meta["num_classes"], *form, in_channels=meta["image_shape"][-1])
    models.load_weights(model, checkpoint.weights)
    full = load(config.dataset, root, image_size=config.image_size)
    data, held_out = hold_out(full, config.holdout, config.seed)
    splits = {"train": data.train, "test": data.test} | ({"holdout": held_out} if held_out else {})
    if split not in splits:
        raise ValueError(f"expected a split among {', '.join(splits)}, but got {split!r}")
    return methods.predict_split(
        method,
        model.to(device or torch.device("cpu")),
        splits[split],
        meta["mean"],
        meta["std"],
        metadata=run_metadata(config, data.class_names, split),
    )

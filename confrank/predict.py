"""Checkpoint + split -> predictions; and a run folder or weights file -> the network with its data."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from confrank import methods, models
from confrank.checkpoint import load_latest
from confrank.config import RunConfig, RunFolder, load_config
from confrank.data import DataSet, Split, hold_out, load
from confrank.methods import Method
from confrank.predictions import Predictions, run_metadata


@dataclass(frozen=True)
class Trained:
    """A run's newest network on a device, and what its checkpoint says about the images it takes."""

    config: RunConfig
    method: Method
    model: nn.Module
    meta: dict[str, Any]


@dataclass(frozen=True)
class TrainedOn:
    """A network on its device, the data it was trained on (without what was held out) and its normalisation."""

    network: nn.Module
    config: RunConfig
    data: DataSet
    held_out: Split | None
    mean: Sequence[float]
    std: Sequence[float]


def load_trained(run: Path, device: torch.device | None = None, network: nn.Module | None = None) -> Trained:
    """The network of a run folder's newest whole checkpoint.

    `network` takes the weights where the run was trained with a network of one's own.
    """
    config = load_config(run)
    checkpoint, _ = load_latest(RunFolder(run).checkpoint)
    meta = checkpoint.meta
    network = network or _network(config, meta["num_classes"], meta["image_shape"][-1])
    models.load_weights(network, checkpoint.weights)
    return Trained(config, methods.get(config.method), network.to(device or torch.device("cpu")), meta)


def load_run(
    run: Path, *, root: Path | None = None, device: torch.device | None = None, network: nn.Module | None = None
) -> TrainedOn:
    """`load_trained` together with the data set of the run."""
    trained = load_trained(run, device, network)
    config = trained.config
    data, held_out = hold_out(load(config.dataset, root, image_size=config.image_size), config.holdout, config.seed)
    return TrainedOn(trained.model, config, data, held_out, trained.meta["mean"], trained.meta["std"])


def load_weights_file(
    path: Path, config: RunConfig, *, root: Path | None = None, device: torch.device | None = None
) -> TrainedOn:
    """The network of a plain .safetensors file, of which `config` tells model, method and data set."""
    data = load(config.dataset, root, image_size=config.image_size)
    network = _network(config, data.num_classes, data.test.images.shape[-1])
    try:
        models.load_weights(network, load_file(path))
    except FileNotFoundError:
        raise ValueError(f"expected a run folder or a .safetensors file, but {path} does not exist") from None
    except (SafetensorError, RuntimeError) as error:
        why = " ".join(str(error).split())[:200]
        raise ValueError(f"expected weights of {config.model} for {config.dataset} in {path}, but: {why}") from None
    return TrainedOn(network.to(device or torch.device("cpu")), config, data, None, data.mean, data.std)


def _network(config: RunConfig, num_classes: int, in_channels: int) -> nn.Module:
    method = methods.get(config.method)
    return models.create(config.model, num_classes, method.dropout, method.variance_head, in_channels=in_channels)


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
    trained = load_run(run, root=root, device=device, network=network)
    data, held_out = trained.data, trained.held_out
    splits = {"train": data.train, "test": data.test} | ({"holdout": held_out} if held_out else {})
    if split not in splits:
        raise ValueError(f"expected a split among {', '.join(splits)}, but got {split!r}")
    return methods.predict_split(
        methods.get(trained.config.method),
        trained.network,
        splits[split],
        trained.mean,
        trained.std,
        metadata=run_metadata(trained.config, data.class_names, split),
    )

"""Checkpoint + split -> predictions; and a run folder or weights file -> the network with its data."""

import json
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from confrank import methods, models
from confrank.atomic import canonical_safetensors, write_atomically
from confrank.checkpoint import DamagedCheckpointError, load_latest
from confrank.config import RunConfig
from confrank.data import DataSet, Split, check_digests, hold_out, load_of, same_data
from confrank.methods import Method
from confrank.predictions import Predictions, run_metadata
from confrank.run_folder import RunFolder, load_config

# What a weights file of ours tells beside the weights.
DIGESTS = ("data", "test_data")
TOLD = ("config", "mean", "std", "image_shape", "class_names", *DIGESTS)


@dataclass(frozen=True)
class Trained:
    """A finished run's network on a device, the images it takes, [h, w, c] with their normalisation [c], its classes.

    `digests` are those of its data, as the run's files tell them.
    """

    config: RunConfig
    network: nn.Module
    image_shape: tuple[int, ...]
    mean: Sequence[float]
    std: Sequence[float]
    class_names: Sequence[str]
    digests: dict[str, str]

    @property
    def method(self) -> Method:
        return methods.get(self.config.method)


@dataclass(frozen=True)
class TrainedOn(Trained):
    """The same with the data it was trained on, without what was held out."""

    data: DataSet
    held_out: Split | None


def load_trained(
    run: str | Path, device: str | torch.device | None = None, network: nn.Module | None = None
) -> Trained:
    """The network of a finished run's folder, or of a .safetensors file that tells all that is asked for.

    `network` takes the weights where the run was trained with a network of one's own.
    """
    run = Path(run)
    if run.suffix == ".safetensors":
        return _trained_in(run, device, network)
    config = load_config(run)
    checkpoint, problems = load_latest(RunFolder(run).checkpoint)
    if problems:
        raise DamagedCheckpointError(
            f"expected a whole newest checkpoint in {run}, but {problems[0]};"
            " the command that trained it goes on from the one before"
        )
    if (epoch := checkpoint.state["epoch"]) < config.epochs:
        raise ValueError(
            f"expected a finished run in {run}, but it has {epoch} of {config.epochs} epochs;"
            " wait for its end, or go on with the command that trained it"
        )
    meta = checkpoint.meta
    network = network or _network(config, meta["num_classes"], meta["image_shape"])
    with _in_words(run):
        loaded = _loaded(network, checkpoint.weights, device)
    return Trained(
        config,
        loaded,
        tuple(meta["image_shape"]),
        meta["mean"],
        meta["std"],
        _class_names(run),
        {key: meta[key] for key in DIGESTS if key in meta},
    )


def _class_names(run: Path) -> list[str]:
    """As told beside the test predictions, which a run writes when it ends; none where they are lost."""
    try:
        with safe_open(RunFolder(run).predictions("test"), "pt") as predictions:
            names: list[str] = json.loads((predictions.metadata() or {}).get("class_names", "[]"))
    except (OSError, SafetensorError, ValueError):
        return []
    return names


def _trained_in(path: Path, device: str | torch.device | None, network: nn.Module | None) -> Trained:
    with _in_words(path):
        told = _told_in(path)
        if missing := [key for key in TOLD if key not in (*told, *DIGESTS)]:
            raise ValueError(f"expected {path} to tell its {' and '.join(missing)}, but it does not")
        config, shape, names = RunConfig.from_dict(told["config"]), tuple(told["image_shape"]), told["class_names"]
        network = _loaded(network or _network(config, len(names), shape), load_file(path), device)
    digests = {key: told[key] for key in DIGESTS if key in told}
    return Trained(config, network, shape, told["mean"], told["std"], names, digests)


def _network(config: RunConfig, num_classes: int, image_shape: Sequence[int]) -> nn.Module:
    return methods.get(config.method).network(config.model, num_classes, image_shape[-1])


def _loaded(network: nn.Module, weights: dict[str, Tensor], device: str | torch.device | None) -> nn.Module:
    models.load_weights(network, weights)
    return network.to(device or torch.device("cpu"))


def load_run(
    run: str | Path,
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    network: nn.Module | None = None,
    data: DataSet | None = None,
    test_only: bool = False,
) -> TrainedOn:
    """`load_trained` together with the data set of the run; a .safetensors file that tells its config will do.

    `data` is what was given to `train`, where it took the place of the named data set. The data must be those of the
    training; with `test_only`, the test split and the classes.
    """
    run = Path(run)
    if run.suffix == ".safetensors":
        return load_weights_file(run, root=root, device=device, network=network, data=data, test_only=test_only)
    trained = load_trained(run, device, network)
    used, held_out = _data_of(run, trained.config, root, data)
    _check_data(run, trained.digests, used, test_only)
    return TrainedOn(**vars(trained) | {"class_names": used.class_names}, data=used, held_out=held_out)


def save_weights_file(run: str | Path, path: str | Path, *, network: nn.Module | None = None) -> None:
    """Write a run's weights in half precision (batch norm's statistics in whole), with its config.

    `network` is one's own, where the run was trained with it.
    """
    trained = load_trained(run, network=network)
    weights = {name: _halved(name, value).contiguous() for name, value in trained.network.state_dict().items()}
    told = {key: getattr(trained, key) for key in TOLD if key not in ("config", *DIGESTS)}
    told |= {"config": trained.config.as_dict(), **trained.digests}
    metadata = {key: json.dumps(value, sort_keys=True) for key, value in told.items()}
    write_atomically(Path(path), canonical_safetensors(save(weights, metadata)))


def _halved(name: str, value: Tensor) -> Tensor:
    if not value.is_floating_point() or name.endswith(("running_mean", "running_var")):
        return value
    half = value.half()
    if not half.isfinite().all():
        raise ValueError(f"expected weights within half precision, but {name} has {float(value.abs().max()):.3g}")
    return half


def load_weights_file(
    path: str | Path,
    config: RunConfig | None = None,
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    network: nn.Module | None = None,
    data: DataSet | None = None,
    test_only: bool = False,
) -> TrainedOn:
    """The network of a .safetensors file; `config` tells model, method and data set where the file does not.

    `network` takes the weights where they are those of a network of one's own.
    """
    path = Path(path)
    with _in_words(path):
        told = _told_in(path)
        if "config" in told:
            config = _agreed(path, RunConfig.from_dict(told["config"]), config)
        if config is None:
            raise ValueError(
                f"expected {path} to tell its config, but it does not; `confrank ood` takes --model and --dataset"
            )
        used, held_out = _data_of(path, config, root, data)
        _check_data(path, told, used, test_only)
        shape = used.test.images.shape[1:]
        network = _loaded(network or _network(config, used.num_classes, shape), load_file(path), device)
    return TrainedOn(
        config,
        network,
        shape,
        told.get("mean", used.mean),
        told.get("std", used.std),
        used.class_names,
        {key: told[key] for key in DIGESTS if key in told},
        used,
        held_out,
    )


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """What is wrong with a weights file, as a `ValueError`."""
    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"expected a run folder or a .safetensors file, but {path} does not exist") from None
    except (SafetensorError, models.OtherWeightsError) as error:
        raise ValueError(
            f"expected weights of its network in {path}, but: {' '.join(str(error).split())[:200]}"
        ) from None


def _agreed(path: Path, told: RunConfig, wanted: RunConfig | None) -> RunConfig:
    """What the file tells of itself; a caller may only repeat it."""
    for key in ("model", "dataset", "method") if wanted else ():
        agree = same_data if key == "dataset" else operator.eq
        if not agree(getattr(wanted, key), getattr(told, key)):
            raise ValueError(
                f"expected {key} {getattr(told, key)}, as {path} tells, but got {getattr(wanted, key)};"
                " leave --model, --dataset and --method out"
            )
    return told


def config_of_weights(path: Path) -> dict[str, Any]:
    """The settings that a weights file tells of its run; none if it tells none."""
    config: dict[str, Any] = _told_in(path).get("config", {})
    return config


def settings_told(path: Path) -> RunConfig | None:
    """The same, or None of a file that tells none or cannot be read: what is wrong is told where it is loaded."""
    try:
        told = config_of_weights(path)
        return RunConfig.from_dict(told) if told else None
    except (OSError, SafetensorError, ValueError, TypeError):
        return None


def tells_classes(path: Path) -> bool:
    """Whether a weights file tells its classes and images, so that it can be used without its data set."""
    try:
        return {"class_names", "image_shape"} <= _told_in(path).keys()
    except (OSError, SafetensorError):
        return False  # as above


def _told_in(path: Path) -> dict[str, Any]:
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
    try:
        told = {key: json.loads(metadata[key]) for key in TOLD if key in metadata}
    except ValueError:
        told = {}
    return told if isinstance(told.get("config"), dict) else {}


def _check_data(source: Path, told: dict[str, Any], data: DataSet, test_only: bool) -> None:
    test_only = test_only and "test_data" in told
    check_digests(source, told, **{"test_data" if test_only else "data": data.digest(test_only=test_only)})


def _data_of(
    source: Path, config: RunConfig, root: str | Path | None, given: DataSet | None
) -> tuple[DataSet, Split | None]:
    data = load_of(source, config.dataset, root, image_size=config.image_size) if given is None else given
    return hold_out(data, config.holdout, config.seed)


def predict(
    run: str | Path,
    split: str = "test",
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    network: nn.Module | None = None,
    data: DataSet | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Predictions:
    """Predictions of a finished run (or a weights file) for "train", "test" or "holdout" of its data set.

    `network` takes the weights where the run was trained with a network of one's own, `data` is the data set where
    it was trained with one that has no name. `on_progress` is called with how many images are done and how many
    there are.
    """
    trained = load_run(run, root=root, device=device, network=network, data=data, test_only=split == "test")
    used, held_out = trained.data, trained.held_out
    splits = {"train": used.train, "test": used.test} | ({"holdout": held_out} if held_out else {})
    if split not in splits:
        raise ValueError(f"expected a split among {', '.join(splits)}, but got {split!r}")
    return methods.predict_split(
        trained.method,
        trained.network,
        splits[split],
        trained.mean,
        trained.std,
        metadata=run_metadata(trained.config, used.class_names, split),
        on_progress=on_progress,
    )

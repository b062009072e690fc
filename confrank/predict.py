"""Checkpoint + split -> predictions, or pictures -> answers; a run folder or weights file -> the network and data."""

import csv
import io
import json
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from confrank import methods, models
from confrank.checkpoint import DamagedCheckpointError, load_latest
from confrank.config import RunConfig, RunFolder, load_config
from confrank.data import DataSet, Split, check_digests, hold_out, load_of, same_data, split_of
from confrank.data.pictures import Size, cut_note, in_channels, natural_order, picture_files, read_picture
from confrank.files import canonical_safetensors, write_atomically
from confrank.methods import Method
from confrank.predictions import Predictions, load_predictions, run_metadata

# What a weights file of ours tells beside the weights.
DIGESTS = ("data", "test_data")
TOLD = ("config", "mean", "std", *DIGESTS)
# How many pictures are held at once: so many, or as many as fit into so many bytes.
BLOCK, BLOCK_BYTES = 1000, 1 << 26
ANSWER_COLUMNS = ("path", "prediction", "confidence")


@dataclass(frozen=True)
class Trained:
    """A finished run's network on a device, and the images it takes: [h, w, c], with their normalisation [c].

    `digests` are those of its data, as the run's files tell them.
    """

    config: RunConfig
    network: nn.Module
    image_shape: tuple[int, ...]
    mean: Sequence[float]
    std: Sequence[float]
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
    """The network of a finished run's folder.

    `network` takes the weights where the run was trained with a network of one's own.
    """
    run = Path(run)
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
    method = methods.get(config.method)
    network = network or method.network(config.model, meta["num_classes"], meta["image_shape"][-1])
    models.load_weights(network, checkpoint.weights)
    return Trained(
        config,
        network.to(device or torch.device("cpu")),
        tuple(meta["image_shape"]),
        meta["mean"],
        meta["std"],
        {key: meta[key] for key in DIGESTS if key in meta},
    )


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
    return TrainedOn(**vars(trained), data=used, held_out=held_out)


def save_weights_file(run: str | Path, path: str | Path, *, network: nn.Module | None = None) -> None:
    """Write a run's weights in half precision (batch norm's statistics in whole), with its config.

    `network` is one's own, where the run was trained with it.
    """
    trained = load_trained(run, network=network)
    weights = {name: _halved(name, value).contiguous() for name, value in trained.network.state_dict().items()}
    told = {"config": trained.config.as_dict(), "mean": trained.mean, "std": trained.std, **trained.digests}
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
    try:
        told = _told_in(path)
        if "config" in told:
            config = _agreed(path, RunConfig.from_dict(told["config"]), config)
        if config is None:
            raise ValueError(
                f"expected {path} to tell its config, but it does not; `confrank ood` takes --model and --dataset"
            )
        used, held_out = _data_of(path, config, root, data)
        _check_data(path, told, used, test_only)
        method = methods.get(config.method)
        network = network or method.network(config.model, used.num_classes, used.test.images.shape[-1])
        models.load_weights(network, load_file(path))
    except FileNotFoundError:
        raise ValueError(f"expected a run folder or a .safetensors file, but {path} does not exist") from None
    except (SafetensorError, RuntimeError) as error:
        why = " ".join(str(error).split())[:200]
        what = f"weights of {config.model} for {config.dataset}" if config else "weights"
        raise ValueError(f"expected {what} in {path}, but: {why}") from None
    return TrainedOn(
        config,
        network.to(device or torch.device("cpu")),
        used.test.images.shape[1:],
        told.get("mean", used.mean),
        told.get("std", used.std),
        {key: told[key] for key in DIGESTS if key in told},
        used,
        held_out,
    )


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


@dataclass(frozen=True)
class Answers:
    """What a network says of pictures: their paths, the names of the predicted classes, and confidence [n].

    `notes` tell what was done to make pictures fit, `unreadable` why others have no answer.
    """

    paths: list[str]
    predictions: list[str]
    confidence: NDArray[np.float64]
    notes: list[str]
    unreadable: list[str]

    def accepted(self, threshold: float) -> NDArray[np.bool_]:
        return self.confidence >= threshold

    def as_csv(self, threshold: float | None = None) -> str:
        """A row for each picture; with `threshold`, whether the answer is accepted."""
        columns: list[Sequence[Any]] = [self.paths, self.predictions, self.confidence.tolist()]
        header = [*ANSWER_COLUMNS]
        if threshold is not None:
            header.append("accepted")
            columns.append(["true" if sure else "false" for sure in self.accepted(threshold)])
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([header, *zip(*columns, strict=True)])
        return text.getvalue()


def predict_images(
    run: str | Path,
    folder: str | Path,
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    network: nn.Module | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Answers:
    """What a finished run (or a weights file) says of all pictures under a folder, in the order of their paths.

    Pictures are brought to the size of the run's as `image_size` does it in training. A stochastic method draws
    from the number of the block of pictures: the same folder gives the same answers.
    """
    run, folder = Path(run), Path(folder)
    if not folder.is_dir():
        state = "is none" if folder.exists() else "does not exist"
        raise ValueError(f"expected a folder of pictures, but {folder} {state}")
    names = sorted((file.relative_to(folder).as_posix() for file in picture_files(folder)), key=natural_order)
    if not names:
        raise ValueError(f"expected PNG, JPEG, WebP or BMP pictures in {folder}, but there are none")
    trained, class_names = _trained_with_classes(run, root, device, network)
    size = max(1, min(BLOCK, BLOCK_BYTES // int(np.prod(trained.image_shape))))
    parts, seen = [], _Seen([], [], [], 0)
    for number, start in enumerate(range(0, len(names), size)):
        images = _read_block(folder, names[start : start + size], trained.image_shape, seen)
        if len(images):
            split = split_of(images, np.zeros(len(images), dtype=np.int64))
            method, model, mean, std = trained.method, trained.network, trained.mean, trained.std
            parts.append(methods.predict_split(method, model, split, mean, std, seed=number))
        if on_progress:
            on_progress(min(start + size, len(names)), len(names))
    if not parts:
        raise ValueError(f"expected pictures that can be read, but none of {len(names)} can: {seen.unreadable[0]}")
    rows = np.concatenate([part.table.argmax(axis=1) for part in parts if part.table is not None])
    confidence = np.concatenate([part.confidence for part in parts if part.confidence is not None])
    predictions = [class_names[row] for row in rows]
    return Answers(seen.paths, predictions, confidence, seen.notes(trained.image_shape), seen.unreadable)


def _trained_with_classes(
    run: Path, root: str | Path | None, device: str | torch.device | None, network: nn.Module | None
) -> tuple[Trained, Sequence[str]]:
    """A run folder tells the names of its classes beside its predictions, and needs no data; a weights file does."""
    if run.suffix == ".safetensors":
        loaded = load_run(run, root=root, device=device, network=network, test_only=True)
        return loaded, loaded.data.class_names
    trained = load_trained(run, device, network)
    if not (told := RunFolder(run).predictions("test")).exists():
        raise ValueError(f"expected the finished run's {told}, but it is missing; call the training command again")
    return trained, load_predictions(told).class_names or []


@dataclass
class _Seen:
    """The pictures that were read: their paths and sizes, and how many were turned grey; and why others were not."""

    paths: list[str]
    sizes: list[Size]
    unreadable: list[str]
    greyed: int

    def notes(self, shape: Sequence[int]) -> list[str]:
        """What was done to pictures so that the network takes them."""
        size, of = (shape[0], shape[1]), f"of {len(self.sizes):,} pictures"
        scaled = sum(own != size for own in self.sizes)
        return [
            *([f"{scaled:,} {of} scaled to {size[1]}x{size[0]}, the size that the run takes"] if scaled else []),
            *filter(None, [cut_note(self.sizes, size)]),
            *([f"{self.greyed:,} {of} turned grey: the run takes grey ones"] if self.greyed else []),
        ]


def _read_block(folder: Path, names: Sequence[str], shape: Sequence[int], seen: _Seen) -> NDArray[np.uint8]:
    """The pictures of these names that can be read, as the network takes them [n, h, w, c]."""
    height, width, channels = shape
    images = np.empty((len(names), height, width, channels), dtype=np.uint8)
    num_read = 0
    for name in names:
        try:
            picture, own = read_picture(folder / name, (height, width))
        except ValueError as error:
            seen.unreadable.append(str(error))
        else:
            images[num_read] = in_channels(picture, channels)
            num_read += 1
            seen.paths.append(name)
            seen.sizes.append(own)
            seen.greyed += picture.shape[2] > channels
    return images[:num_read]

"""A run folder or a weights file -> the trained network, with the data of its run if you need them, and predictions.

A weights file has the network in half precision, and the record of the run that trained it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from confrank import methods, models
from confrank.config import RunConfig
from confrank.data import DataSet, Split, check_digests, hold_out, load_of, same_data
from confrank.data.vocabulary import FIRST_WORD
from confrank.errors import InputError
from confrank.files import canonical_safetensors, write_atomically
from confrank.methods import Method
from confrank.predictions import Predictions
from confrank.provenance import Provenance
from confrank.runs.checkpoint import DamagedCheckpointError, load_latest
from confrank.runs.folder import RunFolder, load_config


@dataclass(frozen=True)
class Trained:
    """The network of a finished run on a device, and the record of the run."""

    provenance: Provenance
    network: nn.Module

    @property
    def config(self) -> RunConfig:
        return self.provenance.config

    @property
    def method(self) -> Method:
        return methods.get(self.config.method)

    def predict(self, split: Split, **options: Any) -> Predictions:
        """The predictions for a split as the run makes them; `options` are further ones of `predict_split`."""
        record = self.provenance
        options = {"mirror": self.config.mirror, **options}
        return methods.predict_split(self.method, self.network, split, record.mean, record.std, **options)


@dataclass(frozen=True)
class TrainedOn(Trained):
    """The same with the data it was trained on, without the held-out split."""

    data: DataSet
    held_out: Split | None


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

    `network` receives the weights if the run was trained with your own network; `data` is the data set if it was
    trained with one that has no name. `on_progress` is called with the numbers of images done and in all.
    """
    trained = load_run(run, root=root, device=device, network=network, data=data, test_only=split == "test")
    used, held_out = trained.data, trained.held_out
    splits = {"train": used.train, "test": used.test} | ({"holdout": held_out} if held_out else {})
    if split not in splits:
        raise ValueError(f"expected a split among {', '.join(splits)}, but got {split!r}")
    metadata = trained.provenance.of_predictions(split)
    return trained.predict(splits[split], metadata=metadata, on_progress=on_progress)


def load_run(
    run: str | Path,
    config: RunConfig | None = None,
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    network: nn.Module | None = None,
    data: DataSet | None = None,
    test_only: bool = False,
) -> TrainedOn:
    """`load_trained` together with the data set of the run.

    `config` gives model, method and data set of a weights file without a record. `data` is the data set that was
    given to `train` instead of a named one. The data must equal those of the training; with `test_only`, the test
    split and the classes must.
    """
    run = Path(run)
    weights, stored = _read(run)
    record = _agreed(run, stored, config)
    config, digests = record.config, record.digests
    if data is None:
        data = load_of(run, config.dataset, root, from_pool=record.from_pool, **config.reading)
    used, held_out = hold_out(data, config.holdout, config.seed)
    test_only = test_only and "test_data" in digests
    check_digests(run, digests, **{"test_data" if test_only else "data": used.digest(test_only=test_only)})
    record = completed(record, used)
    return TrainedOn(record, _loaded(run, weights, record, device, network), used, held_out)


def load_trained(
    run: str | Path, device: str | torch.device | None = None, network: nn.Module | None = None
) -> Trained:
    """The network of a finished run folder, or of a weights file with a complete record.

    `network` receives the weights if the run was trained with your own network.
    """
    run = Path(run)
    weights, record = _read(run)
    if record is None:
        raise ValueError(f"expected a config in the metadata of {run}, but there is none")
    normalisation = ("mean", "std") if record.input_kind == "image" else ("vocabulary",)
    wanted = ("class_names", "input_shape", *normalisation)
    if missing := [name for name in wanted if not getattr(record, name)]:
        raise ValueError(f"expected {', '.join(missing)} in the metadata of {run}, but got none")
    return Trained(record, _loaded(run, weights, record, device, network))


def _read(run: Path) -> tuple[dict[str, Tensor], Provenance | None]:
    """The weights in a finished run folder or in a weights file, and the record of the run, if there is one."""
    if run.suffix == ".safetensors":
        with weights_errors(run):
            return load_file(run), read_provenance(run)
    config = load_config(run)
    checkpoint, problems = load_latest(RunFolder(run).checkpoint)
    if problems:
        raise DamagedCheckpointError(
            f"expected an intact newest checkpoint in {run}, but {problems[0]};"
            " run the training command again to resume from the one before"
        )
    if (epoch := checkpoint.state["epoch"]) < config.epochs:
        raise ValueError(
            f"expected a finished run in {run}, but it has {epoch} of {config.epochs} epochs;"
            " wait for it to finish, or run the training command again to resume"
        )
    return checkpoint.weights, replace(Provenance.from_dict(checkpoint.meta), config=config)


def _agreed(path: Path, stored: Provenance | None, config: RunConfig | None) -> Provenance:
    """The record in the file; a caller's config may only repeat it. Of a bare file, the caller's config."""
    if stored is None:
        if config is None:
            raise InputError(
                f"expected a config in the metadata of {path}, but there is none",
                "`confrank ood` takes its {model} and {dataset}; in Python, give `config` to load_run",
            )
        return Provenance(config)
    for key in ("model", "dataset", "method") if config else ():
        there, given = getattr(stored.config, key), getattr(config, key)
        if not (same_data(there, given) if key == "dataset" else there == given):
            raise InputError(
                f"expected {key} {there}, which {path} was trained with, but got {given}",
                "leave out {model}, {dataset} and {method}",
            )
    return stored


def completed(provenance: Provenance, data: DataSet) -> Provenance:
    """The record with the classes and the input of its data; a normalisation that it has already stays."""
    return replace(
        provenance,
        class_names=data.class_names,
        input_shape=tuple(data.train.images.shape[1:]),
        mean=provenance.mean or data.mean,
        std=provenance.std or data.std,
        vocabulary=data.vocabulary,
        input_kind="text" if data.is_text else "image",
        from_pool=data.from_pool,
    )


def _loaded(
    source: Path,
    weights: dict[str, Tensor],
    record: Provenance,
    device: str | torch.device | None,
    network: nn.Module | None,
) -> nn.Module:
    """The network of a run, or the given one, with these weights."""
    if network is None:
        config, shape = record.config, record.input_shape
        in_channels = FIRST_WORD + len(record.vocabulary) if record.input_kind == "text" else shape[-1]
        method, classes = methods.get(config.method), len(record.class_names)
        network = method.network(config.model, classes, in_channels, head=config.head)
    with weights_errors(source):
        models.load_weights(network, weights)
    return network.to(device or torch.device("cpu"))


def save_weights_file(run: str | Path, path: str | Path, *, network: nn.Module | None = None) -> None:
    """Write the weights of a finished run in half precision, with the record of the run.

    The statistics of batch norm keep their precision. `network` receives the weights first if the run was trained
    with your own network.
    """
    trained = load_trained(run, network=network)
    weights = {name: _halved(name, value).contiguous() for name, value in trained.network.state_dict().items()}
    write_atomically(Path(path), canonical_safetensors(save(weights, trained.provenance.as_metadata())))


def _halved(name: str, value: Tensor) -> Tensor:
    if not value.is_floating_point() or name.endswith(("running_mean", "running_var")):
        return value
    half = value.half()
    if not half.isfinite().all():
        raise ValueError(f"expected weights within half precision, but {name} has {float(value.abs().max()):.3g}")
    return half


def read_provenance(path: Path) -> Provenance | None:
    """The record in a weights file; None if it has none."""
    with weights_errors(path), safe_open(path, "pt") as file:
        return Provenance.from_metadata(file.metadata() or {})


@contextmanager
def weights_errors(source: Path) -> Iterator[None]:
    """Report missing, unreadable and mismatched weights as a `ValueError` that names their source."""
    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"expected a run folder or a .safetensors file, but {source} does not exist") from None
    except (SafetensorError, models.OtherWeightsError) as error:
        raise ValueError(
            f"expected weights of its network in {source}, but: {' '.join(str(error).split())[:200]}"
        ) from None

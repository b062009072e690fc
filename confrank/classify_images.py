"""Pictures and a trained network -> answers: what each one shows, and how sure the network is."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from confrank import methods
from confrank.data import split_of
from confrank.data.pictures import Size, cut_note, in_channels, natural_order, picture_files, read_picture
from confrank.predict import Trained, load_run, load_trained, tells_classes
from confrank.run_folder import RunFolder

# How many pictures are held at once: so many, or as many as fit into so many bytes.
BLOCK, BLOCK_BYTES = 1000, 1 << 26
COLUMNS = ("path", "prediction", "confidence")


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
        header = [*COLUMNS]
        if threshold is not None:
            header.append("accepted")
            columns.append(["true" if sure else "false" for sure in self.accepted(threshold)])
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([header, *zip(*columns, strict=True)])
        return text.getvalue()


def answer(
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
    files = picture_files(folder, every=True)
    names = sorted((file.relative_to(folder).as_posix() for file in files), key=natural_order)
    if not names:
        raise ValueError(f"expected PNG, JPEG, WebP or BMP pictures in {folder}, but there are none")
    trained = _trained(run, root, device, network)
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
    predictions = [trained.class_names[row] for row in rows]
    return Answers(seen.paths, predictions, confidence, seen.notes(trained.image_shape), seen.unreadable)


def _trained(
    run: Path, root: str | Path | None, device: str | torch.device | None, network: nn.Module | None
) -> Trained:
    """With names of its classes. An old weights file does not tell them: its data set does."""
    if run.suffix == ".safetensors" and not tells_classes(run):
        return load_run(run, root=root, device=device, network=network, test_only=True)
    trained = load_trained(run, device, network)
    if not trained.class_names:
        told = RunFolder(run).predictions("test")
        raise ValueError(
            f"expected the finished run's {told}, but it is missing or damaged; `confrank predict {run}` writes it"
        )
    return trained


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

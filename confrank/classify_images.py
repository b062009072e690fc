"""Image files and a trained network -> answers: the class of each image, and the confidence."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from confrank.data import split_of
from confrank.data.pictures import Size, crop_note, in_channels, natural_order, picture_files, read_picture
from confrank.errors import InputError
from confrank.methods import joined
from confrank.metrics.inputs import at_or_above
from confrank.predictions import Predictions
from confrank.runs.trained import load_trained
from confrank.spreadsheet import csv_text

# Images are read in blocks of this many, or of as many as fit into this many bytes.
BLOCK, BLOCK_BYTES = 1000, 1 << 26
COLUMNS = ("prediction", "confidence")


@dataclass(frozen=True)
class Answers:
    """The paths of images, or names of texts, and the predictions for them.

    `notes` say how images were changed to fit the network, `unreadable` why others have no answer.
    """

    paths: list[str]
    raw: Predictions
    notes: list[str]
    unreadable: list[str]

    @property
    def confidence(self) -> NDArray[np.float64]:
        assert self.raw.confidence is not None, "networks give their confidence"
        return self.raw.confidence

    @property
    def predictions(self) -> list[str]:
        """The names of the predicted classes."""
        assert self.raw.table is not None and self.raw.class_names is not None, "networks know their classes"
        return [self.raw.class_names[row] for row in self.raw.table.argmax(axis=1)]

    def accepted(self, threshold: float) -> NDArray[np.bool_]:
        return at_or_above(self.confidence, threshold)

    def as_csv(self, threshold: float | None = None) -> str:
        """A row for each sample; with `threshold`, whether the answer is accepted."""
        columns: list[Sequence[Any]] = [self.paths, self.predictions, self.confidence.tolist()]
        header = [self.raw.key_name, *COLUMNS]
        if threshold is not None:
            header.append("accepted")
            columns.append(["true" if sure else "false" for sure in self.accepted(threshold)])
        return csv_text([header, *zip(*columns, strict=True)])


def answer(
    run: str | Path,
    folder: str | Path,
    *,
    device: str | torch.device | None = None,
    network: nn.Module | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Answers:
    """Classify all images under a folder with a finished run (or a weights file), in the order of their paths.

    Images are cropped and scaled to the input size of the run as `image_size` does in training. A stochastic method
    is seeded with the number of the block of images, so the same folder gives the same answers.
    """
    run, folder = Path(run), Path(folder)
    if not folder.is_dir():
        state = "is not a folder" if folder.exists() else "does not exist"
        raise ValueError(f"expected a folder of images, but {folder} {state}")
    files = picture_files(folder, every=True)
    names = sorted((file.relative_to(folder).as_posix() for file in files), key=natural_order)
    if not names:
        raise ValueError(f"expected PNG, JPEG, WebP or BMP images in {folder}, but there are none")
    trained = load_trained(run, device, network)
    record = trained.provenance
    if record.input_kind == "text":
        raise InputError(f"expected a run that was trained on images, but {run} was trained on texts", "use {texts}")
    size = max(1, min(BLOCK, BLOCK_BYTES // int(np.prod(record.input_shape))))
    parts, seen = [], _Seen([], [], [], 0)
    for number, start in enumerate(range(0, len(names), size)):
        images = _read_block(folder, names[start : start + size], record.input_shape, seen)
        if len(images):
            split = split_of(images, np.zeros(len(images), dtype=np.int64))
            parts.append(trained.predict(split, seed=number))
        if on_progress:
            on_progress(min(start + size, len(names)), len(names))
    if not parts:
        raise ValueError(f"expected readable images, but none of {len(names)} is: {seen.unreadable[0]}")
    metadata = record.of_predictions("images") | {"key": "path"}
    raw = Predictions(**joined(parts), key=np.array([os.fsencode(path) for path in seen.paths]), metadata=metadata)
    return Answers(seen.paths, raw, seen.notes(record.input_shape), seen.unreadable)


@dataclass
class _Seen:
    """The paths and sizes of the images read, how many were turned grey, and why others could not be read."""

    paths: list[str]
    sizes: list[Size]
    unreadable: list[str]
    greyed: int

    def notes(self, shape: Sequence[int]) -> list[str]:
        """How images were changed to fit the network."""
        size, of = (shape[0], shape[1]), f"of {len(self.sizes):,} images"
        scaled = sum(original != size for original in self.sizes)
        return [
            *([f"{scaled:,} {of} scaled to {size[1]}x{size[0]}, the input size of the run"] if scaled else []),
            *filter(None, [crop_note(self.sizes, size)]),
            *([f"{self.greyed:,} {of} turned grey: the run was trained on grey images"] if self.greyed else []),
        ]


def _read_block(folder: Path, names: Sequence[str], shape: Sequence[int], seen: _Seen) -> NDArray[np.uint8]:
    """The readable images among these names, in the shape that the network takes [n, h, w, c]."""
    height, width, channels = shape
    images = np.empty((len(names), height, width, channels), dtype=np.uint8)
    num_read = 0
    for name in names:
        try:
            picture, original = read_picture(folder / name, (height, width))
        except ValueError as error:
            seen.unreadable.append(str(error))
        else:
            images[num_read] = in_channels(picture, channels)
            num_read += 1
            seen.paths.append(name)
            seen.sizes.append(original)
            seen.greyed += picture.shape[2] > channels
    return images[:num_read]

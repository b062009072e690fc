"""Unlabelled images by name: a folder of pictures, or an .npz of images."""

import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from confrank.active.strategies import Numbered, Rows
from confrank.data import DataSet, Split
from confrank.data.custom import custom_data_set
from confrank.data.pictures import Picture, read_picture, read_thumbnail, stack
from confrank.errors import InputError
from confrank.files import npy_header
from confrank.provenance import Provenance

BLOCK_BYTES = 1 << 24


@dataclass(frozen=True)
class ImagePool:
    """Images by name; `pictures` and `thumbnails` give them."""

    path: Path
    names: Sequence[str]
    kind = "image"
    key = "path"

    def pictures(self, rows: Rows) -> Iterator[Picture | ValueError]:
        """The pictures of these rows (ascending) in turn, with an error in place of each unreadable one."""
        raise NotImplementedError

    def thumbnails(self, rows: Rows, side: int) -> Iterator[Picture | ValueError]:
        """The same to look at."""
        raise NotImplementedError

    def inputs(self, rows: Rows, record: Provenance) -> Iterator[Picture | ValueError]:
        """The pictures of these rows in turn, as the network of a run takes them."""
        for row, picture in zip(rows.tolist(), self.pictures(rows), strict=True):
            if isinstance(picture, ValueError):
                yield picture
            else:
                yield fit(picture, record.input_shape, self.names[row])

    def identity(self, row: int) -> str:
        """What scores of a row depend on, as far as it is cheap to know: its name, and size and time of its file."""
        try:
            state = self._file(row).stat()
        except OSError:  # reported where it is read
            return f"{self.names[row]}\0"
        return f"{self.names[row]}\0{state.st_size}\0{state.st_mtime_ns}\0"

    def _file(self, row: int) -> Path:
        """The file with the image of a row."""
        return self.path

    def columns(self, rows: Rows) -> dict[str, list[str]]:
        """What people need to label these rows: nothing more than the contact sheet."""
        return {}

    def data_set(self, classes: tuple[str, ...], train: Numbered, test: Numbered) -> DataSet:
        """The data set of these rows and their class numbers. Mean and std are those of the training images."""
        first, second = (Split(self._stacked(rows), labels, rows) for rows, labels in (train, test))
        shapes = [list(split.images.shape[1:]) for split in (first, second)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                "expected training and test images of one shape,"
                f" but got [h, w, channels] {shapes[0]} and {shapes[1]}"
            )
        return custom_data_set(self.path, first, second, classes)

    def _stacked(self, rows: Rows) -> NDArray[np.uint8]:
        pictures: list[Picture] = []
        for picture in self.pictures(rows):
            if isinstance(picture, ValueError):
                raise picture
            pictures.append(picture)
        return stack(pictures, [self.names[row] for row in rows.tolist()])


@dataclass(frozen=True)
class FolderPool(ImagePool):
    """Pictures under a folder; a name is the path inside it."""

    size: int | None

    def _file(self, row: int) -> Path:
        return self.path / self.names[row]

    def pictures(self, rows: Rows) -> Iterator[Picture | ValueError]:
        size = None if self.size is None else (self.size, self.size)
        return self._read(rows, lambda path: read_picture(path, size)[0])

    def thumbnails(self, rows: Rows, side: int) -> Iterator[Picture | ValueError]:
        """The pictures to look at: not cropped, and at most `side` wide and high."""
        return self._read(rows, lambda path: read_thumbnail(path, side))

    def _read(self, rows: Rows, read: Callable[[Path], Picture]) -> Iterator[Picture | ValueError]:
        for row in rows.tolist():
            try:
                yield read(self._file(row))
            except ValueError as error:
                yield error


@dataclass(frozen=True)
class ArchivePool(ImagePool):
    """`images` of an .npz, streamed so that only a block of them is in memory."""

    def pictures(self, rows: Rows) -> Iterator[Picture | ValueError]:
        try:
            yield from self._stream(rows)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise ValueError(f"expected an intact .npz file, but {self.path} cannot be read: {error}") from None

    def thumbnails(self, rows: Rows, side: int) -> Iterator[Picture | ValueError]:
        """The images as they are, since an .npz has no larger originals."""
        return self.pictures(rows)

    def _stream(self, rows: Rows) -> Iterator[Picture]:
        with zipfile.ZipFile(self.path) as archive, archive.open("images.npy") as stream:
            shape, kind = image_header(stream, self.path)
            size = int(np.prod(shape[1:])) * kind.itemsize
            step, start = max(1, BLOCK_BYTES // size), 0
            for block in range(0, shape[0], step):
                content = stream.read(min(step, shape[0] - block) * size)
                if len(content) % size:
                    raise EOFError("it ends in the middle of an image")
                images = np.frombuffer(content, np.uint8).reshape(-1, *shape[1:], *([1] if len(shape) == 3 else []))
                stop = int(np.searchsorted(rows, block + len(images)))
                yield from images[rows[start:stop] - block]
                start = stop
                if start == len(rows):
                    return


def fit(picture: Picture, shape: Sequence[int], name: str) -> Picture:
    """The picture in the network's size; a grey one is repeated for each channel."""
    height, width, channels = shape
    if picture.shape[:2] != (height, width):
        actual = f"{picture.shape[1]}x{picture.shape[0]}"
        raise InputError(
            f"expected images of {width}x{height}, as the network was trained on, but {name} is {actual}",
            "set {image_size} to scale pictures",
        )
    if picture.shape[2] not in (1, channels):
        raise ValueError(f"expected images of {channels} channel, but {name} has {picture.shape[2]}")
    return np.broadcast_to(picture, (height, width, channels))


def image_header(stream: IO[bytes], path: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and type of `images` in an .npz, from the start of the array."""
    shape, fortran, kind = npy_header(stream)
    if kind != np.uint8 or len(shape) not in (3, 4) or fortran or 0 in shape[1:]:
        raise ValueError(
            f"expected images in {path} to be uint8 of shape [n, height, width] or [n, height, width, channels],"
            f" row by row, but got {kind} of shape {list(shape)}"
        )
    return shape, kind

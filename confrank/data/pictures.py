"""Image files to arrays: PNG, JPEG, WebP and BMP, from folders or archives, scaled to one size."""

import io
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from confrank.data.published import open_archive
from confrank.errors import InputError
from confrank.files import files_under

if TYPE_CHECKING:
    from PIL import Image

Picture = NDArray[np.uint8]
Size = tuple[int, int]  # height and width

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
# Image formats that are an error, so that their files are not skipped silently.
UNREAD = (".gif", ".tif", ".tiff", ".heic", ".avif", ".jp2", ".ppm", ".pgm")
FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
MAX_MEGAPIXELS = 100
ORIENTATION = 0x0112  # a tag of EXIF; above 4, height and width change places


def decode(content: bytes, origin: str, size: int | None = None) -> Picture:
    """One image as uint8, [h, w, 1] if it is grey, else [h, w, 3], rotated as its metadata says.

    With `size`, the largest central square is scaled to size x size (bicubic). Transparency is dropped.
    """
    return decode_fitted(content, origin, None if size is None else (size, size))[0]


def decode_fitted(content: bytes, origin: str, size: Size | None) -> tuple[Picture, Size]:
    """An image cropped around its centre to the proportions of `size` and scaled to it, and its original size."""
    from PIL import Image, ImageOps

    plain = _plain(content, origin)
    original = plain.height, plain.width
    if size is not None and original != size:
        plain = ImageOps.fit(plain, size[::-1], Image.Resampling.BICUBIC)
    return _pixels(plain), original


def read_thumbnail(path: Path, side: int) -> Picture:
    """The image of a file, uncropped, scaled down if it is wider or higher than `side`."""
    plain = _plain(_content(path), str(path))
    plain.thumbnail((side, side))
    return _pixels(plain)


def read_picture(path: Path, size: Size | None = None) -> tuple[Picture, Size]:
    """`decode_fitted` of a file; a `ValueError` says why it cannot be read."""
    return decode_fitted(_content(path), str(path), size)


def size_of(path: Path) -> Size:
    """Height and width of an image, upright, from its header; a `ValueError` if it cannot be read."""
    from PIL import Image

    try:
        with (
            warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning),
            Image.open(path, formats=FORMATS) as opened,
        ):
            width, height = opened.size
            is_turned = opened.getexif().get(ORIENTATION, 1) > 4
    except Exception as error:  # Pillow raises many kinds of errors for damaged files
        raise ValueError(f"expected a readable image, but {path}: {error}") from None
    return (width, height) if is_turned else (height, width)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"expected a readable image, but {path}: {error.strerror}") from None


class UnreadableError(ValueError):
    """Images of a folder that cannot be read: the reason for each, and the number of images in all."""

    def __init__(self, folder: Path, reasons: Sequence[str], num_pictures: int) -> None:
        more = f" (and {len(reasons) - 1:,} more)" if len(reasons) > 1 else ""
        super().__init__(f"{reasons[0]}{more}; confrank data check {folder} lists all of them")
        self.reasons, self.num_pictures = reasons, num_pictures


def _plain(content: bytes, origin: str) -> "Image.Image":
    """The image, upright, in grey or in colour."""
    from PIL import Image, ImageOps

    try:
        with (
            warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning),
            Image.open(io.BytesIO(content), formats=FORMATS) as opened,
        ):
            width, height = opened.size
            if width * height > MAX_MEGAPIXELS * 1_000_000:
                raise ValueError(
                    f"expected at most {MAX_MEGAPIXELS} megapixels, but got {width:,} x {height:,} pixels;"
                    " scale it down"
                )
            upright = ImageOps.exif_transpose(opened)
            mode = upright.mode
            if mode.startswith(("I", "F")):
                raise ValueError(f"its pixels are {mode}, not 8-bit")
            # Palettes go through RGBA, which handles every kind of transparency.
            return upright.convert("L") if mode in ("1", "L", "LA") else upright.convert("RGBA").convert("RGB")
    except Image.DecompressionBombError:
        raise ValueError(
            f"expected an image of at most {MAX_MEGAPIXELS} megapixels, but {origin} has far more; scale it down"
        ) from None
    except Exception as error:  # Pillow raises many kinds of errors for damaged files
        why = " ".join(str(error).split()) or type(error).__name__
        why = "not an image of these formats" if "cannot identify image file" in why else why
        raise ValueError(f"expected an 8-bit PNG, JPEG, WebP or BMP image, but {origin}: {why}") from None


def _pixels(plain: "Image.Image") -> Picture:
    pixels = np.array(plain, dtype=np.uint8)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def in_channels(picture: Picture, channels: int) -> Picture:
    """The image with this number of channels: grey repeated in three, or colour converted to grey."""
    from PIL import Image

    if channels == 1 < picture.shape[2]:
        return _pixels(Image.fromarray(picture).convert("L"))
    return np.broadcast_to(picture, (*picture.shape[:2], channels))


def crop_note(sizes: Sequence[Size], size: Size) -> str | None:
    """How many images of these sizes are cropped to the proportions of (height, width), in words; None if none is.

    >>> crop_note([(30, 40), (9, 9)], (32, 32))
    '1 of 2 images is not square: cropped to its central square'
    """
    height, width = size
    cropped = sum(original[0] * width != original[1] * height for original in sizes)
    if not cropped:
        return None
    are, their = ("is", "its") if cropped == 1 else ("are", "their")
    images = f"{cropped:,} of {len(sizes):,} images {are}"
    if height == width:
        return f"{images} not square: cropped to {their} central square"
    return f"{images} not in the proportion {width} wide by {height} high: cropped to that"


def stack(pictures: Sequence[Picture], origins: Sequence[str]) -> NDArray[np.uint8]:
    """Images of one size as [n, h, w, c]; grey ones among colour ones get three equal channels."""
    first = pictures[0].shape[:2]
    for picture, origin in zip(pictures, origins, strict=True):
        if picture.shape[:2] != first:
            raise InputError(
                f"expected images of one size, but got {_size(first)} in {origins[0]} and"
                f" {_size(picture.shape)} in {origin}",
                "set {image_size} to scale them",
            )
    channels = max(picture.shape[2] for picture in pictures)
    result = np.empty((len(pictures), *first, channels), dtype=np.uint8)
    for row, picture in zip(result, pictures, strict=True):
        row[:] = picture
    return result


def picture_files(folder: Path, *, every: bool = False) -> list[Path]:
    """All image files under a folder, in the order of their paths, without hidden ones.

    Linked folders are followed, each once. Image formats that cannot be read are an error. With `every`, such files
    and broken links are listed, too.
    """
    files = sorted(files_under(folder), key=lambda path: path.relative_to(folder).as_posix())
    if every:
        return [path for path in files if path.suffix.lower() in (*SUFFIXES, *UNREAD)]
    if unread := [path for path in files if path.suffix.lower() in UNREAD]:
        others = f" and {len(unread) - 1:,} more" if len(unread) > 1 else ""
        raise ValueError(
            f"expected PNG, JPEG, WebP or BMP images, but got {unread[0]}{others}; convert them or move them away"
        )
    return [path for path in files if path.suffix.lower() in SUFFIXES and path.is_file()]


def natural_order(name: str) -> list[str | int]:
    """A sort key that compares the numbers in names by value.

    >>> sorted(["10.png", "9.png", "a/1.png"], key=natural_order)
    ['9.png', '10.png', 'a/1.png']
    """
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if number % 2 else part for number, part in enumerate(parts)]


def read_pictures(source: Path, size: int | None = None) -> NDArray[np.uint8]:
    """All images under a folder or in a .tar.gz as [n, h, w, c], in the order of their paths."""
    if source.is_dir():
        pictures = {str(path): decode(_content(path), str(path), size) for path in picture_files(source)}
    else:
        pictures = _from_archive(source, size)
    if not pictures:
        raise ValueError(f"expected PNG, JPEG, WebP or BMP images in {source}, but there are none")
    return stack([*pictures.values()], [*pictures])


def _from_archive(path: Path, size: int | None) -> dict[str, Picture]:
    with open_archive(path) as archive:
        pictures = {
            name: decode(stream.read(), f"{name} in {path}", size)
            for name, _, stream in archive
            if name.lower().endswith(SUFFIXES)
        }
    return dict(sorted(pictures.items()))


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]}x{shape[0]}"

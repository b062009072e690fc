"""Data sets by name or path, loaded into memory."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confrank.config import TEXT_LENGTH, VOCABULARY_SIZE, changes
from confrank.data.cifar import load_cifar10, load_cifar100
from confrank.data.custom import is_custom, load_custom, npz_arrays, npz_images, refuse_size, split_folders
from confrank.data.digits import load_digits
from confrank.data.pictures import read_pictures
from confrank.data.published import PUBLISHED, default_root, locate
from confrank.data.sets import DataSet, Split, UnlabelledError, check_digests, hold_out, split_of
from confrank.data.svhn import load_svhn, svhn_test_images
from confrank.data.texts import is_text_file
from confrank.errors import InputError, similar_path

LOADERS: dict[str, Callable[[Path | None], DataSet]] = {
    "digits": lambda root: load_digits(),
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "svhn": load_svhn,
}
# Images without labels, for out-of-distribution detection: https://arxiv.org/abs/1706.02690
IMAGE_SETS = tuple(name for name, published in PUBLISHED.items() if not published.train)


def load(
    name: str,
    root: str | Path | None = None,
    *,
    image_size: int | None = None,
    text_length: int = TEXT_LENGTH,
    vocabulary_size: int = VOCABULARY_SIZE,
) -> DataSet:
    """The data set of that name, or your own at that path (see `confrank.data.custom`).

    Published files are searched in `root` and in `root/NAME`. Without `root`, the environment variable CONFRANK_DATA
    names the folder; without that, it is a per-user cache folder. A known name is never a path: write ./digits for a
    folder of that name. Your own data are searched at their path, then by its last part in `root`. `image_size`
    crops the images of your own folder to their central square and scales them. Of your own texts, the first
    `text_length` words are used, and the `vocabulary_size` most frequent words of the training split are known.

    >>> load("digits").train.images.shape
    (900, 8, 8, 1)
    """
    _check_image_size(image_size)
    if name in LOADERS:
        refuse_size(image_size, name)
        return LOADERS[name](None if root is None else Path(root))
    if name in IMAGE_SETS:
        raise ValueError(
            f"expected a data set with labels among {', '.join(LOADERS)}, but got {name!r}, which has only test"
            " images, for out-of-distribution detection (confrank.data.load_images)"
        )
    if (path := custom_path(name, root)) is not None:
        return load_custom(path, image_size, text_length, vocabulary_size)
    raise _unknown(name, LOADERS)


def load_of(
    source: str | Path, name: str, root: str | Path | None = None, *, from_pool: bool = False, **reading: Any
) -> DataSet:
    """`load` the data that `source` was trained on; if they have moved, the error says how to give their new path.

    A pool (`from_pool`) has no labels of its own: its folders are no classes. `reading` are the other arguments of
    `load`.
    """
    if name not in (*LOADERS, *IMAGE_SETS) and custom_path(name, root) is None:
        raise InputError(
            f"expected the data of {source} at {name}, but nothing is there (relative to {Path.cwd()})",
            "set {root} to the folder that holds them now (in Python, you can pass the data set as `data`)",
        )
    try:
        if from_pool:
            raise UnlabelledError
        return load(name, root, **reading)
    except UnlabelledError:
        raise InputError(
            f"expected the data of {source} with labels, but {name} has none",
            "a run that was trained on the labels of a pool can be evaluated (confrank evaluate), and it classifies"
            " {images} or {texts}",
        ) from None


def same_data(one: str, other: str) -> bool:
    """Whether two names or paths of data sets mean the same one.

    >>> same_data("photos", "./photos/"), same_data("digits", "./digits")
    (True, False)
    """
    if one == other:
        return True
    return {one, other}.isdisjoint((*LOADERS, *IMAGE_SETS)) and Path(one).resolve() == Path(other).resolve()


def changed_settings(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    """`confrank.config.changes`, where two spellings of a data set's path are equal."""
    same = same_data(wanted["dataset"], there.get("dataset", ""))
    return changes(wanted, {**there, "dataset": wanted["dataset"]} if same else there)


def is_known(name: str, root: str | Path | None = None) -> bool:
    """Whether `load` knows a data set of this name, or there is a custom one at this path."""
    return name in LOADERS or custom_path(name, root) is not None


def custom_path(name: str, root: str | Path | None) -> Path | None:
    """The path of custom data: `name`, or its last part in `root`; None for a known name or if neither exists."""
    if name in (*LOADERS, *IMAGE_SETS):
        return None
    path = Path(name)
    candidates = (path, Path(root or default_root()) / path.name)
    return next((candidate for candidate in candidates if is_custom(str(candidate))), None)


def load_images(name: str, root: str | Path | None = None, *, image_size: int | None = None) -> NDArray[np.uint8]:
    """Images uint8 [n, h, w, c] without labels, for out-of-distribution detection.

    A name of `IMAGE_SETS` gives its images (32x32, [n, 32, 32, 3]); any other data set, custom or not, gives its
    test images. A path may also be any folder of images, or an .npz with `images`. `image_size` crops and scales
    images from a folder; without it they must have one size.

    >>> load_images("digits").shape
    (897, 8, 8, 1)
    """
    _check_image_size(image_size)
    if name in IMAGE_SETS:
        return _image_set(name, None if root is None else Path(root), image_size)
    if name == "svhn" and image_size is None:
        return svhn_test_images(None if root is None else Path(root))
    if name in LOADERS:
        return load(name, root, image_size=image_size).test.images
    path = Path(name)
    if not is_custom(name):
        raise _unknown(name, [*LOADERS, *IMAGE_SETS])
    if is_text_file(path):
        raise ValueError(f"expected images, but {path} is a file of texts")
    if path.is_file():
        return _images_in(path)
    if None not in split_folders(path) or (path / "test").is_dir():
        return load_custom(path, image_size).test.images
    return read_pictures(path, image_size)


def _images_in(path: Path) -> NDArray[np.uint8]:
    arrays = npz_arrays(path)
    for key in ("images", "test_images"):
        if key in arrays:
            return npz_images(path, key, arrays[key])
    raise ValueError(f"expected images (or test_images) in {path}, but got {', '.join(arrays) or 'nothing'}")


def _image_set(name: str, root: Path | None, image_size: int | None) -> NDArray[np.uint8]:
    (source,) = locate(name, root)
    images = read_pictures(source, image_size)
    if image_size is None and images.shape[1:] != (32, 32, 3):
        raise InputError(
            f"expected colour images of 32x32 in {source}, but got [height, width, channels]"
            f" {list(images.shape[1:])}",
            "set {image_size} to 32 to scale them",
        )
    return images


def _check_image_size(image_size: int | None) -> None:
    if image_size is not None and not 1 <= image_size <= 4096:
        raise ValueError(f"expected an image size within 1..4096, but got {image_size}")


def _unknown(name: str, known: "list[str] | dict[str, Callable[[Path | None], DataSet]]") -> ValueError:
    path = Path(name)
    if not path.exists() and (path.suffix or "/" in name):
        return ValueError(f"expected a data set, but {path} does not exist{similar_path(path)}")
    return ValueError(
        f"expected a data set among {', '.join(known)}, or the path of a folder, .npz, .csv, .tsv or .jsonl file,"
        f" but got {name!r}{'; unpack it or convert it to one of these' if path.is_file() else ''}"
    )


__all__ = [
    "IMAGE_SETS",
    "LOADERS",
    "PUBLISHED",
    "DataSet",
    "Split",
    "changed_settings",
    "check_digests",
    "default_root",
    "hold_out",
    "is_known",
    "load",
    "load_images",
    "load_of",
    "same_data",
    "split_of",
]

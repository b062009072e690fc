"""Data sets in memory, and the wrapper that numbers anybody's samples."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confrank.config import changes
from confrank.data.cifar import load_cifar10, load_cifar100
from confrank.data.digits import load_digits
from confrank.data.own import is_own, load_own, npz_images, read_npz
from confrank.data.pictures import read_pictures
from confrank.data.published import PUBLISHED, default_root, locate
from confrank.data.sets import DataSet, Split, check_digests, hold_out, split_of
from confrank.data.svhn import load_svhn, svhn_test_images

LOADERS: dict[str, Callable[[Path | None], DataSet]] = {
    "digits": lambda root: load_digits(),
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "svhn": load_svhn,
}
# Images without labels, to be told apart from those of a data set: https://arxiv.org/abs/1706.02690
IMAGE_SETS = tuple(name for name, published in PUBLISHED.items() if not published.train)


def load(name: str, root: str | Path | None = None, *, image_size: int | None = None) -> DataSet:
    """The data set of that name, or one's own at that path (see `confrank.data.own`).

    Published files are looked for in `root` and in `root/NAME`; without `root`, in the folder that the environment
    variable CONFRANK_DATA names, or else in a per-user cache folder. A known name is never taken for a path:
    write ./digits for a folder of that name. One's own data are looked for at their path, then by its last part in
    `root`. `image_size` cuts the pictures of one's own folder to their central square and scales them.

    >>> load("digits").train.images.shape
    (900, 8, 8, 1)
    """
    _check_image_size(image_size)
    if name in LOADERS:
        if image_size is not None:
            raise ValueError(f"expected an image size for one's own pictures only, but got {image_size} with {name}")
        return LOADERS[name](None if root is None else Path(root))
    if name in IMAGE_SETS:
        raise ValueError(
            f"expected a data set with labels among {', '.join(LOADERS)}, but got {name!r}, which has test images"
            " only, for out-of-distribution detection (confrank.data.load_images)"
        )
    if (place := own_place(name, root)) is not None:
        return load_own(place, image_size)
    raise _unknown(name, LOADERS)


def load_of(
    source: str | Path, name: str, root: str | Path | None = None, *, image_size: int | None = None
) -> DataSet:
    """`load` for what was trained before; if the data are no longer at their path, the error says how to give it."""
    if name not in (*LOADERS, *IMAGE_SETS):
        place = own_place(name, root)
        if place is None:
            raise ValueError(
                f"expected the data of {source} at {name}, but nothing is there, seen from {Path.cwd()}; give --root,"
                f" the folder that holds {Path(name).name} now (in Python root=, or the data set as data=)"
            )
        if place.is_dir() and not (place / "train").is_dir():
            raise ValueError(
                f"expected the data of {source}, train/ and test/, in {place}, but it holds pictures alone: a run"
                " that was trained on the answers to a pool has its test predictions (confrank evaluate), no more"
            )
    return load(name, root, image_size=image_size)


def same_data(one: str, other: str) -> bool:
    """Whether two names of data sets, or two paths of one's own, mean the same.

    >>> same_data("photos", "./photos/"), same_data("digits", "./digits")
    (True, False)
    """
    if one == other:
        return True
    return {one, other}.isdisjoint((*LOADERS, *IMAGE_SETS)) and Path(one).resolve() == Path(other).resolve()


def changed_settings(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    """`confrank.config.changes`, where a data set is the same however its path is written."""
    same = same_data(wanted["dataset"], there.get("dataset", ""))
    return changes(wanted, {**there, "dataset": wanted["dataset"]} if same else there)


def is_known(name: str, root: str | Path | None = None) -> bool:
    """Whether `load` knows such a data set, or finds one's own there."""
    return name in LOADERS or own_place(name, root) is not None


def own_place(name: str, root: str | Path | None) -> Path | None:
    """Where one's own data of this name or path lie: there, or by its last part in `root`; None of a known name."""
    if name in (*LOADERS, *IMAGE_SETS):
        return None
    path = Path(name)
    places = (path, Path(root or default_root()) / path.name)
    return next((place for place in places if is_own(str(place))), None)


def load_images(name: str, root: str | Path | None = None, *, image_size: int | None = None) -> NDArray[np.uint8]:
    """Images uint8 [n, h, w, c] without labels, for out-of-distribution detection.

    A name of `IMAGE_SETS` gives its images (32x32, [n, 32, 32, 3]), that of another data set its test images. A path
    may be any folder of pictures, an .npz with `images`, or one's own data set, of which it gives the test images.
    `image_size` cuts and scales pictures; without it they must be of one size.

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
    if not is_own(name):
        raise _unknown(name, [*LOADERS, *IMAGE_SETS])
    if path.is_file():
        return _images_in(path)
    if (path / "test").is_dir():
        return load_own(path, image_size).test.images
    return read_pictures(path, image_size)


def _images_in(path: Path) -> NDArray[np.uint8]:
    arrays = read_npz(path)
    for key in ("images", "test_images"):
        if key in arrays:
            return npz_images(path, key, arrays[key])
    raise ValueError(f"expected images (or test_images) in {path}, but got {', '.join(arrays) or 'nothing'}")


def _image_set(name: str, root: Path | None, image_size: int | None) -> NDArray[np.uint8]:
    (source,) = locate(name, root)
    images = read_pictures(source, image_size)
    if image_size is None and images.shape[1:] != (32, 32, 3):
        raise ValueError(
            f"expected coloured pictures of 32x32 in {source}, but got [height, width, channels]"
            f" {list(images.shape[1:])}; give the image size 32 to scale them"
        )
    return images


def _check_image_size(image_size: int | None) -> None:
    if image_size is not None and not 1 <= image_size <= 4096:
        raise ValueError(f"expected an image size within 1..4096, but got {image_size}")


def _unknown(name: str, known: "list[str] | dict[str, Callable[[Path | None], DataSet]]") -> ValueError:
    return ValueError(
        f"expected a data set among {', '.join(known)}, or the path of a folder or .npz file, but got {name!r}"
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

"""Your own data: a folder of class folders, an .npz of arrays, or a file of texts (`confrank.data.texts`).

A folder holds `train/CLASS/*.png` and `test/CLASS/*.png` (or JPEG, WebP, BMP); the classes are the folders of
`train` in alphabetical order. Without `test`, `val` or the like is the test split (`SPLIT_NAMES`). If a folder
holds `CLASS/*.png` alone, a fifth of each class is the test split, the same for every run. An .npz holds
`train_images`, `train_labels`, `test_images`, `test_labels` and, optionally, `class_names`. Mean and std are
computed from the training images.
Colour images are augmented as in the paper's protocol (crops after padding by 4, flips). Grey images are not: they
are often characters or measurements, which a flip would change. A run can change this with its settings `padding`
and `flip`.
"""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from confrank.config import TEXT_LENGTH, VOCABULARY_SIZE
from confrank.data.pictures import Picture, Size, UnreadableError, crop_note, picture_files, read_picture, stack
from confrank.data.sets import (
    AUGMENTED,
    SPLIT_NAMES,
    DataSet,
    Split,
    UnlabelledError,
    class_note,
    digests,
    repeated_note,
    split_of,
    stratified,
    untested_note,
)
from confrank.data.texts import SPLIT_SEED, TEST_SHARE, is_text_file, load_texts
from confrank.errors import InputError, named
from confrank.files import check_npz

NPZ_KEYS = ("train_images", "train_labels", "test_images", "test_labels")
BLOCK = 4096
Splits = list[list[list[Path]]]  # the files of each class, for training and for the test
# A class is hardly ever called so: alone, these folders mean that the other split is missing.
LONE_SPLITS = ("train", "test", "val", "valid", "validation")
# What the name of a split may end with, as in training_set.
SPLIT_ENDING = re.compile(r"[ _-]?(?:set|data|images|split)$")


def is_custom(name: str) -> bool:
    """Whether a data set's name is a path to a folder, an .npz file or a file of texts."""
    path = Path(name)
    return path.is_dir() or (path.suffix == ".npz" and path.is_file()) or is_text_file(path)


def load_custom(
    path: Path,
    image_size: int | None = None,
    text_length: int = TEXT_LENGTH,
    vocabulary_size: int = VOCABULARY_SIZE,
) -> DataSet:
    """The data set in a folder or file; `image_size` crops and scales the images of a folder."""
    if path.is_dir():
        return _from_folder(path, image_size)
    refuse_size(image_size, path)
    return load_texts(path, text_length, vocabulary_size) if is_text_file(path) else _from_npz(path)


def refuse_size(image_size: int | None, name: str | Path) -> None:
    """Raise if an image size is given for data that cannot be scaled."""
    if image_size is not None:
        raise InputError(
            f"expected an image size only for a folder of images, but got {image_size} with {name}",
            "leave out {image_size}",
        )


def channel_statistics(images: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel on the 0-1 scale; a constant channel gets a std of 1.

    >>> channel_statistics(np.array([0, 255], dtype=np.uint8).reshape(2, 1, 1, 1))
    ((0.5,), (0.5,))
    """
    levels = np.arange(256) / 255
    mean, std = [], []
    for channel in range(images.shape[-1]):
        counts = np.zeros(256, dtype=np.int64)
        for start in range(0, len(images), BLOCK):
            counts += np.bincount(images[start : start + BLOCK, ..., channel].ravel(), minlength=256)
        share = counts / counts.sum()
        mean.append(float(share @ levels))
        std.append(float(np.sqrt(share @ (levels - mean[-1]) ** 2)) if np.count_nonzero(counts) > 1 else 1.0)
    return tuple(mean), tuple(std)


def image_folders(folder: Path) -> list[Path]:
    """The folders of the splits; the folder itself if it holds one folder per class."""
    if None in split_folders(folder):
        return [folder] if folder.is_dir() else []
    return [path for split in SPLIT_NAMES for path in _named_folders(folder, split)]


def split_folders(folder: Path) -> tuple[Path | None, Path | None]:
    """The folders of the training and of the test split, where they exist."""
    train, test = (next(iter(_named_folders(folder, names)), None) for names in SPLIT_NAMES)
    return train, test


def _named_folders(folder: Path, names: tuple[str, ...]) -> list[Path]:
    """The folders of these names, in their order; neither upper case nor an ending such as _set counts."""
    folders = [path for path in sorted(folder.iterdir()) if path.is_dir()] if folder.is_dir() else []
    folders.sort(key=lambda path: len(path.name))  # train comes before train_images
    return [path for name in names for path in folders if SPLIT_ENDING.sub("", path.name.lower()) == name]


def _from_folder(folder: Path, image_size: int | None) -> DataSet:
    _refuse_texts(folder)
    train, test = split_folders(folder)
    if train is None or test is None:
        _refuse_lone(folder, train, test)
        return _from_class_folders(folder, image_size)
    parts = train, test
    class_names = _class_folders(parts[0])
    if extra := sorted({*_class_folders(parts[-1])} - {*class_names}):
        raise ValueError(f"expected the classes of {parts[0]} in test too, but got {', '.join(extra)} there")
    splits = [[_pictures(part / name) for name in class_names] for part in parts]
    for name, files in zip(class_names, splits[0], strict=True):
        if not files:
            raise ValueError(f"expected images in {parts[0] / name}, but there are none")
    if not any(splits[-1]):
        raise ValueError(f"expected images in {parts[-1]}, but there are none")
    return _read_splits(folder, splits, class_names, image_size, _split_note(folder, test))


def _split_note(folder: Path, test: Path) -> str | None:
    """Which folder stands for the test split, and which are not used, in words."""
    unused = [path.name for names in SPLIT_NAMES for path in _named_folders(folder, names)[1:]]
    notes = [] if test.name.lower().startswith("test") else [f"no folder test: {test} is the test split"]
    notes += [f"the images of {named(unused)} are not used"] if unused else []
    return "; ".join(notes) or None


def _refuse_texts(folder: Path) -> None:
    """Raise if a folder holds files of texts and no folders."""
    entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    texts = [path.name for path in entries if is_text_file(path)]
    if texts and not any(path.is_dir() for path in entries):
        raise ValueError(
            f"expected a folder of images or one file of texts, but {folder} holds {named(texts)}; give one of them,"
            " or join them into one file with a column split (train or test)"
        )


def _refuse_lone(folder: Path, train: Path | None, test: Path | None) -> None:
    """Raise if there is one split without the other."""
    given = train or test
    if given is not None and given.name in LONE_SPLITS:
        raise ValueError(
            f"expected {folder} to hold train/CLASS/ and test/CLASS/ folders of images, but it has no"
            f" {'test' if train else 'train'}; give {given} itself to test on a fifth of it"
        )


def _from_class_folders(folder: Path, image_size: int | None) -> DataSet:
    """The data set in a folder of class folders; those without images, such as runs, are no classes."""
    classes = {name: files for name in _class_folders(folder) if (files := _pictures(folder / name))}
    if len(classes) < 2:
        raise (ValueError if classes else UnlabelledError)(
            f"expected two folders of images or more in {folder}, one per class, or train/CLASS/ and test/CLASS/,"
            f" but got {', '.join(classes) or 'none'}{_inner_hint(folder, [*classes])}"
        )
    _refuse_splits(folder, classes)
    splits, note = _divided([*classes.values()])
    return _read_splits(folder, splits, tuple(classes), image_size, note)


def _inner_hint(folder: Path, classes: Sequence[str]) -> str:
    """A question if all images are in one folder that holds folders, as in an unpacked archive."""
    inner = [folder / name for name in classes if any(path.is_dir() for path in (folder / name).iterdir())]
    return f"; did you mean {inner[0]}?" if inner else ""


def _refuse_splits(folder: Path, classes: Iterable[str]) -> None:
    """Raise if all class folders have names of splits."""
    splits = {name for names in SPLIT_NAMES for name in names}
    names = [*classes]
    if all(name.lower() in splits for name in names):
        raise ValueError(
            f"expected one folder per class in {folder}, or train/CLASS/ and test/CLASS/, but got"
            f" {named(names)}; rename them to train and test if they are splits"
        )


def _pictures(folder: Path) -> list[Path]:
    """The image files of a class; none if the split has no folder of it."""
    return picture_files(folder) if folder.is_dir() else []


def _divided(classes: list[list[Path]]) -> tuple[Splits, str]:
    """The files of each class divided into training and test, and a note that says so."""
    labels = np.repeat(np.arange(len(classes)), [*map(len, classes)])
    content = _contents([path for files in classes for path in files])
    is_test = iter(stratified(labels, len(classes), TEST_SHARE, SPLIT_SEED, content).tolist())
    marked = [[(path, next(is_test)) for path in files] for files in classes]
    splits = [[[path for path, tested in files if tested is part] for files in marked] for part in (False, True)]
    count = sum(map(len, splits[1]))
    note = f"no folders train and test: {count:,} of {len(labels):,} images, drawn from each class, are tested"
    return splits, note


def _contents(files: list[Path]) -> list[tuple[int, bytes]]:
    """The size of each file, and a digest of those that share their size with another; equal only for copies."""
    sizes = [path.stat().st_size for path in files]
    shared = Counter(sizes)
    return [(size, _file_digest(path) if shared[size] > 1 else b"") for path, size in zip(files, sizes, strict=True)]


def _file_digest(path: Path) -> bytes:
    """A digest of a file; of one that cannot be read, its path, since reading its image reports it."""
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=16).digest()
    except OSError:
        return os.fsencode(path)


def _read_splits(
    folder: Path, splits: Splits, class_names: tuple[str, ...], image_size: int | None, note: str | None
) -> DataSet:
    """The images of the files of each split and class."""
    size = None if image_size is None else (image_size, image_size)
    origins = [path for split in splits for files in split for path in files]
    labels = np.concatenate([np.repeat(np.arange(len(split)), [*map(len, split)]) for split in splits])
    pictures: list[Picture] = []
    sizes: list[Size] = []
    unreadable: list[str] = []
    for path in origins:
        try:
            picture, original = read_picture(path, size)
        except ValueError as error:
            unreadable.append(str(error))
            continue
        pictures.append(picture)
        sizes.append(original)
    if unreadable:
        raise UnreadableError(folder, unreadable, len(labels))
    images, num_train = stack(pictures, [*map(str, origins)]), sum(map(len, splits[0]))
    paths = np.array([os.fsencode(path.relative_to(folder).as_posix()) for path in origins])
    parts = slice(num_train), slice(num_train, None)
    train, test = (split_of(images[part], labels[part], paths[part]) for part in parts)
    return custom_data_set(folder, train, test, class_names, note, size and crop_note(sizes, size))


def _class_folders(split: Path) -> tuple[str, ...]:
    names = sorted(path.name for path in split.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not names:
        raise UnlabelledError(f"expected a folder for each class in {split}, but there is none")
    return tuple(names)


def npz_arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    """The arrays of an .npz file; nothing is unpickled."""
    try:
        check_npz(path)
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: np.asarray(file[name]) for name in file.files}
    except OSError as error:
        raise ValueError(f"expected a readable .npz file, but {path}: {error}") from None
    except InputError as error:
        raise InputError(f"{path}: {error.problem}", error.remedy) from None
    except Exception as error:  # numpy raises zipfile, value, key and attribute errors for broken archives
        raise ValueError(f"expected an .npz archive of plain arrays, but {path} cannot be read: {error}") from None


def npz_images(path: Path, key: str, images: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Images [n, h, w, c] of an .npz file; [n, h, w] gets one channel."""
    if not len(images.shape) or not images.shape[0]:
        raise ValueError(f"expected images in {key} of {path}, but got none: shape {list(images.shape)}")
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or 0 in images.shape:
        raise ValueError(
            f"expected {key} in {path} to be uint8 of shape [n, height, width] or [n, height, width, channels],"
            f" but got {images.dtype} of shape {list(images.shape)}; scale pixels to 0..255 and convert them"
        )
    typed = images.astype(np.uint8, copy=False)
    return typed[..., None] if typed.ndim == 3 else typed


def _from_npz(path: Path) -> DataSet:
    arrays = npz_arrays(path)
    if missing := [key for key in NPZ_KEYS if key not in arrays]:
        raise ValueError(
            f"expected {', '.join(NPZ_KEYS)} in {path}, but got {', '.join(arrays) or 'nothing'}:"
            f" {', '.join(missing)} missing"
        )
    train = npz_images(path, "train_images", arrays["train_images"]), _npz_labels(path, "train_labels", arrays)
    test = npz_images(path, "test_images", arrays["test_images"]), _npz_labels(path, "test_labels", arrays)
    if train[0].shape[1:] != test[0].shape[1:]:
        raise ValueError(
            f"expected training and test images of one shape in {path},"
            f" but got {list(train[0].shape[1:])} and {list(test[0].shape[1:])}"
        )
    num_classes = int(max(train[1].max(), test[1].max())) + 1
    names = tuple(map(str, arrays.get("class_names", np.arange(num_classes)).ravel()))
    if len(names) < num_classes:
        raise ValueError(f"expected labels within 0..{len(names) - 1} in {path}, but got {num_classes - 1}")
    return custom_data_set(path, split_of(*train), split_of(*test), names)


def _npz_labels(path: Path, key: str, arrays: dict[str, NDArray[np.generic]]) -> NDArray[np.int64]:
    labels, images = arrays[key], arrays[key.replace("labels", "images")]
    if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        raise ValueError(
            f"expected {key} in {path} to be {len(images)} whole numbers,"
            f" but got {labels.dtype} of shape {list(labels.shape)}"
        )
    typed = labels.astype(np.int64)
    if typed.min() < 0:
        raise ValueError(f"expected {key} in {path} to be 0 or more, but got {typed.min()}")
    return typed


def custom_data_set(
    path: Path, train: Split, test: Split, class_names: tuple[str, ...], *notes: str | None
) -> DataSet:
    """A custom data set, normalised by its training images; training crops and flips colour images."""
    if len(class_names) < 2:
        raise ValueError(f"expected at least two classes in {path}, but got {', '.join(class_names)} alone")
    mean, std = channel_statistics(train.images)
    colour = train.images.shape[-1] == 3
    name = path.resolve().name.removesuffix(".npz")
    repeated = repeated_note(digests(train.images), digests(test.images), "images")
    untested = untested_note(class_names, test.labels)
    said = tuple(filter(None, (*notes, class_note(class_names), untested, repeated, AUGMENTED if colour else None)))
    return DataSet(name, train, test, class_names, mean, std, 4 if colour else 0, colour, said)

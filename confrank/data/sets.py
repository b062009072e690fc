"""A data set in memory: images as published and how to normalise and augment them, or texts as numbers of words."""

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confrank.data.vocabulary import FIRST_WORD, refit, renumbered
from confrank.errors import InputError, counted, named

# Images uint8 [n, h, w, c], or texts as numbers of words int32 [n, length] (see `confrank.data.vocabulary`).
Inputs = NDArray[Any]


@dataclass(frozen=True)
class Split:
    """Images uint8 [n, h, w, c], labels int64 [n], and each sample's position in the published split [n].

    In place of images there may be texts, as numbers of words int32 [n, length]. `path` [n] holds the paths of the
    image files, or the names of the texts, as bytes, if there are any.
    """

    images: Inputs
    labels: NDArray[np.int64]
    index: NDArray[np.int64]
    path: NDArray[np.bytes_] | None = None

    def __post_init__(self) -> None:
        images = self.images
        if not self.is_text and (images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] not in (1, 3)):
            raise ValueError(
                "expected uint8 images of shape [n, height, width, 1 or 3],"
                f" but got {images.dtype} of shape {images.shape}"
            )
        for name, values in (("label", self.labels), ("index", self.index)):
            if values.shape != images.shape[:1] or values.dtype != np.int64:
                raise ValueError(
                    f"expected an int64 {name} for each of {len(images)} images,"
                    f" but got {values.dtype} of shape {values.shape}"
                )
        # torch rejects views with reversed channels or rows.
        for name in ("images", "labels", "index"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_text(self) -> bool:
        return self.images.dtype == np.int32 and self.images.ndim == 2

    @cached_property
    def digest(self) -> str:
        """A fingerprint of the images and labels; it differs if the data differ."""
        total = hashlib.blake2b(repr(self.images.shape).encode(), digest_size=16)
        for values in (self.images, self.labels):
            total.update(values.data)
        return total.hexdigest()

    def select(self, rows: NDArray[np.int64]) -> "Split":
        path = None if self.path is None else self.path[rows]
        return Split(self.images[rows], self.labels[rows], self.index[rows], path)


def split_of(images: Inputs, labels: NDArray[np.int64], path: NDArray[np.bytes_] | None = None) -> Split:
    """A complete split, indexed in its order; labels may be integers of any width."""
    labels = np.asarray(labels)
    if labels.dtype.kind not in "iu":
        raise ValueError(f"expected labels to be class numbers, integers, but got {labels.dtype}")
    return Split(np.asarray(images), labels.astype(np.int64, copy=False), np.arange(len(labels)), path)


AUGMENTED = "training shifts and mirrors colour images at random (settings padding and flip)"


# The names of the training and of the test split, in lower case; the first that exists counts.
SPLIT_NAMES = (("train", "training"), ("test", "testing", "val", "valid", "validation", "eval", "dev"))


class UnlabelledError(ValueError):
    """Data have no labels: a file of texts without a column label, or a folder of images without class folders."""


@dataclass(frozen=True)
class DataSet:
    """Both splits; per-channel mean and std on the 0-1 scale; augmentation: zero-padding for crops, flips.

    Texts have a vocabulary instead; `hold_out` limits it to the `vocabulary_size` most frequent words of the texts
    that remain for training. `notes` say what loading did, and training will do, to the images; commands print them.
    The labels of a data set `from_pool` are not in its files: they cannot be loaded again.
    """

    name: str
    train: Split
    test: Split
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    padding: int = 0
    flip: bool = False
    notes: tuple[str, ...] = ()
    vocabulary: tuple[str, ...] = ()
    vocabulary_size: int = 0
    from_pool: bool = False

    def __post_init__(self) -> None:
        for name, split in (("training", self.train), ("test", self.test)):
            if len(split) and not 0 <= split.labels.min() <= split.labels.max() < self.num_classes:
                raise ValueError(
                    f"expected {name} labels within 0..{self.num_classes - 1}, the {self.num_classes} classes of"
                    f" {self.name}, but got labels from {split.labels.min()} to {split.labels.max()}"
                )
        if self.is_text:
            return
        channels = self.train.images.shape[-1]
        if not len(self.mean) == len(self.std) == channels == self.test.images.shape[-1]:
            raise ValueError(
                f"expected mean and std for each channel, but got {len(self.mean)} and {len(self.std)} for training"
                f" images with {channels} channels and test images with {self.test.images.shape[-1]}"
            )

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def is_text(self) -> bool:
        return self.train.is_text

    @property
    def in_channels(self) -> int:
        """The channels of an image, or the numbers that words can have."""
        return FIRST_WORD + len(self.vocabulary) if self.is_text else self.train.images.shape[-1]

    def augmented(self, padding: int | None, flip: bool | None) -> "DataSet":
        """The same data set with this augmentation; None leaves it as it is."""
        if self.is_text and (padding or flip):
            raise InputError(
                f"expected images to shift or mirror, but {self.name} holds texts", "leave out {padding} and {flip}"
            )
        if padding is None and flip is None:
            return self
        return replace(
            self,
            padding=self.padding if padding is None else padding,
            flip=self.flip if flip is None else flip,
            notes=tuple(note for note in self.notes if note != AUGMENTED),
        )

    def train_in_words_of(self, vocabulary: tuple[str, ...]) -> Split:
        """The training split for a network with this vocabulary, such as one trained on a part of it."""
        if not self.is_text:
            return self.train
        return replace(self.train, images=renumbered(self.train.images, self.vocabulary, vocabulary))

    def digest(self, *, test_only: bool = False) -> str:
        """A fingerprint of the class names and of both splits; it differs if the data differ."""
        splits = (self.test,) if test_only else (self.train, self.test)
        parts = [*self.class_names, *self.vocabulary, *(split.digest for split in splits)]
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def check_digests(source: Path, stored: Mapping[str, Any], *, or_else: str = "", **digests: str) -> None:
    """Raise if the digests stored with a run differ from these; the first formats stored none."""
    if any(stored.get(key, digest) != digest for key, digest in digests.items()):
        raise InputError(
            f"expected the data that {source} comes from, but images, labels or classes have changed since",
            f"restore the old data (in Python, you can pass them as `data`){or_else}",
        )


def hold_out(dataset: DataSet, share: float, seed: int = 0) -> tuple[DataSet, Split | None]:
    """Hold out a stratified share of the training split for validation: (data set with the rest, held-out split).

    Every class gives the same share, rounded so that the total is right, but never its last sample. The choice
    depends only on `seed`. Copies of a text or of an image in your own folder are held out together; published data
    sets are divided as they always were. The vocabulary of texts comes from the rest alone, so that held-out texts
    have as many unknown words as test texts.
    """
    if not 0 <= share < 1:
        raise ValueError(f"expected a holdout share in [0, 1), but got {share}")
    if share == 0:
        return _renumbered(dataset, None)
    content = None if dataset.train.path is None else digests(dataset.train.images)
    held = stratified(dataset.train.labels, dataset.num_classes, share, seed, content)
    rest = dataset.train.select(np.flatnonzero(~held))
    return _renumbered(replace(dataset, train=rest), dataset.train.select(np.flatnonzero(held)))


def digests(images: Inputs) -> list[bytes]:
    """A fingerprint of each image or text."""
    return [hashlib.blake2b(np.ascontiguousarray(image).data, digest_size=16).digest() for image in images]


def stratified(
    labels: NDArray[np.int64],
    num_classes: int,
    share: float,
    seed: int,
    content: Sequence[Hashable] | None = None,
) -> NDArray[np.bool_]:
    """Which samples are held out: the same share of every class, rounded so that the total is right.

    Never the last sample of a class. Samples of equal `content` are on the same side, if every class and both sides
    still have samples then.
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    # Rank of each sample within its class, in a random order: the first share of each class is held out.
    by_class = order[np.argsort(labels[order], kind="stable")]
    counts = np.bincount(labels, minlength=num_classes)
    taken = _apportion(counts * share, round(len(labels) * share), most=np.maximum(counts - 1, 0))
    rank = np.concatenate([np.arange(count) for count in counts])
    held = np.zeros(len(labels), dtype=bool)
    held[by_class] = rank < np.repeat(taken, counts)
    if held.all() or not held.any():
        raise ValueError(
            f"expected a holdout share that leaves samples on both sides, but got {share} of {len(labels)} samples"
            f" in {counted(num_classes, 'class')}; use another share, or more samples of each class"
        )
    return held if content is None else _with_copies(held, labels, content)


def _with_copies(
    held: NDArray[np.bool_], labels: NDArray[np.int64], content: Sequence[Hashable]
) -> NDArray[np.bool_]:
    """Which samples are held out if each is on the side of its first copy, except those of a class that lost all.

    What has more copies than all samples held out is not held out: few or no samples would be left on one side.
    """
    copies, most, side = Counter(content), int(held.sum()), dict[Hashable, np.bool_]()
    fits = held & np.array([copies[one] <= most for one in content])
    moved = np.array([side.setdefault(one, is_held) for one, is_held in zip(content, fits, strict=True)])
    moved &= np.isin(labels, labels[~moved])
    return moved if moved.any() else held


def _renumbered(dataset: DataSet, held_out: Split | None) -> tuple[DataSet, Split | None]:
    """Texts with the vocabulary of the training split; images as they are."""
    if not dataset.is_text:
        return dataset, held_out
    vocabulary, number = refit(dataset.train.images, dataset.vocabulary, dataset.vocabulary_size)

    def refitted(split: Split) -> Split:
        return replace(split, images=number[split.images])

    used = replace(dataset, train=refitted(dataset.train), test=refitted(dataset.test), vocabulary=vocabulary)
    return used, None if held_out is None else refitted(held_out)


def class_note(names: Sequence[str]) -> str:
    """
    >>> class_note(["cat", "dog"])
    '2 classes: cat, dog'
    """
    return f"{counted(len(names), 'class')}: {named(names, 10)}"


def untested_note(names: Sequence[str], test_labels: NDArray[np.int64]) -> str | None:
    """Which classes have no test samples, in words; None if all have some.

    >>> untested_note(["cat", "dog"], np.array([0, 0]))
    'no test samples of dog'
    """
    tested = {*test_labels.tolist()}
    missing = [name for number, name in enumerate(names) if number not in tested]
    return f"no test samples of {named(missing)}" if missing else None


def repeated_note(train: Iterable[Hashable], test: Sequence[Hashable], kind: str) -> str | None:
    """How many test samples are training samples, too, in words; None if none is.

    >>> repeated_note(["a", "b"], ["b", "b", "c"], "texts")
    '2 of 3 test texts also occur in training'
    >>> repeated_note(["a"], ["a", "b"], "texts")
    '1 of 2 test texts also occurs in training'
    """
    known = {*train}
    repeated = sum(one in known for one in test)
    occur = "occurs" if repeated == 1 else "occur"
    return f"{repeated:,} of {len(test):,} test {kind} also {occur} in training" if repeated else None


def class_order(labels: Iterable[str]) -> tuple[str, ...]:
    """The distinct labels in alphabetical order, numbers by value.

    >>> class_order(["10", "9", "10"]), class_order(["dog", "cat", "10"])
    (('9', '10'), ('10', 'cat', 'dog'))
    """
    distinct = {*labels}
    numbers = all(label.isdecimal() for label in distinct)
    return tuple(sorted(distinct, key=(lambda label: (int(label), label)) if numbers else None))


def _apportion(quotas: NDArray[np.floating[Any]], total: int, most: NDArray[np.int64]) -> NDArray[np.int64]:
    """Whole numbers near the quotas with the given sum: the largest remainders are rounded up, if `most` allows."""
    floors: NDArray[np.int64] = np.minimum(np.floor(quotas).astype(np.int64), most)
    missing = total - int(floors.sum())
    order = np.argsort(floors - quotas, kind="stable")
    floors[order[floors[order] < most[order]][:missing]] += 1
    return floors

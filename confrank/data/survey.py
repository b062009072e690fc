"""Every known data set: whether its files are present, and whether they hold what they should."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from confrank.data import IMAGE_SETS, LOADERS, PUBLISHED, load, load_images
from confrank.data.published import digest, present_files


@dataclass(frozen=True)
class Known:
    """A data set by name: what it is, how many images it has, and its files (empty if they are missing)."""

    name: str
    summary: str
    num_train: int
    num_test: int
    embedded: bool
    paths: tuple[Path, ...]


@dataclass(frozen=True)
class Checked:
    """A data set that was read completely: image shape, images per class, and digests (path, actual, published)."""

    name: str
    image_shape: tuple[int, ...]
    train: tuple[int, ...]
    test: tuple[int, ...]
    paths: tuple[Path, ...]
    digests: tuple[tuple[Path, str, str | None], ...]
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        """What was read, in words."""
        shape = "x".join(map(str, self.image_shape))
        kind, size = ("texts", f"up to {shape} words") if len(self.image_shape) == 1 else ("images", shape)
        lines = [f"{self.name}: {kind} of {size} from {', '.join(map(str, self.paths)) or 'a dependency'}"]
        for split, counts in (("train", self.train), ("test", self.test)):
            if len(counts) > 1:
                spread = f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"
                lines.append(f"{split}: {sum(counts):,} {kind}, {len(counts)} classes of {spread}")
            elif counts:
                lines.append(f"{split}: {sum(counts):,} images, without labels")
        return [*lines, *self.notes]

    def digest_lines(self) -> Iterator[str]:
        """A line for each file; an error at one that is not the published file."""
        for path, actual, expected in self.digests:
            if expected is not None and actual != expected:
                raise ValueError(
                    f"expected {expected} for {path}, but got {actual}: it can be read, but is not the published file"
                )
            yield f"{path}: {actual}, {verdict(expected is not None)}"


def verdict(verified: bool) -> str:
    """Whether a file is as published, in words."""
    return "as published" if verified else "not verified: the publisher provides no checksum"


def known_sets(root: Path | None = None) -> list[Known]:
    """All data sets that have a name."""
    digits = Known("digits", "8x8 digits with noise, from scikit-learn", 900, 897, True, ())
    return [digits] + [
        Known(name, item.summary, sum(item.train), sum(item.test), False, present_files(name, root))
        for name, item in PUBLISHED.items()
    ]


def check(name: str, root: Path | None = None, image_size: int | None = None) -> Checked:
    """Read a data set completely; a `ValueError` says what is not as published. A path means custom data."""
    if name in IMAGE_SETS:
        notes: tuple[str, ...] = ()
        images = load_images(name, root, image_size=image_size)
        shape, train, test = images.shape[1:], (), (len(images),)
    else:
        data = load(name, root, image_size=image_size)
        shape, notes = data.train.images.shape[1:], data.notes
        train, test = (
            tuple(np.bincount(split.labels, minlength=data.num_classes).tolist()) for split in (data.train, data.test)
        )
    published = PUBLISHED.get(name)
    paths = present_files(name, root) if published else (() if name in LOADERS else (Path(name),))
    if published:
        _compare(name, "training", published.train, train)
        _compare(name, "test", published.test, test)
    return Checked(name, shape, train, test, paths, _digests(name, paths), notes)


def _compare(name: str, split: str, expected: tuple[int, ...], actual: tuple[int, ...]) -> None:
    if sum(expected) != sum(actual):
        raise ValueError(f"expected {sum(expected):,} {split} images in {name}, but got {sum(actual):,}")
    if wrong := [k for k, (a, b) in enumerate(zip(expected, actual, strict=True)) if a != b]:
        k = wrong[0]
        raise ValueError(f"expected {expected[k]:,} {split} images of class {k} in {name}, but got {actual[k]:,}")


def _digests(name: str, paths: tuple[Path, ...]) -> tuple[tuple[Path, str, str | None], ...]:
    published = {file.name: file.md5 for file in PUBLISHED[name].files} if name in PUBLISHED else {}
    files = [(path, published[path.name]) for path in paths if path.is_file() and path.name in published]
    return tuple((path, digest(path, md5), md5 and f"md5:{md5}") for path, md5 in files)

"""SVHN, the cropped digits, from its published MATLAB files (http://ufldl.stanford.edu/housenumbers).

A file holds X, uint8 [32, 32, 3, n], and y, [n, 1], in which the digit 0 is written as 10.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from confrank.data.published import locate
from confrank.data.sets import DataSet, Split, split_of


def load_svhn(root: Path | None, num_train: int = 73_257, num_test: int = 26_032) -> DataSet:
    """The `svhn` data set (without its `extra` images)."""
    train, test = locate("svhn", root)
    return DataSet(
        name="svhn",
        train=read_digits(train, num_train),
        test=read_digits(test, num_test),
        class_names=tuple("0123456789"),
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        padding=4,
        flip=True,
    )


def svhn_test_images(root: Path | None, num_test: int = 26_032) -> NDArray[np.uint8]:
    """The test images alone, which need only the smaller of the two files."""
    (test,) = locate("svhn", root, only=["test_32x32.mat"])
    return read_digits(test, num_test).images


def read_digits(path: Path, num_images: int) -> Split:
    """One .mat file as a split of exactly `num_images` digits."""
    from scipy.io import loadmat

    try:
        content = loadmat(path, variable_names=["X", "y"])
    except Exception as error:  # scipy raises many kinds of errors for damaged files
        why = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"expected a MATLAB file with X and y, but {path} cannot be read: {why};"
            " delete it and fetch it again (confrank data fetch svhn)"
        ) from None
    shapes = {key: (str(content[key].dtype), content[key].shape) for key in ("X", "y") if key in content}
    labels = np.asarray(content.get("y")).reshape(-1)
    expected = {"X": ("uint8", (32, 32, 3, num_images)), "y": ("uint8", (num_images, 1))}
    if shapes.get("X") != expected["X"] or "y" not in shapes or shapes["y"][1] != expected["y"][1]:
        raise ValueError(f"expected {_described(expected)} in {path}, but got {_described(shapes) or 'neither'}")
    if not np.isin(labels, np.arange(1, 11)).all():
        row = int(np.argmin(np.isin(labels, np.arange(1, 11))))
        raise ValueError(f"expected labels within 1..10 in {path}, but got {labels[row]} in row {row}")
    images = np.ascontiguousarray(content["X"].transpose(3, 0, 1, 2))
    return split_of(images, labels.astype(np.int64) % 10)


def _described(shapes: dict[str, tuple[str, tuple[int, ...]]]) -> str:
    return " and ".join(f"{key} {dtype} {list(shape)}" for key, (dtype, shape) in shapes.items())

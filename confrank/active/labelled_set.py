"""The labelled samples of a pool as a data set to train on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from confrank.active.labelled import Labelled
from confrank.active.pool import ImagePool, TablePool, open_pool
from confrank.atomic import write_atomically
from confrank.data import DataSet, Split, hold_out, split_of
from confrank.data.custom import custom_data_set
from confrank.data.pictures import Picture, stack
from confrank.data.sets import class_order
from confrank.phrasing import InputError, named
from confrank.spreadsheet import csv_text


def labelled_set(
    pool_path: Path, labelled: Labelled, test: Labelled | None, *, share: float, image_size: int | None = None
) -> DataSet:
    """Images and labels of a pool. The test split comes from `test`, or is a stratified `share` of the labelled.

    Classes are the labels in alphabetical order (numbers by value). Mean and std are those of the training images.
    """
    pool = open_pool(pool_path, image_size)
    if isinstance(pool, TablePool):
        raise ValueError(f"expected a pool of images to train on, but {pool_path} holds {', '.join(pool.arrays)}")
    classes = class_order([*labelled.labels.values(), *(test.labels.values() if test else ())])
    if len(classes) < 2:
        raise ValueError(f"expected at least two classes in {labelled.path}, but got {', '.join(classes) or 'none'}")
    train = _split(pool, labelled, classes)
    if test is None:
        rest, held = hold_out(custom_data_set(pool_path, train, train, classes), share)
        if held is None:
            raise InputError(f"expected samples to test on, but got a share of {share}", "set {test} or {test_share}")
        return custom_data_set(pool_path, rest.train, held, classes)
    if both := [name for name in test.labels if name in labelled.labels]:
        raise ValueError(f"expected test samples that are not trained on, but {test.path} shares {named(both)}")
    tested = _split(pool, test, classes)
    if tested.images.shape[1:] != train.images.shape[1:]:
        shapes = f"{list(train.images.shape[1:])} and {list(tested.images.shape[1:])}"
        raise ValueError(f"expected training and test images of one shape, but got [h, w, channels] {shapes}")
    return custom_data_set(pool_path, train, tested, classes)


def check_labels(run: Path, labelled: Labelled) -> None:
    """Raise if the run has started with other labels."""
    path = _labels_file(run)
    if path.exists() and path.read_text() != _as_csv(labelled):
        raise InputError(
            f"expected the labels with which the run in {run} started ({path}), but {labelled.path} has others",
            "choose another {out}",
        )


def write_labels(run: Path, labelled: Labelled) -> None:
    """Write the labels of a run next to its folder."""
    write_atomically(_labels_file(run), _as_csv(labelled))


def _labels_file(run: Path) -> Path:
    return run.with_name(f"{run.name}-labelled.csv")


def _as_csv(labelled: Labelled) -> str:
    return csv_text([("path", "label"), *labelled.labels.items()])


def _split(pool: ImagePool, labelled: Labelled, classes: tuple[str, ...]) -> Split:
    row_of = {name: row for row, name in enumerate(pool.names)}
    if unknown := [name for name in labelled.labels if name not in row_of]:
        raise ValueError(f"expected paths of the pool in {labelled.path}, but got {named(unknown)}")
    if not labelled.labels:
        raise ValueError(f"expected labels in {labelled.path}, but there are none")
    rows = np.array(sorted(row_of[name] for name in labelled.labels), dtype=np.int64)
    names = [pool.names[row] for row in rows.tolist()]
    pictures: list[Picture] = []
    for picture in pool.pictures(rows):
        if isinstance(picture, ValueError):
            raise picture
        pictures.append(picture)
    numbers: NDArray[np.int64] = np.array([classes.index(labelled.labels[name]) for name in names], dtype=np.int64)
    return replace(split_of(stack(pictures, names), numbers), index=rows)

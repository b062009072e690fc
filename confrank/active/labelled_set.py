"""The labelled samples of a pool as a data set to train on."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from confrank.active.labelled import Labelled
from confrank.active.pool import SamplePool, TablePool, check_texts, kind_of, open_pool
from confrank.active.strategies import Numbered
from confrank.config import RunConfig
from confrank.data import DataSet
from confrank.data.extent import usual_image_size
from confrank.data.sets import class_order, stratified
from confrank.errors import InputError, named
from confrank.files import write_atomically
from confrank.recipes import TEXT_DEFAULTS, image_defaults
from confrank.spreadsheet import csv_text

TEXT_EPOCHS = 200


def labelled_set(
    pool_path: Path, labelled: Labelled, test: Labelled | None, *, share: float, **reading: Any
) -> DataSet:
    """Samples and labels of a pool. The test split comes from `test`, or is a stratified `share` of the labelled.

    Classes are the labels in alphabetical order (numbers by value). `reading` is what `open_pool` takes.
    """
    pool = open_pool(pool_path, prefer_texts=True, **reading)
    if isinstance(pool, TablePool):
        raise ValueError(
            f"expected a pool of images or texts to train on, but {pool_path} holds {', '.join(pool.arrays)}"
        )
    classes = class_order([*labelled.labels.values(), *(test.labels.values() if test else ())])
    if len(classes) < 2:
        raise ValueError(
            f"expected at least two classes in {labelled.path}, but got {', '.join(classes) or 'none'};"
            " fill in its column label"
        )
    rows, numbers = _numbered(pool, labelled, classes)
    if test is not None:
        if both := [name for name in test.labels if name in labelled.labels]:
            raise ValueError(f"expected test samples that are not trained on, but {test.path} shares {named(both)}")
        data = pool.data_set(classes, (rows, numbers), _numbered(pool, test, classes))
        return replace(data, from_pool=True, notes=(*data.notes, *_untrained(labelled, test)))
    if not 0 < share < 1:
        raise InputError(f"expected samples to test on, but got a share of {share}", "set {test} or {test_share}")
    held = stratified(numbers, len(classes), share, seed=0)
    data = pool.data_set(classes, (rows[~held], numbers[~held]), (rows[held], numbers[held]))
    return replace(data, from_pool=True)


def _untrained(labelled: Labelled, test: Labelled) -> list[str]:
    """A warning of classes that are tested, but not trained; they count as errors."""
    new = class_order({*test.labels.values()} - {*labelled.labels.values()})
    return [f"warning: {test.path} has classes without training samples: {named(new)}"] if new else []


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


def _numbered(pool: SamplePool, labelled: Labelled, classes: tuple[str, ...]) -> Numbered:
    """The rows of the labelled samples in the pool, ascending, and their class numbers."""
    row_of = {name: row for row, name in enumerate(pool.names)}
    if unknown := [name for name in labelled.labels if name not in row_of]:
        raise ValueError(f"expected {pool.key}s of the pool in {labelled.path}, but got {named(unknown)}")
    if not labelled.labels:
        raise ValueError(f"expected labels in {labelled.path}, but there are none")
    check_texts(pool, labelled)
    rows = np.array(sorted(row_of[name] for name in labelled.labels), dtype=np.int64)
    numbers = [classes.index(labelled.labels[pool.names[row]]) for row in rows.tolist()]
    return rows, np.array(numbers, dtype=np.int64)


def config_of_pool(pool: Path, labelled: Labelled, given: Mapping[str, Any], test_share: float) -> RunConfig:
    """The config with these settings, and for the others the defaults of the labelled samples of a pool."""
    usual: dict[str, Any] = {**TEXT_DEFAULTS, "epochs": TEXT_EPOCHS}
    if kind_of(pool) != "text":
        usual = image_defaults(round(len(labelled.labels) * (1 - test_share)), given)
        if pool.is_dir():
            usual["image_size"] = usual_image_size(pool / name for name in labelled.labels)
    return RunConfig(dataset=str(pool), lr_drops=(0.6, 0.8), **{**usual, **given})

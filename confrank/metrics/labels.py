"""Labels and predictions as class numbers: from numbers, or from the names of classes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from confrank.errors import named
from confrank.metrics.arrays import (
    Array,
    ArrayLike,
    Classes,
    Ints,
    as_classes,
    describe,
    offenders,
    same_length,
    to_numpy,
)
from confrank.metrics.frames import cell_text, coded, column_names, same_rows

GIVE_CLASSES = "give their names in the order of the columns, as in classes=model.classes_"
NAME_COLUMNS = "give a data frame whose columns are the classes, as in pandas.DataFrame(..., columns=model.classes_)"


def as_labels(values: ArrayLike, num_classes: int) -> Ints:
    """A 1-D integer array with values in 0..num_classes-1."""
    labels = as_classes(values, "label")
    wrong = (labels < 0) | (labels >= num_classes)
    if wrong.any():
        raise ValueError(f"expected labels within 0..{num_classes - 1}, but got {offenders(labels, wrong)}")
    return labels


def labels_for(
    label: Classes, given: object = None, others: Mapping[str, object] | None = None, **named: Array
) -> Ints:
    """Class numbers [n] of labels, checked against a table [n, K], which is given by its name.

    `given` is the table as the caller gave it: a data frame names the classes of its columns. Its index must be that
    of the labels and of the `others`, as far as they have one.

    >>> labels_for([1, 0], logits=np.eye(2)).tolist()
    [1, 0]
    """
    ((name, table),) = named.items()
    same_rows(**{name: given, "label": label, **(others or {})})
    numbers, _ = class_numbers({"label": label}, column_names(given), NAME_COLUMNS)
    labels = as_labels(numbers["label"], table.shape[1])
    same_length(**named, label=labels)
    return labels


def names_of_classes(table: object, classes: Classes | None) -> list[Any] | None:
    """The classes [K] as the caller names them, or else as the columns of a data frame do; None without names."""
    columns = column_names(table)
    if classes is None:
        return columns
    names: list[Any] = to_numpy(classes).tolist()
    if columns is not None and [*map(cell_text, columns)] != [*map(cell_text, names)]:
        raise ValueError(f"expected the classes in the order of the columns, {columns}, but got {names}")
    return names


def class_numbers(
    columns: Mapping[str, Classes], names: Sequence[Any] | None, remedy: str = ""
) -> tuple[dict[str, Ints], list[str] | None]:
    """Class numbers [n] from the names of classes, or from numbers, and the names as text.

    Without names, words are numbered in alphabetical order, unless there is a table, whose columns have an order of
    their own: `remedy` then says how to name them. Numbers are names if all of them are, or if a name is a number.

    >>> class_numbers({"label": ["b", "a"], "prediction": ["b", "b"]}, None)
    ({'label': array([1, 0]), 'prediction': array([1, 1])}, ['a', 'b'])
    """
    given = {role: to_numpy(values) for role, values in columns.items()}
    has_words = [role for role, values in given.items() if values.dtype.kind in "SUO" and values.ndim == 1]
    if names is None:
        if not has_words:
            return {role: as_classes(values, role) for role, values in given.items()}, None
        if remedy:
            role = has_words[0]
            raise ValueError(f"expected class numbers in {role}, but got {describe(given[role])}; {remedy}")
        if len(has_words) < len(given):
            raise ValueError(f"expected names or numbers in both {' and '.join(given)}, but got one of each")
        names = sorted({cell_text(value) for values in given.values() for value in coded(values)[0]} - {""})
    texts = [*map(cell_text, names)]
    if len({*texts}) < len(texts):
        raise ValueError(f"expected a distinct name for each class, but got {texts}")
    return {role: _numbers(values, texts, role) for role, values in given.items()}, texts


def _numbers(values: Array, names: list[str], role: str) -> Ints:
    """Class numbers [n] of values that are names, or numbers if no name is one."""
    if values.ndim != 1:
        return as_classes(values, role)  # which raises
    number_of = {name: number for number, name in enumerate(names)}
    distinct, codes = coded(values)
    numbers = np.array([number_of.get(cell_text(value), -1) for value in distinct], dtype=np.int64)[codes]
    wrong = numbers < 0
    if not wrong.any():
        return numbers
    if values.dtype.kind == "b" and names == ["0", "1"]:
        return values.astype(np.int64)
    if values.dtype.kind in "fiub" and not any(map(_is_number, names)):
        numbers = as_classes(values, role)
        wrong = (numbers < 0) | (numbers >= len(names))
        if not wrong.any():
            return numbers
    raise ValueError(f"expected a class among {named(names, 8)} in {role}, but got {offenders(values, wrong)}")


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False

"""Check inputs once, and turn them into numpy arrays: anything array-like, data frames, and names of classes.

Torch tensors on any device, arrays, sequences, and columns of pandas, polars or Arrow come in. Names of classes
become class numbers. The readers of files and the functions for Python share this.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from confrank.errors import named

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class HasArray(Protocol):
    """Anything that numpy can read as an array: a numpy array, a torch tensor, a pandas series."""

    def __array__(self) -> Array: ...


# What every public function takes: numpy arrays, torch tensors on any device, sequences of numbers or of rows.
ArrayLike: TypeAlias = HasArray | Sequence[float] | Sequence[Sequence[float]]
# Labels and predictions are class numbers, or names of classes.
Classes: TypeAlias = ArrayLike | Sequence[str]

# Confidences closer than this are equal: numpy and torch round a softmax differently in its last digit.
TOLERANCE = 1e-12
# Shares closer than this are equal: sums of weights are rounded, each order of the rows in its own way.
EQUAL_SHARES = 1e-9
# Values per chunk: small enough for the processor's cache, large enough to hide Python's overhead.
CHUNK = 1 << 16
# Rows of a few rounded probabilities sum to 1 within 0.01, which is itself rounded (0.33 + 0.33 + 0.33).
ROUNDING = 0.01 + 1e-6
# A float32 softmax over many classes sums to 1 only within this; such rows are not changed. The extra 1e-9 keeps rows
# rounded to five digits on the same side of the limit, in whatever order they are summed.
EXACT = 1e-5 + 1e-9
_REMEDY = "give the probabilities of all classes, each between 0 and 1; scores before a softmax are logits"


def to_numpy(values: Classes) -> Array:
    """A numpy array, without a copy if possible.

    Half-precision tensors become float32, and objects that are numbers become an array of numbers.
    """
    # A value can be a tensor only if torch has been imported; evaluating files does not import it.
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        tensor = values.detach()
        if tensor.dtype in (torch.bfloat16, torch.float16):
            tensor = tensor.float()
        array: Array = tensor.cpu().numpy()
        return array
    refuse_masked(values)
    try:
        array = np.asarray(values)
    except ValueError:  # numpy's "inhomogeneous shape"
        raise ValueError("expected rows of one length, but they have different lengths") from None
    return array if array.dtype.kind != "O" else _without_objects(array)


def refuse_masked(values: object) -> None:
    """Raise if values of an array are masked: numpy would take what is below the mask."""
    if isinstance(values, np.ma.MaskedArray) and (count := int(np.ma.getmaskarray(values).sum())):
        raise ValueError(
            f"expected an array without masked values, but got {count:,} of them; select the rows that have values"
        )


def _without_objects(values: Array) -> Array:
    """Objects as booleans, integers or floats if all are: so do data frames give some of their columns."""
    kinds = {*map(type, values.ravel().tolist())}
    for wanted, allowed in (
        (bool, bool | np.bool_),
        (np.int64, int | np.integer),
        (np.float64, int | float | np.integer | np.floating),
    ):
        if kinds and all(issubclass(kind, allowed) for kind in kinds):
            try:
                return values.astype(wanted)
            except OverflowError:  # an integer of more than 64 bits
                return values
    return values


def as_scores(values: ArrayLike, name: str = "confidence") -> Array:
    """A finite 1-D array of float32 or float64; either type keeps its precision."""
    if name == "confidence" and (isinstance(values, str) or callable(values)):
        raise ValueError(
            f"expected the confidence of each prediction, but got {values!r}; compute it, e.g."
            " confidence=margin(logits) with margin from confrank.confidence"
        )
    scores = to_numpy(values)
    if scores.ndim != 1 or scores.dtype.kind not in "fiub":
        raise ValueError(f"expected {name} to be a 1-D array of numbers, but got {describe(scores)}")
    if scores.dtype not in (np.float32, np.float64):
        scores = scores.astype(np.float32 if scores.dtype == np.float16 else np.float64)
    # The minimum or the maximum is NaN or infinite if any value is; this needs no temporary array.
    if len(scores) and not (np.isfinite(scores.min()) and np.isfinite(scores.max())):
        raise ValueError(f"expected finite values in {name}, but got {offenders(scores, ~np.isfinite(scores))}")
    return scores


def as_weights(values: ArrayLike, num_samples: int) -> Floats:
    """Weights [n] as float64: whole numbers are counts and stay as they are, others are divided by the largest.

    So the fractions of a few of the rows are not mistaken for counts, unless all are equal. Numbers too large to sum
    exactly are divided too. A row of weight 0 is absent.

    >>> as_weights([1, 3, 0], 3).tolist(), as_weights([0.5, 2, 0], 3).tolist()
    ([1.0, 3.0, 0.0], [0.25, 1.0, 0.0])
    """
    weights = as_scores(values, "sample_weight").astype(np.float64)
    if len(weights) != num_samples:
        raise ValueError(f"expected a weight for each of {num_samples:,} rows, but got {len(weights):,} weights")
    if not num_samples:
        return weights
    lowest, highest = float(weights.min()), float(weights.max())
    if lowest < 0:
        row = int(weights.argmin())
        raise ValueError(f"expected weights of at least 0, but got {lowest:g} in row {row}")
    if highest == 0:
        raise ValueError("expected a weight above 0, but all weights are 0")
    if highest * num_samples <= 2**53 and (weights == np.floor(weights)).all():
        return weights
    return weights / highest


def weighted_mean(values: Array, weights: Floats) -> float:
    return float(np.dot(weights, values) / weights.sum())


def as_flags(values: ArrayLike, name: str = "correct") -> Flags:
    """A 1-D boolean array from booleans or zeros and ones."""
    flags = to_numpy(values)
    if flags.ndim != 1 or flags.dtype.kind not in "fiub":
        raise ValueError(f"expected {name} to be a 1-D array of booleans, but got {describe(flags)}")
    if flags.dtype == bool:
        return flags
    wrong = (flags != 0) & (flags != 1)
    if wrong.any():
        raise ValueError(f"expected only 0 and 1 (or booleans) in {name}, but got {offenders(flags, wrong)}")
    return flags.astype(bool)


def as_classes(values: ArrayLike, name: str) -> Ints:
    """A 1-D integer array of class numbers, from integers, booleans or floats without a fraction."""
    classes = to_numpy(values)
    if classes.ndim == 1 and classes.dtype.kind == "f":
        fraction = ~((np.abs(classes) < 2.0**63) & (np.floor(classes) == classes))
        if fraction.any():
            raise ValueError(f"expected whole numbers in {name}, but got {offenders(classes, fraction)}")
    if classes.ndim != 1 or classes.dtype.kind not in "iubf":
        words = "; number the classes in the order of the columns" if classes.dtype.kind in "USO" else ""
        words = f"; if it is one-hot, give {name}.argmax(1)" if classes.ndim == 2 else words
        words = "; give the column itself" if classes.ndim == 2 and classes.shape[1] == 1 else words
        raise ValueError(f"expected {name} to be a 1-D array of integers, but got {describe(classes)}{words}")
    return classes.astype(np.int64, copy=False)


def as_table(values: ArrayLike, name: str) -> Array:
    """A finite array [n, K] of float32 or float64 with K >= 2."""
    table = to_numpy(values)
    if table.ndim != 2 or table.dtype.kind not in "fiu":
        binary = "; for a binary classifier give both columns, or confidence and correct" if table.ndim == 1 else ""
        raise ValueError(f"expected {name} to be an array [samples, classes], but got {describe(table)}{binary}")
    if table.shape[1] < 2:
        raise ValueError(
            f"expected {name} with at least 2 classes, but got {table.shape[1]};"
            " for a binary classifier give both columns, or confidence and correct"
        )
    if table.dtype not in (np.float32, np.float64):
        table = table.astype(np.float32 if table.dtype == np.float16 else np.float64)
    if table.size and not (np.isfinite(table.min()) and np.isfinite(table.max())):
        finite_rows = np.isfinite(table).all(axis=1)
        raise ValueError(f"expected finite values in {name}, but got {offenders(table, np.invert(finite_rows))}")
    return table


def as_probabilities(values: ArrayLike) -> Array:
    """A table [n, K] whose rows are probability distributions; see `as_distributions`."""
    return as_distributions(values)[0]


def _has_digits(digits: int, part: Array) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):  # near the largest number
        return bool((np.abs(part - part.round(digits)) <= 1e-7).all())


def rounding_of(table: Array) -> float:
    """How far the sum of a row of probabilities may be from 1: `ROUNDING`, or more if all have few digits.

    Each of K numbers with d digits may be off by half a unit of the last digit. The limit never exceeds 0.1.

    >>> round(rounding_of(np.array([[0.1, 0.23, 0.61, 0.0, 0.03, 0.01]])), 3), rounding_of(np.eye(2)) == ROUNDING
    (0.03, True)
    """
    for digits in (2, 3, 4):
        limit: float = table.shape[1] * 0.5 * 10.0**-digits
        pieces = (table[rows] for rows in chunks(len(table), table.shape[1]))
        if limit > ROUNDING and all(map(partial(_has_digits, digits), pieces)):
            return min(limit, 0.1) + 1e-6
    return ROUNDING


def as_distributions(values: ArrayLike) -> tuple[Array, int]:
    """A table [n, K] whose rows sum to 1, and the number of rows that were divided by their sum.

    Sums may be off by `rounding_of` the table; rows that sum to 1 within `EXACT` are not changed.
    """
    given = table = as_table(values, "probabilities")
    num_divided, rounding = 0, rounding_of(table)
    for rows in chunks(len(table), table.shape[1]):
        part = given[rows]
        outside = ((part < 0) | (part > 1 + ROUNDING)).any(axis=1)
        if outside.any():
            first = rows.start + int(outside.argmax())
            raise ValueError(
                f"expected probabilities within [0, 1], but got {table[first].tolist()[:8]} in row {first}; {_REMEDY}"
            )
        total = part.sum(axis=1, dtype=np.float64)
        gap = np.abs(total - 1)
        off = gap > rounding
        if off.any():
            first = int(off.argmax())
            raise ValueError(
                f"expected probabilities that sum to 1 (within {rounding:.2g}) in each row, but got a sum of"
                f" {total[first]:.6g} in row {rows.start + first}; {_REMEDY}"
            )
        divided = (gap > EXACT) | (part > 1).any(axis=1)
        if divided.any():
            table = given.copy() if table is given else table
            # Summed in another order, the same numbers differ by about 1e-16; rounding keeps tied confidences tied.
            table[rows][divided] /= total[divided, None].round(9)
            num_divided += int(np.count_nonzero(divided))
    return table, num_divided


def are_distributions(table: Array) -> bool:
    """Whether all rows of a table [n, K] are nonnegative and sum to 1, as rows of logits rarely do."""
    if not len(table) or table.min() < 0:
        return False
    sums = (table[rows].sum(axis=1, dtype=np.float64) for rows in chunks(len(table), table.shape[1]))
    return all(np.abs(total - 1).max() <= ROUNDING for total in sums)


def at_or_above(confidence: ArrayLike, threshold: float) -> Flags:
    """Which rows a threshold accepts: those above it, at it, or below it by no more than `TOLERANCE`. [n] -> [n]

    >>> at_or_above([0.7 - 1e-13, 0.7, 0.6], 0.7).tolist()
    [True, True, False]
    """
    scores = as_scores(confidence).astype(np.float64)  # in float32 the threshold would be rounded too
    return scores >= threshold - TOLERANCE


def scores_and_flags(
    confidence: ArrayLike, correct: ArrayLike, some: str = "", **others: object
) -> tuple[Array, Flags]:
    """Both [n], checked and of one length; with `some`, which says what they are for, there must be at least one.

    `others` are further arguments by name, whose index must be the same if they have one.
    """
    same_rows(confidence=confidence, correct=correct, **others)
    scores, flags = as_scores(confidence), as_flags(correct)
    same_length(confidence=scores, correct=flags)
    if some and not len(scores):
        raise ValueError(f"expected {some}, but got none")
    return scores, flags


def same_length(**named: Array) -> None:
    """Raise an error with all lengths if they differ."""
    if single := [name for name, values in named.items() if not values.ndim]:
        raise ValueError(f"expected a value of {single[0]} for each row, but got a single one")
    if len({len(values) for values in named.values()}) > 1:
        lengths = ", ".join(f"{len(values)} in {name}" for name, values in named.items())
        raise ValueError(f"expected the same number of rows in each input, but got {lengths}")


def chunks(num_rows: int, width: int = 1) -> Iterator[slice]:
    """Slices that divide `num_rows` rows of `width` values into chunks of about CHUNK values."""
    size = max(1, CHUNK // width)
    for start in range(0, num_rows, size):
        yield slice(start, min(start + size, num_rows))


def describe(values: Array) -> str:
    """Shape and type; of objects, the first one that is not a number."""
    odd = ""
    if values.dtype.kind == "O" and values.ndim == 1:
        row = next((row for row, cell in enumerate(values) if not isinstance(cell, int | float | np.number)), None)
        odd = "" if row is None else f", with {_shown(values[row])} in row {row}"
    return f"shape {values.shape} of {values.dtype}{odd}"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return repr(str(value)[:80])
    return (
        np.array2string(np.asarray(value), threshold=6) if isinstance(value, np.generic | np.ndarray) else str(value)
    )


def offenders(values: Array, wrong: Array) -> str:
    rows = np.flatnonzero(wrong)
    shown = ", ".join(f"{_shown(values[row])} in row {row}" for row in rows[:3])
    return f"{shown}{f' and {len(rows) - 3} more rows' if len(rows) > 3 else ''}"


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


def column_names(table: object) -> list[Any] | None:
    """The names of a data frame's columns; None for anything else, and for columns that are just numbered from 0."""
    columns = getattr(table, "column_names", getattr(table, "columns", None))  # the former are those of Arrow
    if columns is None or callable(columns):
        return None
    names = [*columns]
    return None if names == [*range(len(names))] else names


def check_columns(table: object, expected: list[Any] | None) -> None:
    """Raise if the columns of a data frame are not those expected, in this order; where one has no names, nothing."""
    names = column_names(table)
    if names is not None and expected is not None and names != expected:
        raise ValueError(
            f"expected the classes {expected} as columns, in this order, but got {names};"
            f" select them by table[{expected}]"
        )


def same_rows(**given: Any) -> None:
    """Raise if the rows of two arguments do not belong together by their index, which only pandas has."""
    indexes = {name: values.index for name, values in given.items() if _is_indexed(values)}
    first = next(iter(indexes), "")
    for name, index in indexes.items():
        if len(index) == len(indexes[first]) and not index.equals(indexes[first]):  # others raise by their length
            one, other = (np.asarray(indexes[each], dtype=object) for each in (first, name))
            row = int((one != other).argmax())
            raise ValueError(
                f"expected {first} and {name} with their rows in the same order, but the index of row {row} is"
                f" {one[row]!r} in {first} and {other[row]!r} in {name}; select the rows by one index, as in"
                f" {name}.loc[{first}.index], or give {name}.to_numpy() if the rows belong together as they are"
            )


def _is_indexed(values: Any) -> bool:
    """Whether these are a series or data frame of pandas; lists and strings have a method `index`."""
    return hasattr(getattr(values, "index", None), "equals")


def row_numbers(*given: Any) -> NDArray[Any] | None:
    """The index of the first series or data frame of pandas, if its numbers identify the rows."""
    index = next((values.index for values in given if _is_indexed(values)), None)
    return None if index is None or not identifies(index) else np.asarray(index)


def identifies(index: Any) -> bool:
    """Whether an index without a name has distinct numbers that do not merely count the rows from 0."""
    if [*index.names] != [None] or index.dtype.kind not in "iu" or not index.is_unique:
        return False
    return not np.array_equal(np.asarray(index), np.arange(len(index)))


def coded(column: NDArray[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """The different values of a column [n], and the position of each row's value among them."""
    if column.dtype.kind in "fiub":
        names, codes = np.unique(column, return_inverse=True)
        return names.tolist(), codes
    # Hashing words is much faster than sorting them.
    words = column.tolist()
    position = {word: number for number, word in enumerate(dict.fromkeys(words))}
    return list(position), np.fromiter(map(position.__getitem__, words), dtype=np.int64, count=len(words))


def cell_text(value: object) -> str:
    """A cell of a column as text, whole numbers without decimals; empty if it is missing.

    >>> cell_text(2.0), cell_text(b" a "), cell_text(float("nan"))
    ('2', 'a', '')
    """
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, float):
        return "" if value != value else str(int(value)) if value.is_integer() else str(value)
    return "" if value is None or type(value).__name__ in ("NAType", "NaTType") else str(value).strip()

"""Groups of predictions: the rows of each value of a column, and what one threshold does to each group."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from confrank.metrics.arrays import Classes, Ints, at_or_above, to_numpy
from confrank.metrics.frames import cell_text, coded
from confrank.metrics.samples import Samples
from confrank.metrics.weights import weighted_mean

# More groups than this are hardly groups: each row of an id column would be one.
MOST_GROUPS = 2000
MISSING = "(missing)"


def rows_by_group(values: Classes, name: str = "group") -> dict[str, Ints]:
    """The rows of each value [n], by the value as text: numbers in ascending order, words in alphabetical order.

    Empty cells and NaN are the group "(missing)", which comes last.

    >>> {value: rows.tolist() for value, rows in rows_by_group(np.array(["b", "a", "", "b"])).items()}
    {'a': [1], 'b': [0, 3], '(missing)': [2]}
    """
    column = to_numpy(values)
    if column.ndim != 1:
        raise ValueError(f"expected one value of {name!r} for each row, but got shape {column.shape}")
    if not len(column):
        return {}
    names, codes = coded(column)
    if len(names) > MOST_GROUPS:
        raise ValueError(
            f"expected at most {MOST_GROUPS:,} groups, but {name!r} has {len(names):,} different values;"
            " choose a column with fewer"
        )
    texts = [cell_text(value) or MISSING for value in names]
    order = sorted(range(len(texts)), key=_sort_key(texts))
    # Several values may have one text, e.g. an empty cell and NaN.
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts[position] for position in order))}
    of_code = np.array([numbers[text] for text in texts], dtype=np.uint16)
    groups = of_code[codes]  # numpy sorts 16-bit integers by radix
    rows = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups, minlength=len(numbers)))
    return dict(zip(numbers, np.split(rows, ends[:-1]), strict=True))


def _sort_key(texts: list[str]) -> Any:
    """Sorts positions of texts: by number if all are numbers, with missing values last."""
    try:
        numbers = [0.0 if text == MISSING else float(text) for text in texts]
    except ValueError:
        return lambda position: (texts[position] == MISSING, texts[position])
    return lambda position: (texts[position] == MISSING, numbers[position], texts[position])


@dataclass(frozen=True)
class Acceptance:
    """What a threshold does to some predictions: rows accepted, how many of them are wrong, and the shares.

    `coverage` and `risk`, the error rate among accepted, are shares of weight where there are weights. `risk` is None
    if nothing is accepted.
    """

    threshold: float
    accepted: int
    wrong: int
    coverage: float
    risk: float | None


def accepted_at(samples: Samples, threshold: float) -> Acceptance:
    """What a threshold does to these samples.

    >>> accepted_at(Samples(np.array([0.9, 0.8, 0.4]), np.array([True, False, True])), 0.5).risk
    0.5
    """
    chosen = at_or_above(samples.confidence, threshold)
    wrong = chosen & ~samples.correct
    counts = int(np.count_nonzero(chosen)), int(np.count_nonzero(wrong))
    if samples.weight is None:
        risk = counts[1] / counts[0] if counts[0] else None
        return Acceptance(threshold, *counts, counts[0] / max(1, len(samples)), risk)
    risk = weighted_mean(wrong[chosen], samples.weight[chosen]) if counts[0] else None
    return Acceptance(threshold, *counts, weighted_mean(chosen, samples.weight), risk)

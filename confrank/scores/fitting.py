"""Parameters of the scores that are fitted to right and wrong predictions."""

from typing import Any

import numpy as np

from confrank.errors import InputError
from confrank.metrics import aurc
from confrank.metrics.inputs import TOLERANCE, Flags, Floats, Ints, chunks
from confrank.scores.functions import p_norm, tempered
from confrank.scores.table import Table, forms_of

POWERS = range(10)
TEMPERATURES = tuple(number / 100 for number in range(1, 201))
# A temperature or a power is fitted on at most this many values and rows: each needs many sorts.
MOST_ROWS, FEWEST_ROWS, MOST_VALUES = 10_000, 5_000, 4_000_000
SHARE_WRONG = 0.5


def fit_power(table: Table, correct: Flags, rows: Ints) -> dict[str, Any]:
    """The p of least AURC; None, which falls back to the maximum probability, if none improves on that."""
    logits, right = _some(table, correct, rows)
    areas = [_area(p_norm(logits, p), right) for p in POWERS]
    best = int(np.argmin(areas))
    fallback = _area(tempered(logits, 1), right)
    return {"p": POWERS[best] if areas[best] < fallback - TOLERANCE else None}


def fit_temperature_by_aurc(table: Table, correct: Flags, rows: Ints) -> dict[str, Any]:
    """The temperature in 0.01, 0.02, ..., 2 of least AURC; of several, the one closest to 1."""
    logits, right = _some(table, correct, rows)
    scores = np.empty((len(TEMPERATURES), len(right)))
    for part in chunks(*logits.shape):  # small blocks stay in the processor's cache
        for values, temperature in zip(scores, TEMPERATURES, strict=True):
            values[part] = tempered(logits[part], temperature)
    areas = {temperature: _area(values, right) for temperature, values in zip(TEMPERATURES, scores, strict=True)}
    least = min(areas.values())
    best = [temperature for temperature, area in areas.items() if area <= least + TOLERANCE]
    return {"temperature": min(best, key=lambda temperature: abs(temperature - 1))}


def fit_relu(table: Table, correct: Flags, rows: Ints) -> dict[str, Any]:
    """D = relu(l E[pp' | wrong] - (1 - l) E[pp' | right]) with zero diagonal, l = 0.5. [K, K]"""
    right = correct[rows]
    if right.all() or not right.any():
        raise InputError(
            f"expected right and wrong predictions to fit relu to, but none of {len(rows):,} is"
            f" {'wrong' if right.any() else 'right'}",
            "give more rows",
        )
    sums = {flag: np.zeros((table.num_classes, table.num_classes)) for flag in (True, False)}
    for part, block in table.blocks(rows):
        probabilities = forms_of(block, table.kind, ["by class"])["by class"]
        for flag, total in sums.items():
            chosen = probabilities[right[part] == flag]
            total += chosen.T @ chosen
    num_right = int(np.count_nonzero(right))
    matrix = SHARE_WRONG * sums[False] / (len(right) - num_right) - (1 - SHARE_WRONG) * sums[True] / num_right
    matrix = np.maximum(matrix, 0)
    np.fill_diagonal(matrix, 0)
    return {"matrix": matrix}


def _some(table: Table, correct: Flags, rows: Ints) -> tuple[Floats, Flags]:
    """Shifted logits and correctness of the rows; of a random part of them, always the same, if there are many."""
    most = min(MOST_ROWS, max(FEWEST_ROWS, MOST_VALUES // table.num_classes))
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(0).choice(rows, most, replace=False))
    return forms_of(table.values[rows], table.kind, ["shifted"])["shifted"], correct[rows]


def _area(score: Floats, correct: Flags) -> float:
    area = aurc(score, correct)
    assert area is not None, "there are rows"
    return area

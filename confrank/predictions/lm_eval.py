"""Logs of multiple-choice questions as lm-evaluation-harness writes them: the log-likelihood of each choice.

A row has `filtered_resps`, a pair of log-likelihood and flag for each choice, the number or text of the right choice
as `target`, and whether the likeliest choice is right as `acc`.
"""

from typing import Any

import numpy as np

from confrank.errors import counted, named
from confrank.predictions.cells import number
from confrank.predictions.classes import whole_number
from confrank.predictions.schema import Array

Columns = dict[str, list[Any]]
NAMES = {"doc_id", "doc", "target", "filtered_resps"}


def is_log(columns: Columns) -> bool:
    return {*columns} >= NAMES


def answers(columns: Columns) -> Columns:
    """The log-likelihoods as logits with labels, if all questions have as many choices; otherwise a confidence each.

    The confidence is the share of the likeliest choice in the likelihood of all.
    """
    _refuse_repeats(columns)
    rows = [_likelihoods(row, at) for at, row in enumerate(columns["filtered_resps"])]
    correct = columns.get("acc", [None] * len(rows))
    if not all(value in (0, 1) for value in correct):
        raise ValueError("expected acc, 0 or 1, in each row, but some lack it: only multiple-choice tasks are read")
    label = [whole_number(str(value)) for value in columns["target"]]
    for at, (row, target, right) in enumerate(zip(rows, label, correct, strict=True)):
        if target is not None and (row.argmax() == target) != right:
            raise ValueError(
                f"expected acc to say whether the likeliest choice is the target, but row {at} has acc {right:g},"
                f" target {target} and the likeliest choice {row.argmax()}"
            )
    found: Columns = {"id": columns["doc_id"]}
    if len({*map(len, rows)}) == 1 and all(target is not None for target in label):
        return found | {"label": label, "logits": [row.tolist() for row in rows]}
    confidence = [float(1 / np.exp(row - row.max()).sum()) for row in rows]
    return found | {"confidence": confidence, "correct": [bool(right) for right in correct]}


def _refuse_repeats(columns: Columns) -> None:
    """Raise if a question has a row for each of several filters, or choices have two log-likelihoods each."""
    filters = [*dict.fromkeys(map(str, columns.get("filter", [])))]
    if len(filters) > 1:
        raise ValueError(f"expected the rows of one filter, but got {named(filters)}; keep those of one")
    if "acc_mutual_info" in columns:
        raise ValueError(
            "expected one log-likelihood for each choice, but acc_mutual_info adds others without the question;"
            " run the task without this metric"
        )


def _likelihoods(row: Any, at: int) -> Array:
    """The log-likelihoods of the choices of one question."""
    pairs = row if isinstance(row, list) else []
    values = [number(str(pair[0])) if isinstance(pair, list) and len(pair) == 2 else None for pair in pairs]
    if len(values) < 2 or any(value is None for value in values):
        got = "generated text, which has no confidence" if len(values) < 2 else counted(len(values), "other value")
        raise ValueError(
            f"expected the log-likelihoods of two or more choices in filtered_resps, but got {got}, in row {at};"
            ' write rows such as {"id": 1, "confidence": 0.7, "correct": true}'
        )
    return np.array(values, dtype=np.float64)

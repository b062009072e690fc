"""The file of answers: a row for each new prediction, with the key that identifies it."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confrank.decisions.outcome import was_made_on
from confrank.decisions.policy import Answers, Policy
from confrank.errors import counted, named
from confrank.files import write_atomically
from confrank.predictions import Predictions
from confrank.spreadsheet import csv_text

OVERLAP = "note: some of these rows were used to make the decision; its guarantees are about other rows"


def write_answers(out: Path, policy: Policy, predictions: Predictions, answers: Answers) -> list[str]:
    """Write the answers of a policy; lines about them, the one with the file last."""
    written = write_rows(out, predictions, answers.columns(), "answers")
    return [*policy.doubts(predictions), *overlap_notes(policy, predictions), summary(answers), *written]


def overlap_notes(policy: Policy, predictions: Predictions) -> list[str]:
    """A line if a part of the policy was made on rows among these: its guarantees are about others."""
    return [OVERLAP] if was_made_on(policy, predictions) else []


def write_rows(out: Path, predictions: Predictions, columns: Mapping[str, list[Any]], what: str) -> list[str]:
    """Write the key and these columns of each row as CSV; lines that say where."""
    ((name, keys),) = row_names(predictions).items()
    table = {"key" if name in columns else name: keys, **columns}
    words = [[str(cell).lower() if isinstance(cell, bool) else cell for cell in cells] for cells in table.values()]
    write_atomically(out, csv_text([[*table], *zip(*words, strict=True)]))
    return [f"{what}: {out}"]


def row_names(predictions: Predictions) -> dict[str, list[Any]]:
    """The column that identifies rows: the key, the index, or the number of the row."""
    if predictions.key is None and predictions.index is not None:
        return {"index": predictions.index.tolist()}
    if predictions.key is None:
        return {"row": list(range(len(predictions)))}
    column = predictions.key_name
    if column == "key":  # the name of the column in the file, if it was given this role
        keys = [name for name, role in predictions.roles.items() if role == "key"]
        column = keys[0] if len(keys) == 1 else column
    return {column: [bytes(key).decode(errors="surrogateescape") for key in predictions.key.tolist()]}


def check_answers(out: Path) -> None:
    """Raise if the file to write exists and holds something else than answers, such as labels added to them."""
    if not out.is_file():
        return
    with out.open(newline="", errors="replace") as file:
        try:
            header = next(csv.reader(file), [])
        except csv.Error:
            header = [""]
    if header and not {"confidence"} <= {*header[1:]} <= {"prediction", "confidence", "accepted", "set"}:
        raise ValueError(
            f"expected a new file, or one that this command wrote, but {out} holds something else;"
            " choose another --out"
        )


def summary(answers: Answers) -> str:
    """How many answers are accepted and rejected, and which groups are unknown.

    >>> import numpy as np
    >>> answers = Answers(None, np.array([0.9, 0.2]), np.array([True, False]), unknown=1, unknown_names=(" North",))
    >>> summary(answers)
    "2 answers: 1 accepted, 1 rejected (1 of a group or class that the policy does not know: ' North')"
    """
    parts = []
    if answers.accepted is not None:
        accepted = int(answers.accepted.sum())
        parts.append(f"{accepted:,} accepted, {len(answers) - accepted:,} rejected")
    if answers.sets is not None:
        parts.append(f"sets of {answers.sets.sum(axis=1).mean():.2f} classes on average")
    unknown = ""
    if answers.unknown:
        names = named([*map(repr, answers.unknown_names)])
        unknown = f" ({answers.unknown:,} of a group or class that the policy does not know: {names})"
    return f"{counted(len(answers), 'answer')}: {', '.join(parts) or 'the policy has no acceptance rule'}{unknown}"

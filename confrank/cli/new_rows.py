"""New predictions, with or without labels: read them, answer them, and write a CSV file with a row for each."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confrank.cli.command import Arguments, Parser, add_option
from confrank.cli.source import kept, predictions_path
from confrank.errors import about
from confrank.runs.outputs import csv_path

if TYPE_CHECKING:
    from confrank.decisions.policy import Answers, Policy
    from confrank.predictions import Predictions

OVERLAP = "note: some of these rows were used to make the decision; its guarantees are about other rows"
# Roles that new rows need not have.
KNOWN_ONLY = ("label", "correct", "sample_weight")


def add_new(parser: Parser, what: str) -> None:
    """Add the flags that `new_paths` reads."""
    new = parser.add_argument_group("new rows")
    add_option(new, "--new", str, "FILE", what)
    add_option(new, "--out", str, "FILE", "file to write for the new rows (.csv)")


def new_paths(arguments: Arguments) -> tuple[list[Path], Path | None]:
    """The file of --new, if there is one, and the file to write for it."""
    if (arguments.new is None) != (arguments.out is None):
        given, missing = ("--new", "--out") if arguments.out is None else ("--out", "--new")
        raise ValueError(f"expected {missing} with {given}, but got none")
    return [] if arguments.new is None else [predictions_path(arguments.new)], csv_path(arguments.out)


def new_answers(arguments: Arguments, reading: Mapping[str, Any], policy: "Policy") -> "tuple[Predictions, Answers]":
    """The predictions of --new, and what a policy answers."""
    roles = {role: column for role, column in reading["columns"].items() if role not in KNOWN_ONLY}
    options = {name: value for name, value in reading.items() if name not in ("truth", "on")} | {"columns": roles}
    return answered(arguments.new, options, policy)


def answered(file: str, reading: Mapping[str, Any], policy: "Policy") -> "tuple[Predictions, Answers]":
    """The predictions of a file, read without labels, and what a policy answers."""
    from confrank.predictions import read

    path, keep = predictions_path(file), kept(reading, *policy.columns)
    like = policy.input.reading
    predictions = read(path, **reading, labelled=False, classes=policy.classes, keep=keep, like=like)
    if reading["skip_missing"] and "row" in row_names(predictions):
        raise ValueError(
            f"expected a column that identifies rows in {file}, since --skip-missing may leave some out,"
            " but got none; add a column id"
        )
    with about(file):
        return predictions, policy.apply(predictions)


def overlap_notes(policy: "Policy", predictions: "Predictions") -> list[str]:
    """A line if a part of the policy was made on rows among these: its guarantees are about others."""
    from confrank.decisions.outcome import was_made_on

    return [OVERLAP] if was_made_on(policy, predictions) else []


def row_names(predictions: "Predictions") -> dict[str, list[Any]]:
    """The column that identifies rows: the key, the index, or the number of the row."""
    if predictions.key is not None:
        keys = [bytes(key).decode(errors="surrogateescape") for key in predictions.key.tolist()]
        return {_key_column(predictions): keys}
    if predictions.index is not None:
        return {"index": predictions.index.tolist()}
    return {"row": list(range(len(predictions)))}


def _key_column(predictions: "Predictions") -> str:
    """The name of the key in the file, if --columns gave it this role."""
    named = [column for column, role in predictions.roles.items() if role == "key"]
    return named[0] if predictions.key_name == "key" and len(named) == 1 else predictions.key_name


def write_rows(out: Path, predictions: "Predictions", columns: Mapping[str, list[Any]], what: str) -> list[str]:
    """Write the key and these columns of each row as CSV; lines that say where."""
    from confrank.files import write_atomically
    from confrank.spreadsheet import csv_text

    names = row_names(predictions)
    named = {**(names if not {*names} & {*columns} else {"key": next(iter(names.values()))}), **columns}
    words = {name: [_word(cell) for cell in cells] for name, cells in named.items()}
    text = csv_text([[*words], *zip(*words.values(), strict=True)])
    write_atomically(out, text)
    return [f"{what}: {out}"]


def _word(cell: object) -> object:
    return str(cell).lower() if isinstance(cell, bool) else cell

"""Answer new predictions by a policy: accept or reject each, or list its set of classes."""

from typing import TYPE_CHECKING, Any

from confrank.cli.command import Command, add_option
from confrank.cli.paths import csv_path, keep_inputs
from confrank.cli.source import add_reading, predictions_path, reading_of
from confrank.phrasing import InputError, counted

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

    from confrank.decisions.policy import Answers, Policy
    from confrank.predictions import Predictions


def _apply_arguments(parser: "ArgumentParser") -> None:
    parser.add_argument("policy", type=str, metavar="POLICY", help="policy file (.json) that other commands wrote")
    parser.add_argument("file", type=str, metavar="NEW", help="new predictions, with or without labels")
    add_reading(parser, labelled=False)
    add_option(parser.add_argument_group("output"), "--out", str, "FILE", "file to write", "answers.csv")


def _apply(arguments: "Namespace") -> None:
    from confrank.atomic import write_atomically
    from confrank.decisions.policy import Policy
    from confrank.predictions import read
    from confrank.spreadsheet import csv_text

    out, path = csv_path(arguments.out), predictions_path(arguments.file)
    keep_inputs([arguments.policy, arguments.file, path], out)
    policy = Policy.load(arguments.policy)
    reading = reading_of(arguments)
    predictions = read(path, **reading, labelled=False, classes=policy.classes, keep=_kept(policy, reading))
    if arguments.skip_missing and "row" in row_names(predictions):
        raise ValueError(
            f"expected a column that identifies rows in {arguments.file}, since --skip-missing may leave some out,"
            " but got none; add a column id"
        )
    try:
        answers = policy.apply(predictions)
    except InputError as error:
        raise InputError(f"{arguments.file}: {error.problem}", error.remedy) from None
    columns = row_names(predictions) | answers.columns()
    write_atomically(out, csv_text([[*columns], *zip(*columns.values(), strict=True)]))
    print(
        "\n".join(
            [f"read {predictions.describe()}", *policy.doubts(predictions), summary(answers), f"answers: {out}"]
        )
    )


def _kept(policy: "Policy", reading: dict[str, Any]) -> list[str]:
    """The columns of groups that the policy needs, except those that --columns names."""
    return [column for column in policy.columns if column not in reading["columns"]]


def row_names(predictions: "Predictions") -> dict[str, list[Any]]:
    """The column that identifies rows: the key, the index, or the number of the row."""
    if predictions.key is not None:
        return {predictions.key_name: [bytes(key).decode(errors="replace") for key in predictions.key.tolist()]}
    if predictions.index is not None:
        return {"index": predictions.index.tolist()}
    return {"row": list(range(len(predictions)))}


def summary(answers: "Answers") -> str:
    """How many answers are accepted and rejected, and how many rows have an unknown group.

    >>> import numpy as np
    >>> from confrank.decisions.policy import Answers
    >>> summary(Answers(None, np.array([0.9, 0.2, 0.4]), np.array([True, False, False]), unknown=1))
    '3 answers: 1 accepted, 2 rejected (1 of a group or class that the policy does not know)'
    """
    parts = []
    if answers.accepted is not None:
        accepted = int(answers.accepted.sum())
        parts.append(f"{accepted:,} accepted, {len(answers) - accepted:,} rejected")
    if answers.sets is not None:
        parts.append(f"sets of {answers.sets.sum(axis=1).mean():.2f} classes on average")
    unknown = f" ({answers.unknown:,} of a group or class that the policy does not know)" if answers.unknown else ""
    return f"{counted(len(answers), 'answer')}: {', '.join(parts) or 'the policy has no acceptance rule'}{unknown}"


APPLY = Command(
    "answer new predictions by a policy: accept or reject each, or list its set of classes",
    "confrank apply policy.json new.csv --out answers.csv",
    _apply_arguments,
    _apply,
    guide="how-to/policy.md",
)

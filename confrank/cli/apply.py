"""Answer new predictions by a policy: accept or reject each, or list its set of classes."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from confrank.cli.command import Arguments, Command, Parser, add_option
from confrank.cli.new_rows import answered, overlap_notes, write_rows
from confrank.cli.source import add_file, predictions_path, reading_of
from confrank.errors import counted, named
from confrank.runs.outputs import csv_path, keep_inputs

if TYPE_CHECKING:
    from confrank.decisions.policy import Answers, Policy
    from confrank.predictions import Predictions


def _apply_arguments(parser: Parser) -> None:
    parser.add_argument("policy", type=str, metavar="POLICY", help="policy file (.json) that other commands wrote")
    add_file(parser, "new predictions, with or without labels", "NEW", labelled=False)
    add_option(parser.add_argument_group("output"), "--out", str, "FILE", "file to write", "answers.csv")


def _apply(arguments: Arguments) -> None:
    from confrank.decisions.policy import Policy

    out = csv_path(arguments.out)
    keep_inputs([arguments.policy, arguments.file, predictions_path(arguments.file)], out)
    check_answers(out)
    policy = Policy.load(arguments.policy)
    predictions, answers = answered(arguments.file, reading_of(arguments), policy)
    print("\n".join([f"read {predictions.describe()}", *write_answers(out, policy, predictions, answers)]))


def write_answers(out: Path, policy: "Policy", predictions: "Predictions", answers: "Answers") -> list[str]:
    """Write the answers of a policy; lines about them, the one with the file last."""
    written = write_rows(out, predictions, answers.columns(), "answers")
    return [*policy.doubts(predictions), *overlap_notes(policy, predictions), summary(answers), *written]


def check_answers(out: Path) -> None:
    """Raise if the file to write exists and holds something else than answers, such as labels added to them."""
    if not out.is_file():
        return
    header = _header(out)
    if header and not {"confidence"} <= {*header[1:]} <= {"prediction", "confidence", "accepted", "set"}:
        raise ValueError(
            f"expected a new file, or one that this command wrote, but {out} holds something else;"
            " choose another --out"
        )


def _header(path: Path) -> list[str]:
    """The cells in the first row of a CSV file; what is no CSV is one cell."""
    with path.open(newline="", errors="replace") as file:
        try:
            return next(csv.reader(file), [])
        except csv.Error:
            return [""]


def summary(answers: "Answers") -> str:
    """How many answers are accepted and rejected, and which groups are unknown.

    >>> import numpy as np
    >>> from confrank.decisions.policy import Answers
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


APPLY = Command(
    "apply a policy to new predictions: accept or reject each, or list its set of classes",
    "confrank apply policy.json new.csv --out answers.csv",
    _apply_arguments,
    _apply,
    guide="how-to/policy.md",
)

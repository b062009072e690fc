"""The policy file of a command: flags, loading, and saving with one more part."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from confrank.cli.command import Arguments, Parser, add_option
from confrank.cli.source import predictions_path
from confrank.errors import InputError, about, joined, named
from confrank.runs.outputs import json_path, json_policy_path, keep_inputs

if TYPE_CHECKING:
    from confrank.decisions.policy import Policy
    from confrank.decisions.policy_parts import Part
    from confrank.decisions.rows import UsedRows
    from confrank.metrics import Samples
    from confrank.predictions import Predictions


def add_policy(parser: Parser) -> None:
    """Add the flags that `open_policy` and `save_policy` read."""
    policy = parser.add_argument_group("policy")
    add_option(
        policy, "--policy", str, "FILE", "add the result to this policy (.json); create it if it does not exist"
    )
    replace = "replace the part that the policy already has, and drop the parts that depend on it"
    policy.add_argument("--replace", action="store_true", help=replace)


def add_design_policy(parser: Parser) -> None:
    """Add the flags of `add_policy`, and --rows for a part that is fitted or chosen, for `uses_all_rows`."""
    add_policy(parser)
    rows = "rows to fit or choose on: design, half of the file, so that a guarantee can use the rest; or all"
    rows += " (default: design)"
    add_option(parser.add_argument_group("policy"), "--rows", Literal["design", "all"], "NAME", rows)


def uses_all_rows(arguments: Arguments) -> bool:
    """Whether a part is fitted or chosen on all rows of its file; an error for --rows without --policy."""
    if arguments.rows is not None and arguments.policy is None:
        raise ValueError("expected --policy with --rows, but got none; without a policy all rows are used")
    return bool(arguments.rows == "all")


def policy_path(arguments: Arguments) -> Path | None:
    """The path of --policy, with an ending and in a folder that can be written; an error for --replace without it."""
    if arguments.policy is None:
        if arguments.replace:
            raise ValueError("expected --policy with --replace, but got none")
        return None
    path: Path = json_policy_path(arguments.policy)
    return path


def json_output(arguments: Arguments, *others: Path | None, inputs: Iterable[str | Path | None] = ()) -> Path | None:
    """The path of --json; an error if it, --policy or one of the others to write is a file that is read.

    Those are the predictions, --truth and `inputs`.
    """
    table: Path | None = json_path(arguments.json)
    read = [arguments.file, predictions_path(arguments.file), arguments.truth, *inputs]
    keep_inputs(read, table, *others, policy_path(arguments))
    return table


def open_policy(arguments: Arguments, predictions: "Predictions") -> "Policy | None":
    """The policy of --policy, loaded and checked against the predictions, or a new one; None without the flag."""
    from confrank.decisions.policy import Policy

    path = policy_path(arguments)
    if path is None:
        return None
    if not path.exists():
        return Policy.of(predictions)
    policy = Policy.load(path)
    with about(arguments.file):
        policy.matched(predictions)
    if policy.input.class_names and predictions.class_names and predictions.class_names != policy.classes:
        raise InputError(
            f"{arguments.file}: expected the classes in the order of the policy, {named(policy.classes or [])}, but"
            f" got {named(predictions.class_names or [])}",
            "reorder the columns",
        )
    return policy


def unseen_samples(
    arguments: Arguments, policy: "Policy", predictions: "Predictions", samples: "Samples"
) -> "tuple[Samples, UsedRows]":
    """The samples as the policy ranks them, those that none of its fitted parts saw, and the record of their rows."""
    if arguments.split is not None:
        raise ValueError("expected either --split or --policy, but got both; a policy is checked by confrank monitor")
    index, rows = policy.usable(predictions, "promise", file=arguments.file, seed=arguments.seed)
    return ranked_by(policy, predictions, samples).select(index), rows


def ranked_by(policy: "Policy", predictions: "Predictions", samples: "Samples") -> "Samples":
    """The samples with the predictions and the confidence of the policy."""
    prediction, confidence = policy.predicted(predictions)
    return replace(samples, confidence=confidence, prediction=prediction, correct=policy.correct(predictions))


def save_policy(arguments: Arguments, policy: "Policy", part: "Part") -> list[str]:
    """Add a part to the policy and write it; lines that say so."""
    from confrank.decisions.policy_parts import WORDS, the_parts
    from confrank.decisions.policy_words import replaced_sentences

    dropped = policy.replaced_by(part)
    changed = policy.add(part, arguments.policy, replace=arguments.replace)
    notes = [
        *(() if part.rows is None else part.rows.notes),
        *replaced_sentences({part.slot: part}, changed.replaced),
    ]
    noted = [f"note        {note}" for note in notes]
    if not policy.parts() and [*changed.parts()] == [part.slot]:
        return [f"policy      created {arguments.policy} with {WORDS[part.slot]}", *noted]
    done = f"replaced {the_parts([part.slot])}" if part.slot in dropped else f"added {WORDS[part.slot]}"
    lines = [f"policy      {arguments.policy}: {done}"]
    if others := [slot for slot in dropped if slot != part.slot]:
        lines.append(f"            dropped {the_parts(others)}")
    return [*lines, f"            it now has {joined([WORDS[slot] for slot in changed.parts()])}", *noted]

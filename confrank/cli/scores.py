"""Compare confidence scores of a file of predictions, and choose one."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from confrank.cli.command import Arguments, Command, Parser, add_option, at_least, make_console, say, working
from confrank.cli.paths import write_json
from confrank.cli.policies import add_design_policy, json_output, open_policy, save_policy, uses_all_rows
from confrank.cli.source import Source, add_file, read_source, reading_of

if TYPE_CHECKING:
    from confrank.decisions.policy import Policy
    from confrank.decisions.rows import UsedRows
    from confrank.scores import Choice


def _scores_arguments(parser: Parser) -> None:
    add_file(parser, "predictions with logits or probabilities of all classes, or a run folder")
    choice = parser.add_argument_group("choice")
    add_option(choice, "--seed", int, "N", "seed of the split into halves, and of the resamples", 0)
    resamples = (
        "bootstrap resamples, 100 or more; 0 for no intervals per score (default: depends on the number of rows)"
    )
    add_option(choice, "--resamples", int, "N", resamples)
    add_design_policy(parser)
    add_option(parser.add_argument_group("output"), "--json", str, "FILE", "write the numbers to this file (.json)")


def _scores(arguments: Arguments) -> None:
    from confrank.analysis import check_resamples
    from confrank.report.scores import choice_as_dict

    at_least(0, arguments, "seed")
    check_resamples(arguments.resamples)
    every, out = uses_all_rows(arguments), json_output(arguments)
    source = read_source(arguments.file, reading=reading_of(arguments))
    if source.predictions.table is None:
        raise ValueError(
            f"expected logits or probabilities of all classes to compute scores from, but {arguments.file} has"
            f" {source.predictions.describe()}"
        )
    policy = open_policy(arguments, source.predictions)
    with working("fitting and comparing the scores") as advance:
        choice, rows = _chosen(source, policy, arguments.seed, arguments.resamples, advance, every=every)
    saved = [] if policy is None else _save(arguments, policy, choice, rows)
    write_json(out, {"file": arguments.file, **choice_as_dict(choice)})
    _print(source, choice, saved)


def _chosen(
    source: Source,
    policy: "Policy | None",
    seed: int,
    resamples: int | None,
    advance: Callable[[int, int], None],
    *,
    every: bool,
) -> "tuple[Choice, UsedRows | None]":
    """The choice on all rows, or on those that the policy grants, of the table that it calibrates."""
    from confrank.scores.choice import chosen
    from confrank.scores.table import table_of

    predictions = source.predictions
    if policy is None:
        table = table_of(predictions.logits, predictions.probabilities)
        return chosen(table, source.samples.correct, seed, resamples, on_progress=advance), None
    index, rows = policy.usable(predictions, "design", file=source.name, seed=seed, every=every)
    table = table_of(**policy.table(predictions))
    return chosen(table, policy.correct(predictions), seed, resamples, index, advance), rows


def _save(arguments: Arguments, policy: "Policy", choice: "Choice", rows: "UsedRows | None") -> list[str]:
    from confrank.decisions.policy import ScorePart
    from confrank.report.scores import choice_as_dict

    numbers = choice_as_dict(choice)
    settings = {name: numbers[name] for name in ("candidate", "difference", "num_chosen_on", "num_judged_on")}
    return save_policy(arguments, policy, ScorePart(choice.name, choice.parameters, rows, settings=settings))


def _print(source: Source, choice: "Choice", saved: list[str]) -> None:
    from confrank.report.scores import choice_lines, given_line, refusal_lines, scores_table

    console = make_console()
    say(console, f"read {source.predictions.describe()}", *source.samples.notes)
    say(console, *choice_lines(choice))
    console.print(scores_table(choice))
    given = [] if source.predictions.confidence is None else [given_line(source.samples.select(choice.judged.rows))]
    say(console, *given, *saved)
    count = choice.judged.num_resamples
    note = f"in brackets: 95% intervals, those that need it from {count:,} resamples"
    notes = [note if count else "no intervals per score; --resamples 200 computes them"]
    say(console, *refusal_lines(choice), *notes, style="dim")


SCORES = Command(
    "compare confidence scores of logits or probabilities, and choose the one to rank by",
    "confrank scores validation.npz --policy policy.json",
    _scores_arguments,
    _scores,
    guide="how-to/scores.md",
)

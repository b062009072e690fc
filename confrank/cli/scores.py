"""Compare confidence scores of a file of predictions, and choose one."""

import json
from typing import TYPE_CHECKING

from confrank.cli.command import Command, add_option, at_least, make_console, say
from confrank.cli.paths import json_path, keep_inputs
from confrank.cli.source import add_reading, predictions_path, read_source, reading_of

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace


def _scores_arguments(parser: "ArgumentParser") -> None:
    file = "predictions with logits or probabilities of all classes, or a run folder"
    parser.add_argument("file", type=str, metavar="FILE", help=file)
    add_reading(parser)
    choice = parser.add_argument_group("choice")
    add_option(choice, "--seed", int, "N", "seed of the split into halves, and of the resamples", 0)
    resamples = (
        "bootstrap resamples, 100 or more; 0 for no intervals per score (default: depends on the number of rows)"
    )
    add_option(choice, "--resamples", int, "N", resamples)
    add_option(parser.add_argument_group("output"), "--json", str, "FILE", "write the numbers to this file (.json)")


def _scores(arguments: "Namespace") -> None:
    from confrank.analysis import check_resamples
    from confrank.atomic import write_atomically
    from confrank.report.scores import choice_as_dict, choice_lines, refusal_lines, scores_table
    from confrank.scores.choice import chosen
    from confrank.scores.table import table_of

    at_least(0, arguments, "seed")
    check_resamples(arguments.resamples)
    out = json_path(arguments.json)
    truth = [] if arguments.truth is None else [arguments.truth]
    keep_inputs([arguments.file, predictions_path(arguments.file), *truth], out)
    source = read_source(arguments.file, reading=reading_of(arguments))
    predictions = source.predictions
    if predictions.table is None:
        raise ValueError(
            f"expected logits or probabilities of all classes to compute scores from, but {arguments.file} has"
            f" {predictions.describe()}"
        )
    table = table_of(predictions.logits, predictions.probabilities)
    choice = chosen(table, source.samples.correct, arguments.seed, arguments.resamples)
    if out is not None:
        write_atomically(out, json.dumps({"file": arguments.file, **choice_as_dict(choice)}, indent=1))
    console = make_console()
    for line in (f"read {predictions.describe()}", *source.samples.notes):
        say(console, line)
    console.print(scores_table(choice))
    for line in choice_lines(choice):
        say(console, line)
    count = choice.judged.num_resamples
    note = f"in brackets: 95% bootstrap intervals from {count:,} resamples"
    notes = [note if count else "no intervals per score; --resamples 200 computes them"]
    for line in [*refusal_lines(choice), *notes]:
        say(console, line, style="dim")


SCORES = Command(
    "compare confidence scores of logits or probabilities, and choose one on data",
    "confrank scores validation.npz --json scores.json",
    _scores_arguments,
    _scores,
    guide="how-to/scores.md",
)

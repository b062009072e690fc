"""Select new answers such that few of the selected are wrong."""

from confrank.cli.command import Arguments, Command, Parser, add_option, between_0_and_1
from confrank.cli.new_rows import OVERLAP, add_new, new_answers, new_paths, write_rows
from confrank.cli.source import (
    add_file,
    predictions_path,
    print_read,
    read_source,
    reading_of,
    refuse_weight_column,
)
from confrank.runs.outputs import json_path, keep_inputs, write_json


def _select_arguments(parser: Parser) -> None:
    add_file(parser, "labelled predictions on data that the model was not trained on, or a run folder")
    selection = parser.add_argument_group("selection")
    fdr = "largest expected share of wrong answers among the selected (false-discovery rate)"
    add_option(selection, "--fdr", float, "SHARE", fdr, 0.05)
    add_new(parser, "select among these new predictions, with or without labels")
    add_option(parser.add_argument_group("output"), "--json", str, "FILE", "write the numbers to this file (.json)")


def _select(arguments: Arguments) -> None:
    from confrank.decisions import Policy, select_with_fdr
    from confrank.decisions.policy_rows import made_on
    from confrank.report.guarantees import selection_lines

    between_0_and_1(arguments, "fdr")
    new, out = new_paths(arguments)
    if out is None:
        raise ValueError("expected new predictions to select from, but got none; add --new NEW --out OUT.csv")
    table = json_path(arguments.json)
    keep_inputs([arguments.file, predictions_path(arguments.file), arguments.truth, *new], table, out)
    reading = reading_of(arguments)
    refuse_weight_column(reading)
    source = read_source(arguments.file, reading=reading)
    predictions = source.predictions
    print_read(predictions, source.samples)
    policy = Policy.of(predictions)  # without parts: it ranks both files in the same way
    _, rows = policy.usable(predictions, "promise", file=arguments.file)
    unlabelled, answers = new_answers(arguments, reading, policy)
    selection = select_with_fdr(
        policy.confidence(predictions), policy.correct(predictions), answers.confidence, arguments.fdr
    )
    promise, shortage = selection.promise(), selection.shortage()
    lines = [OVERLAP] if made_on([rows], policy.matched(unlabelled)) else []
    lines += [*selection_lines(selection), f"guarantee   {promise}", *([] if shortage is None else [shortage])]
    lines += write_rows(out, unlabelled, {"selected": selection.selected.tolist()}, "selection")
    asked = {"file": arguments.file, "new": arguments.new, "fdr": arguments.fdr}
    counts = {"n": selection.num_calibration, "num_wrong": len(selection.wrong)}
    chosen = {"num_new": len(selection.selected), "num_selected": selection.num_selected}
    write_json(table, {**asked, **counts, **chosen, "promise": promise, "shortage": shortage})
    print("\n".join(lines))


SELECT = Command(
    "select new answers so that few of them are wrong, on average",
    "confrank select predictions.npz --fdr 0.05 --new new.csv --out selected.csv",
    _select_arguments,
    _select,
    guide="how-to/guarantees.md",
)

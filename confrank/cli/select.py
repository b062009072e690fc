"""Select new answers such that few of the selected are wrong."""

from confrank.cli.command import Arguments, Command, Parser, add_option, at_least, between_0_and_1
from confrank.cli.new_rows import add_new, new_answers, new_paths, overlap_notes, write_rows
from confrank.cli.paths import write_json
from confrank.cli.policies import add_policy, json_output, open_policy, save_policy
from confrank.cli.source import add_file, print_read, read_source, reading_of, refuse_weight_column


def _select_arguments(parser: Parser) -> None:
    add_file(parser, "labelled predictions on data that the model was not trained on, or a run folder")
    selection = parser.add_argument_group("selection")
    fdr = "largest expected share of wrong answers among the selected (false-discovery rate)"
    add_option(selection, "--fdr", float, "SHARE", fdr, 0.05)
    add_option(selection, "--seed", int, "N", "seed of the halves of the file, with --policy", 0)
    add_new(parser, "select among these new predictions, with or without labels")
    add_policy(parser)
    add_option(parser.add_argument_group("output"), "--json", str, "FILE", "write the numbers to this file (.json)")


def _select(arguments: Arguments) -> None:
    from confrank.decisions import select_with_fdr
    from confrank.decisions.policy import Policy, SelectionPart
    from confrank.report.guarantees import compared_line, selection_lines

    at_least(0, arguments, "seed")
    between_0_and_1(arguments, "fdr")
    new, out = new_paths(arguments)
    if not new and arguments.policy is None:
        raise ValueError("expected new predictions to select from, but got none; add --new NEW --out OUT.csv")
    table = json_output(arguments, out, inputs=new)
    reading = reading_of(arguments)
    refuse_weight_column(reading)
    source = read_source(arguments.file, reading=reading)
    print_read(source.predictions, source.samples, policy=arguments.policy)
    predictions = source.predictions
    policy = open_policy(arguments, predictions)
    base = Policy.of(predictions) if policy is None else policy
    index, rows = base.usable(predictions, "promise", file=arguments.file, seed=arguments.seed)
    confidence, correct = base.confidence(predictions)[index], base.correct(predictions)[index]
    selection = select_with_fdr(confidence, correct, [], arguments.fdr)
    part, promise = SelectionPart.of(selection, rows), selection.promise()
    lines, shortage, unlabelled = [], None, None
    if new:
        made = base.with_part(part, replace=True)
        unlabelled, answers = new_answers(arguments, reading, made)
        selection = select_with_fdr(confidence, correct, answers.confidence, arguments.fdr)
        assert answers.accepted is not None and (answers.accepted == selection.selected).all()
        shortage = selection.shortage()
        lines += [*overlap_notes(made, unlabelled), *selection_lines(selection)]
    else:
        lines.append(compared_line(selection))
    lines += [f"guarantee   {promise}", *([] if shortage is None else [shortage])]
    if policy is not None:
        lines += save_policy(arguments, policy, part)
    if unlabelled is not None and out is not None:
        flags = ["true" if one else "false" for one in selection.selected.tolist()]
        lines += write_rows(out, unlabelled, {"selected": flags}, "selection")
    counts = {"n": selection.num_calibration, "num_wrong": len(selection.wrong)}
    chosen = {"num_new": len(selection.selected), "num_selected": selection.num_selected} if new else {}
    asked = {"file": arguments.file, "new": arguments.new, "fdr": arguments.fdr}
    write_json(table, {**asked, **counts, **chosen, "promise": promise, "shortage": shortage})
    print("\n".join(lines))


SELECT = Command(
    "select new answers so that few of them are wrong, on average",
    "confrank select predictions.npz --fdr 0.05 --new new.csv --out selected.csv",
    _select_arguments,
    _select,
    guide="how-to/guarantees.md",
)

"""Build sets of classes that include the true one with a chosen probability."""

import json
from typing import TYPE_CHECKING, Any, Literal

from confrank.cli.command import Command, add_option, at_least
from confrank.cli.group_threshold import column_of
from confrank.cli.new_rows import add_new, new_answers, new_paths, write_rows
from confrank.cli.paths import json_path, keep_inputs
from confrank.cli.policies import add_policy, open_policy, policy_path, save_policy
from confrank.cli.source import add_reading, predictions_path, read_source, reading_of, role_columns

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

# A copy of the type in `confrank.decisions.nonconformity`, whose import takes longer than help may.
Method = Literal["lac", "aps", "raps"]


def _sets_arguments(parser: "ArgumentParser") -> None:
    file = "labelled predictions on data that the model was not trained on, or a run folder"
    parser.add_argument("file", type=str, metavar="FILE", help=file)
    add_reading(parser)
    sets = parser.add_argument_group("sets")
    add_option(sets, "--level", float, "SHARE", "probability that a set includes the true class", 0.9)
    add_option(sets, "--method", Method, "NAME", "lac (smallest), aps (adaptive) or raps (regularised)", "lac")
    sets.add_argument("--per-class", action="store_true", help="keep the level within each true class")
    add_option(sets, "--by", str, "COLUMN", "keep the level within each value of this column")
    add_option(sets, "--penalty", float, "X", "raps: added for each rank beyond --free-rank", 0.01)
    add_option(sets, "--free-rank", int, "N", "raps: ranks without penalty", 5)
    add_option(sets, "--seed", int, "N", "seed of the random numbers of aps and raps", 0)
    add_new(parser, "build sets for these new predictions, with or without labels")
    add_policy(parser)
    add_option(parser.add_argument_group("output"), "--json", str, "FILE", "write the numbers to this file (.json)")


def _sets(arguments: "Namespace") -> None:
    import numpy as np

    from confrank.atomic import write_atomically
    from confrank.decisions import conformal_sets
    from confrank.decisions.guarantee import refuse_weights
    from confrank.decisions.policy import Policy, SetsPart
    from confrank.decisions.policy_apply import row_keys
    from confrank.report.guarantees import set_lines, size_line

    at_least(0, arguments, "seed", "free_rank")
    table, (new, out) = json_path(arguments.json), new_paths(arguments)
    truth = [] if arguments.truth is None else [arguments.truth]
    inputs = [arguments.file, predictions_path(arguments.file), *truth, *new]
    keep_inputs(inputs, table, out, policy_path(arguments))
    reading, by = reading_of(arguments), column_of(arguments.by)
    refuse_weights([] if role_columns(reading, "sample_weight") else None)
    source = read_source(arguments.file, reading=reading, keep=[by] if by and by not in reading["columns"] else [])
    predictions = source.predictions
    if predictions.table is None or predictions.label is None:
        raise ValueError(
            f"expected logits or probabilities of all classes to build sets, but {arguments.file} has"
            f" {predictions.describe()}"
        )
    policy = open_policy(arguments, predictions)
    base = Policy.of(predictions) if policy is None else policy
    index, rows = base.usable(predictions, "promise", file=arguments.file, seed=arguments.seed)
    given, keys = base.table(predictions), row_keys(predictions)
    keys = np.arange(len(predictions)) if keys is None else keys
    group = None if by is None else predictions.extra[by][index]
    chosen: dict[str, Any] = {name: values[index] for name, values in given.items()}
    rule = conformal_sets(
        **chosen,
        label=predictions.label[index],
        level=arguments.level,
        method=arguments.method,
        per_class=arguments.per_class,
        group=group,
        key=keys[index],
        seed=arguments.seed,
        penalty=arguments.penalty,
        free_rank=arguments.free_rank,
    )
    of, names = by or "group", predictions.class_names
    promise, shortage = rule.promise(of), rule.shortage(of, names)
    own = rule.sets(**chosen, group=group, key=keys[index])
    part = SetsPart.of(rule, rows, by)
    lines = [*set_lines(rule, of, names), size_line(own, "rows of this file"), f"promise     {promise}"]
    lines += [] if shortage is None else [shortage]
    answers = None
    if new:
        unlabelled, answers = new_answers(arguments, reading, base.with_part(part, replace=True))
        assert answers.sets is not None, "the policy has sets"
        lines.append(size_line(answers.sets, "new rows"))
    if policy is not None:
        lines += save_policy(arguments, policy, part)
    if answers is not None and out is not None:
        lines += write_rows(out, unlabelled, {"set": answers.columns()["set"]}, "sets")
    if table:
        sizes = {"calibration": _sizes(own), "new": None if answers is None else _sizes(answers.sets)}
        result = {
            "file": arguments.file,
            "by": by,
            **rule.as_dict(),
            "promise": promise,
            "shortage": shortage,
            **sizes,
        }
        write_atomically(table, json.dumps(result, indent=1))
    print("\n".join([f"read {predictions.describe()}", *source.samples.notes, *lines]))


def _sizes(sets: Any) -> dict[str, Any]:
    sizes = sets.sum(axis=1)
    shares = {"empty": float((sizes == 0).mean()), "single": float((sizes == 1).mean())}
    return {"n": len(sets), "mean_size": float(sizes.mean()), **shares}


SETS = Command(
    "build sets of classes that include the true one with a chosen probability",
    "confrank sets predictions.npz --level 0.9 --method aps --new new.csv --out sets.csv",
    _sets_arguments,
    _sets,
    guide="how-to/guarantees.md",
)

"""Build sets of classes that include the true one with a chosen probability."""

from typing import TYPE_CHECKING, Any, Literal

from confrank.cli.command import Arguments, Command, Parser, add_option, at_least, between_0_and_1
from confrank.cli.group_threshold import column_of, group_values
from confrank.cli.new_rows import add_new, new_answers, new_paths, overlap_notes, write_rows
from confrank.cli.policies import add_policy, json_output, open_policy, save_policy
from confrank.cli.source import add_file, kept, print_read, read_source, reading_of, refuse_weight_column
from confrank.runs.outputs import write_json

if TYPE_CHECKING:
    from confrank.cli.source import Source
    from confrank.decisions import ConformalSets
    from confrank.decisions.policy import Policy
    from confrank.decisions.rows import UsedRows
    from confrank.metrics.arrays import Array
    from confrank.predictions import Predictions

# A copy of the type in `confrank.decisions.nonconformity`, whose import takes longer than help may.
Method = Literal["lac", "aps", "raps"]


def _sets_arguments(parser: Parser) -> None:
    add_file(parser, "labelled predictions on data that the model was not trained on, or a run folder")
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


def _sets(arguments: Arguments) -> None:
    from confrank.decisions.policy import Policy, SetsPart
    from confrank.report.guarantees import set_lines, size_line

    at_least(0, arguments, "seed", "free_rank")
    between_0_and_1(arguments, "level")
    new, out = new_paths(arguments)
    table = json_output(arguments, out, inputs=new)
    reading, by = reading_of(arguments), column_of(arguments.by)
    source = _read(arguments, reading, by)
    print_read(source.predictions, source.samples, policy=arguments.policy)
    policy = open_policy(arguments, source.predictions)
    base = Policy.of(source.predictions) if policy is None else policy
    rule, own, rows = _calibrated(arguments, base, source.predictions, by)
    part, of, names = SetsPart.of(rule, rows, by), by or "group", base.classes
    promise, shortage = rule.promise(of), rule.shortage(of, names)
    lines = [*set_lines(rule, of, names), size_line(own, "calibration row"), f"guarantee   {promise}"]
    lines += [] if shortage is None else [shortage]
    sizes = {"calibration": _sizes(own), "new": None}
    made = base.with_part(part, replace=True)
    answered = new_answers(arguments, reading, made) if new else None
    if answered is not None:
        lines += overlap_notes(made, answered[0])
        sets = answered[1].sets
        assert sets is not None, "the policy has sets"
        lines.append(size_line(sets, "new row"))
        sizes["new"] = _sizes(sets)
    if policy is not None:
        lines += save_policy(arguments, policy, part)
    if answered is not None and out is not None:
        lines += write_rows(out, answered[0], {"set": answered[1].columns()["set"]}, "sets")
    result = {"file": arguments.file, "by": by, **rule.as_dict(), "promise": promise, "shortage": shortage}
    write_json(table, {**result, **sizes})
    print("\n".join(lines))


def _read(arguments: Arguments, reading: dict[str, Any], by: str | None) -> "Source":
    """The labelled file, which must have a table of all classes."""
    refuse_weight_column(reading)
    source = read_source(arguments.file, reading=reading, keep=kept(reading, by))
    if source.predictions.table is None or source.predictions.label is None:
        raise ValueError(
            f"expected logits or probabilities of all classes to build sets, but {arguments.file} has"
            f" {source.predictions.describe()}"
        )
    return source


def _calibrated(
    arguments: Arguments, base: "Policy", predictions: "Predictions", by: str | None
) -> "tuple[ConformalSets, Array, UsedRows]":
    """The rule for sets, the sets [m, K] of the rows it rests on, and the record of these rows."""
    from confrank.decisions import conformal_sets
    from confrank.decisions.policy_apply import row_keys

    index, rows = base.usable(predictions, "promise", file=arguments.file, seed=arguments.seed)
    known = base.matched(predictions)  # with the classes in the order of the policy
    assert known.label is not None, "the file has labels"
    keys = row_keys(known)
    common: dict[str, Any] = {name: values[index] for name, values in base.table(known).items()}
    common["key"] = None if keys is None else keys[index]
    common["group"] = None if by is None else group_values(known, by)[index]
    rule = conformal_sets(
        **common,
        label=known.label[index],
        level=arguments.level,
        method=arguments.method,
        per_class=arguments.per_class,
        seed=arguments.seed,
        penalty=arguments.penalty,
        free_rank=arguments.free_rank,
    )
    return rule, rule.sets(**common), rows


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

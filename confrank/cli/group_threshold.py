"""Choose a threshold for each group or predicted class."""

from typing import TYPE_CHECKING, Any

from confrank.cli.command import Arguments, Parser, add_option, between_0_and_1, listed
from confrank.cli.policies import json_output, open_policy, ranked_by, save_policy
from confrank.cli.source import kept, print_read, read_source, reading_of, refuse_weight_column
from confrank.errors import InputError, counted, sentence
from confrank.runs.outputs import write_json

if TYPE_CHECKING:
    from confrank.decisions import GroupThresholds, OperatingPoint
    from confrank.decisions.conformal import Per
    from confrank.decisions.policy import Policy, ThresholdPart
    from confrank.decisions.rows import UsedRows
    from confrank.metrics import Samples
    from confrank.metrics.arrays import Array
    from confrank.predictions import Predictions

CLASS = "predicted class"


def add_groups(parser: Parser) -> None:
    """Add the flags that `is_grouped` and `group_threshold` read."""
    groups = parser.add_argument_group("groups and classes")
    add_option(groups, "--by", str, "COLUMN", "a threshold for each value of this column, with --risk for each")
    groups.add_argument("--per-class", action="store_true", help="a threshold for each predicted class")


def is_grouped(arguments: Arguments) -> bool:
    return arguments.by is not None or arguments.per_class


def group_threshold(arguments: Arguments) -> None:
    """`confrank threshold` with --by or --per-class."""
    from confrank.decisions import group_thresholds
    from confrank.decisions.guarantee import refuse_weights
    from confrank.report.guarantees import group_shortage_lines, group_threshold_lines

    _check_flags(arguments)
    between_0_and_1(arguments, "risk", "delta")
    table = json_output(arguments)
    reading, by = reading_of(arguments), column_of(arguments.by)
    refuse_weights(arguments.sample_weight)
    refuse_weight_column(reading)
    source = read_source(arguments.file, reading=reading, keep=kept(reading, by))
    predictions, samples = source.predictions, source.samples
    print_read(predictions, samples, policy=arguments.policy)
    policy = open_policy(arguments, predictions)
    rows, others, used = _rows(arguments, policy, predictions)
    if policy is not None:
        predictions = policy.matched(predictions)  # with the classes in the order of the policy
        samples = ranked_by(policy, predictions, samples)
    names = (policy and policy.classes) or class_names(predictions, samples)
    groups = _groups(predictions, samples, by, names)
    chosen = samples.select(rows)
    result = group_thresholds(chosen.confidence, chosen.correct, groups[rows], arguments.risk, arguments.delta)
    checks = {} if others is None else _checks(result, samples.select(others), groups[others])
    of = by or CLASS
    promise, shortage = result.promise(of), group_shortage_lines(result, of)
    if all(one.point is None for one in result.groups):
        hopeless = all(one.needed is None for one in result.groups)
        more = "a model with fewer wrong" if hopeless else "more validation"
        raise InputError(
            f"expected error rates that can be certified with {counted(len(rows), 'prediction')}, but got"
            f" {arguments.risk:g}: {'; '.join(shortage)}",
            f"use {more} predictions, or a higher {{risk}}",
        )
    lines = [*group_threshold_lines(result, of, checks), f"guarantee   {promise}", *shortage]
    if policy is not None:
        lines += save_policy(arguments, policy, _part(result, by, used, promise))
    asked = {"file": arguments.file, "by": by, "per_class": arguments.per_class}
    check = {name: point.as_dict() for name, point in checks.items()} or None
    write_json(table, {**asked, **result.as_dict(), "promise": promise, "check": check})
    print("\n".join(lines))


def _rows(
    arguments: Arguments, policy: "Policy | None", predictions: "Predictions"
) -> "tuple[Array, Array | None, UsedRows | None]":
    """The rows to choose on, those to check on, and the record for the policy."""
    import numpy as np

    from confrank.decisions import random_split

    if policy is not None:
        index, used = policy.usable(predictions, "promise", file=arguments.file, seed=arguments.seed)
        return index, None, used
    if arguments.split is None:
        return np.arange(len(predictions)), None, None
    return *random_split(len(predictions), arguments.split, arguments.seed), None


def _part(result: "GroupThresholds", by: str | None, used: "UsedRows | None", promise: str) -> "ThresholdPart":
    """The thresholds as a part of a policy."""
    from confrank.decisions.policy import ThresholdPart

    counts = {one.group: one.as_dict() for one in result.groups}
    settings = {"method": "learn-then-test", "risk": result.risk, "delta": result.delta, "groups": counts}
    per: Per = "class" if by is None else "group"
    return ThresholdPart(None, used, sentence(promise), per, by, result.thresholds, settings)


def _check_flags(arguments: Arguments) -> None:
    if arguments.risk is None or arguments.coverage is not None:
        flag = "--per-class" if arguments.by is None else "--by"
        raise ValueError(
            f"expected --risk with {flag}, but got {'none' if arguments.coverage is None else '--coverage'}"
        )
    if arguments.by is not None and arguments.per_class:
        raise ValueError("expected either --by or --per-class, but got both")
    if arguments.policy is not None and arguments.split is not None:
        raise ValueError("expected either --split or --policy, but got both; a policy is checked by confrank monitor")


def column_of(by: str | None) -> str | None:
    """The one column of --by."""
    columns = listed(by)
    if len(columns) > 1:
        raise ValueError(f"expected one column for --by, but got {by!r}; combine the columns into one in the file")
    return columns[0] if columns else None


def group_values(predictions: "Predictions", by: str) -> "Array":
    """The column of --by [n]; an error that names it if it has too many values."""
    from confrank.metrics.groups import rows_by_group

    rows_by_group(predictions.extra[by], by)
    return predictions.extra[by]


def class_names(predictions: "Predictions", samples: "Samples") -> list[str] | None:
    """The names of the classes, or their numbers as text; None if the file has no classes."""
    if predictions.class_names:
        return predictions.class_names
    numbers = [values.max() for values in (samples.prediction, samples.label) if values is not None and len(values)]
    return [str(number) for number in range(1 + int(max(numbers)))] if numbers else None


def _groups(predictions: "Predictions", samples: "Samples", by: str | None, names: list[str] | None) -> "Array":
    """The group of each row [n]."""
    import numpy as np

    if by is not None:
        return group_values(predictions, by)
    if samples.prediction is None or names is None:
        raise ValueError(
            "expected predicted classes with --per-class, but the file has confidence and correct only;"
            " name the column with --columns, as in prediction=COLUMN"
        )
    return np.array(names, dtype=object)[samples.prediction]


def _checks(result: "GroupThresholds", samples: "Samples", groups: "Array") -> "dict[str, OperatingPoint]":
    """What the thresholds do to other rows, by group."""
    from confrank.decisions import measured_at
    from confrank.metrics.groups import rows_by_group

    points: dict[str, Any] = {}
    for name, rows in rows_by_group(groups).items():
        threshold = result.thresholds.get(name)
        if threshold is not None:
            points[name] = measured_at(samples.confidence[rows], samples.correct[rows], threshold)
    return points

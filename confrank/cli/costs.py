"""A threshold of least cost: what `confrank threshold` does with costs of an error and of a rejection."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confrank.cli.command import Arguments, Parser, add_option, at_least
from confrank.cli.policies import json_output, open_policy, save_policy, unseen_samples
from confrank.cli.source import confidence_rule, print_read, read_weighted, temperature_of
from confrank.errors import counted, flag_of
from confrank.runs.outputs import write_json

if TYPE_CHECKING:
    from confrank.decisions import CostThreshold
    from confrank.decisions.policy import ThresholdPart
    from confrank.decisions.rows import UsedRows
    from confrank.metrics import Samples

FOLDS = 5


def add_costs(parser: Parser) -> None:
    """Add the flags that give costs, for `choose_by_cost`."""
    costs = parser.add_argument_group("costs")
    add_option(costs, "--cost-error", float, "X", "cost of an accepted error, for the threshold of least cost")
    add_option(costs, "--cost-reject", float, "X", "cost of a rejected prediction")
    table = "costs of errors by class: columns label (the true class), prediction or both, and cost (.csv, .json)"
    add_option(costs, "--cost-table", str, "FILE", table)
    folds = f"folds to measure the cost: each with the threshold of the others (default: {FOLDS}; --split uses none)"
    add_option(costs, "--folds", int, "N", folds)


def has_costs(arguments: Arguments) -> bool:
    """Whether a flag asks for the threshold of least cost; an error if another one asks for something else."""
    given = [name for name in ("cost_error", "cost_reject", "cost_table") if getattr(arguments, name) is not None]
    if not given:
        if arguments.folds is not None:
            raise ValueError("expected --folds with --cost-error and --cost-reject, but got neither")
        return False
    for name in ("risk", "coverage"):
        if getattr(arguments, name) is not None:
            raise ValueError(f"expected --{name} or costs, but got both; leave out {flag_of(given[0])}")
    if arguments.cost_reject is None or given == ["cost_reject"]:
        raise ValueError(
            f"expected --cost-reject with --cost-error or --cost-table, but got {flag_of(given[0])} alone"
        )
    return True


def choose_by_cost(arguments: Arguments) -> None:
    """Print the threshold of least cost and what it costs on rows that did not choose it."""
    from confrank.decisions import OperatingPoint
    from confrank.report.decision import classifier_lines, cost_lines

    at_least(2, arguments, "folds")
    out = json_output(arguments, inputs=[arguments.cost_table])
    predictions, samples = read_weighted(arguments)
    print_read(predictions, samples, guarantees=False)
    policy = open_policy(arguments, predictions)
    if policy is not None:
        samples, used = unseen_samples(arguments, policy, predictions, samples)
    rule, checked = _chosen(arguments, samples, _error_costs(arguments, samples, predictions.class_names))
    name, averaged = confidence_rule(predictions)
    temperature = temperature_of(predictions, arguments.file)
    lines = cost_lines(rule, checked, arguments.cost_error)
    if rule.held_out is None:
        lines.append(f"new rows    not measured: {counted(len(samples), 'row')} cannot be split into folds")
    point = OperatingPoint(rule.threshold, rule.accepted, rule.wrong, rule.num_samples)
    if policy is not None:
        lines += save_policy(arguments, policy, _part(arguments, rule, used))
    elif not math.isinf(rule.threshold):
        lines += classifier_lines(point, name, temperature, averaged=averaged)
    shares = {"coverage": point.coverage, "risk": point.risk}
    how = {"confidence": name, "temperature": temperature and float(temperature), "cost_table": arguments.cost_table}
    write_json(out, {"file": arguments.file, **how, **rule.as_dict(), **shares})
    print("\n".join(lines))


def _part(arguments: Arguments, rule: "CostThreshold", rows: "UsedRows") -> "ThresholdPart":
    """The threshold as a part of a policy."""
    from confrank.decisions.policy import ThresholdPart

    table = None if arguments.cost_table is None else Path(arguments.cost_table).name
    values = {name: value for name, value in rule.as_dict().items() if name != "num_samples"}
    return ThresholdPart(values.pop("threshold"), rows, settings={"method": "cost", "cost_table": table, **values})


def _error_costs(arguments: Arguments, samples: "Samples", class_names: list[str] | None) -> Any:
    """One cost of an error, or that of each row. [n]"""
    from confrank.decisions import error_costs, read_cost_table

    if arguments.cost_table is None:
        return arguments.cost_error
    table = read_cost_table(arguments.cost_table)
    if samples.label is None or samples.prediction is None:
        raise ValueError(
            f"expected labels and predictions for --cost-table, but {arguments.file} has none; use --cost-error alone"
        )
    return error_costs(
        table, samples.label, samples.prediction, class_names=class_names, default=arguments.cost_error
    )


def _chosen(arguments: Arguments, samples: "Samples", errors: Any) -> tuple["CostThreshold", str]:
    """The threshold, and how its cost on other rows was measured."""
    from confrank.decisions import cost_at, cost_threshold, random_split

    costs = {"cost_error": errors, "cost_reject": arguments.cost_reject}
    if arguments.split is None:
        folds = FOLDS if arguments.folds is None else arguments.folds
        rule = cost_threshold(
            samples.confidence,
            samples.correct,
            **costs,
            sample_weight=samples.weight,
            folds=folds,
            seed=arguments.seed,
        )
        return rule, f"each of {min(folds, len(samples))} folds with the threshold that the others choose"
    if arguments.folds is not None:
        raise ValueError("expected --split or --folds, but got both")
    rows, others = random_split(len(samples), arguments.split, arguments.seed)
    chosen, rest = (
        (samples.select(part), costs | {"cost_error": errors if arguments.cost_table is None else errors[part]})
        for part in (rows, others)
    )
    rule = cost_threshold(
        chosen[0].confidence, chosen[0].correct, **chosen[1], sample_weight=chosen[0].weight, folds=0
    )
    held_out = cost_at(rest[0].confidence, rest[0].correct, rule.threshold, **rest[1], sample_weight=rest[0].weight)
    return replace(rule, held_out=held_out), f"on {len(others):,} rows set aside"

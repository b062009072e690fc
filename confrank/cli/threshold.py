"""Choose a confidence threshold for accepting answers."""

from typing import TYPE_CHECKING

from confrank.cli.command import Arguments, Command, Parser, add_option, at_least, between_0_and_1
from confrank.cli.costs import add_costs, choose_by_cost, has_costs
from confrank.cli.group_threshold import add_groups, group_threshold, is_grouped
from confrank.cli.policies import add_policy, json_output, open_policy, save_policy, unseen_samples
from confrank.cli.source import add_file, confidence_rule, print_read, read_weighted, temperature_of
from confrank.runs.outputs import write_json

if TYPE_CHECKING:
    from confrank.decisions import OperatingPoint
    from confrank.decisions.policy import ThresholdPart
    from confrank.decisions.rows import UsedRows
    from confrank.metrics import Samples


def _threshold_arguments(parser: Parser) -> None:
    add_file(parser, "predictions on data that the model was not trained on, or a run folder")
    threshold = parser.add_argument_group("threshold")
    add_option(threshold, "--risk", float, "SHARE", "error rate among accepted predictions to guarantee")
    add_option(threshold, "--delta", float, "SHARE", "largest probability that the guarantee does not hold", 0.001)
    add_option(threshold, "--coverage", float, "SHARE", "share of predictions to accept, instead of --risk")
    weight = "weight of each row, for --coverage and costs; a guarantee takes none"
    add_option(threshold, "--sample-weight", str, "COLUMN", weight)
    add_groups(parser)
    add_costs(parser)
    check = parser.add_argument_group("check")
    split = "share of the rows to check the threshold on; it is chosen on the others"
    add_option(check, "--split", float, "SHARE", split)
    add_option(check, "--seed", int, "N", "seed of the split", 0)
    add_policy(parser)
    add_option(parser.add_argument_group("output"), "--json", str, "FILE", "write the numbers to this file (.json)")


def _threshold(arguments: Arguments) -> None:
    at_least(0, arguments, "seed")
    costs = has_costs(arguments)  # refuses --risk with costs
    if is_grouped(arguments):
        group_threshold(arguments)
    elif costs:
        choose_by_cost(arguments)
    else:
        _one_threshold(arguments)


def _one_threshold(arguments: Arguments) -> None:
    """A threshold for all answers, by --risk or --coverage."""
    from confrank.decisions import measured_at, random_split
    from confrank.report.decision import check_lines, classifier_lines, threshold_lines

    _check_request(arguments)
    table = json_output(arguments)
    predictions, samples = read_weighted(arguments)
    print_read(predictions, samples, guarantees=arguments.risk is not None, policy=arguments.policy)
    others, policy = None, open_policy(arguments, predictions)
    if policy is not None:
        samples, rows = unseen_samples(arguments, policy, predictions, samples)
    if arguments.split is not None:
        chosen, other_rows = random_split(len(samples), arguments.split, arguments.seed)
        samples, others = samples.select(chosen), samples.select(other_rows)
    point = _point(arguments, samples)
    name, averaged = confidence_rule(predictions)
    name = None if policy is not None and policy.score is not None else name
    temperature = temperature_of(predictions, arguments.file)
    check = None if others is None else measured_at(others.confidence, others.correct, point.threshold)
    lines = threshold_lines(point, arguments.risk, arguments.delta)
    if policy is None:
        lines += classifier_lines(point, name, temperature, averaged=averaged)
    lines += [] if check is None else check_lines(check, arguments.risk)
    if policy is not None:
        lines += save_policy(arguments, policy, _part(arguments, point, rows, len(samples)))
    asked = {"requested_risk": arguments.risk, "delta": arguments.delta, "requested_coverage": arguments.coverage}
    rule = {"confidence": name, "temperature": temperature and float(temperature)}
    result = {"file": arguments.file, **asked, **rule, **point.as_dict(), "check": check and check.as_dict()}
    write_json(table, result)
    print("\n".join(lines))


def _check_request(arguments: Arguments) -> None:
    if arguments.risk is not None and arguments.coverage is not None:
        raise ValueError("expected either --risk or --coverage, but got both")
    if arguments.risk is None and arguments.coverage is None:
        raise ValueError(
            "expected --risk, --coverage, or --cost-error with --cost-reject, but got none of them; try --risk 0.05"
        )
    between_0_and_1(arguments, "risk", "delta")


def _point(arguments: Arguments, samples: "Samples") -> "OperatingPoint":
    """The threshold that guarantees --risk, or has --coverage."""
    from confrank.decisions import guaranteed_threshold, threshold_for_coverage

    values = samples.confidence, samples.correct
    if arguments.risk is None:
        return threshold_for_coverage(*values, arguments.coverage, sample_weight=samples.weight)
    return guaranteed_threshold(*values, arguments.risk, delta=arguments.delta, sample_weight=samples.weight)


def _part(arguments: Arguments, point: "OperatingPoint", rows: "UsedRows", num_samples: int) -> "ThresholdPart":
    """The threshold as a part of a policy."""
    from confrank.decisions.policy import ThresholdPart
    from confrank.decisions.policy_words import risk_promise

    promise = "" if arguments.risk is None else risk_promise(arguments.risk, arguments.delta, num_samples)
    asked = {"risk": arguments.risk, "delta": arguments.delta, "coverage": arguments.coverage}
    settings = {**asked, "bound": point.bound, "accepted": point.accepted, "wrong": point.wrong}
    return ThresholdPart(point.threshold, rows, promise, settings=settings)


THRESHOLD = Command(
    "choose a confidence threshold with a guaranteed error rate, or of least cost",
    "confrank threshold predictions.npz --risk 0.01 --delta 0.001",
    _threshold_arguments,
    _threshold,
    guide="how-to/threshold.md",
)

"""From predictions to a decision: a threshold, a temperature."""

import json
import math
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from confrank.cli.command import Command, at_least, make_console, say
from confrank.cli.paths import json_path, keep_inputs, safetensors_path
from confrank.cli.source import predictions_path, read_source

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

    from confrank.predictions import Predictions


def _threshold_arguments(parser: "ArgumentParser") -> None:
    parser.add_argument("file", type=str, help="predictions that the model was not trained on, or a run folder")
    parser.add_argument("--risk", type=float | None, default=None, help="error rate to guarantee among the accepted")
    parser.add_argument("--delta", type=float, default=0.001, help="the guarantee holds with probability 1 - delta")
    parser.add_argument("--coverage", type=float | None, default=None, help="share to accept, instead of a risk")
    parser.add_argument(
        "--split", type=float | None, default=None, help="share of the rows kept aside to check it on"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the split")
    parser.add_argument("--json", type=str | None, default=None, help="write the numbers to this file")


def _rule(predictions: "Predictions") -> tuple[str | None, bool]:
    """The confidence that ranks, where it is known by name, and whether it is that of an average."""
    from confrank.config import AES, is_ensemble
    from confrank.methods import METHODS

    told = predictions.metadata
    name = told.get("method", "")
    method = METHODS.get(name)
    if "members" in told or name in AES or is_ensemble(name) or (method is not None and method.stochastic):
        return None, True
    if predictions.table is not None and predictions.confidence is None:
        return "max_probability", False
    return None if method is None else method.confidence, False


def _temperature(predictions: "Predictions", file: str) -> str | None:
    """The temperature that a file says it was divided by already, as written there."""
    told = predictions.metadata.get("temperature")
    if told is None:
        return None
    try:
        if 0 < float(told) < math.inf:
            return told
    except ValueError:
        pass
    raise ValueError(f"expected the temperature told in {file} to be a positive number, but got {told[:80]!r}")


def _threshold(arguments: "Namespace") -> None:
    from confrank.files import write_atomically
    from confrank.report.decision import check_lines, classifier_lines, threshold_lines
    from confrank.selective import guaranteed_threshold, measured_at, random_split, threshold_for_coverage

    at_least(0, arguments, "seed")
    if (arguments.risk is None) == (arguments.coverage is None):
        raise ValueError(
            "expected either --risk or --coverage, but got " + ("neither" if arguments.risk is None else "both")
        )
    table = json_path(arguments.json)
    keep_inputs([arguments.file, predictions_path(arguments.file)], table)
    source = read_source(arguments.file)
    predictions, samples = source.predictions, source.samples
    print("\n".join([f"read {predictions.describe()}", *samples.notes]))
    kept = None
    if arguments.split is not None:
        rows, kept_rows = random_split(len(samples), arguments.split, arguments.seed)
        samples, kept = samples.select(rows), samples.select(kept_rows)
    if arguments.risk is not None:
        point = guaranteed_threshold(samples.confidence, samples.correct, arguments.risk, arguments.delta)
    else:
        point = threshold_for_coverage(samples.confidence, samples.correct, arguments.coverage)
    name, averaged = _rule(predictions)
    temperature = _temperature(predictions, arguments.file)
    check = None if kept is None else measured_at(point.threshold, kept.confidence, kept.correct)
    lines = threshold_lines(point, arguments.risk, arguments.delta)
    lines += classifier_lines(point, name, temperature, averaged=averaged)
    lines += [] if check is None else check_lines(check, arguments.risk)
    if table:
        asked = {"requested_risk": arguments.risk, "delta": arguments.delta, "requested_coverage": arguments.coverage}
        rule = {"confidence": name, "temperature": temperature and float(temperature)}
        result = {"file": arguments.file, **asked, **rule, **point.as_dict(), "check": check and check.as_dict()}
        write_atomically(table, json.dumps(result, indent=1))
    print("\n".join(lines))


def _calibrate_arguments(parser: "ArgumentParser") -> None:
    parser.add_argument(
        "file", type=str, help="predictions with logits or probabilities of all classes, or a run folder"
    )
    parser.add_argument("--split", type=float, default=0.5, help="share of the rows kept aside for the metrics")
    parser.add_argument("--seed", type=int, default=0, help="seed of the split")
    parser.add_argument("--out", type=str | None, default=None, help="write all rows, calibrated (.safetensors)")
    parser.add_argument("--json", type=str | None, default=None, help="write the numbers to this file")


def _calibrate(arguments: "Namespace") -> None:
    from confrank.files import write_atomically
    from confrank.metrics import evaluation_of, sample_values
    from confrank.predictions import Predictions, save_predictions
    from confrank.report.decision import temperature_line, worse_lines
    from confrank.report.table import evaluation_table
    from confrank.report.verdict import footnotes
    from confrank.selective import fit_temperature, random_split, scaled_logits
    from confrank.selective.temperature import as_logits

    at_least(0, arguments, "seed")
    out, table = safetensors_path(arguments.out), json_path(arguments.json)
    keep_inputs([arguments.file, predictions_path(arguments.file)], out, table)
    source = read_source(arguments.file)
    predictions = source.predictions
    if predictions.table is None or predictions.label is None:
        raise ValueError(
            f"expected logits or probabilities of all classes to calibrate, but {arguments.file} has"
            f" {predictions.describe()}"
        )
    label, samples, told_temperature = predictions.label, source.samples, _temperature(predictions, arguments.file)
    assert samples.probability is not None, "there is a table"
    logits, notes = as_logits(logits=predictions.logits, probabilities=predictions.probabilities)
    rows, kept = random_split(len(label), arguments.split, arguments.seed)
    temperature = fit_temperature(logits[rows], label[rows])
    scaled = scaled_logits(logits, temperature)
    evaluations = {
        "before": evaluation_of(replace(samples, confidence=samples.probability).select(kept)),
        "after": evaluation_of(sample_values(logits=scaled[kept], label=label[kept])),
    }
    if table:
        metrics = {name: evaluation.as_dict() for name, evaluation in evaluations.items()}
        result = {"file": arguments.file, "temperature": temperature, "num_fitted": len(rows), **metrics}
        write_atomically(table, json.dumps(result, indent=1))
    if out is not None:
        told = {key: value for key, value in predictions.metadata.items() if key != "binary"}  # both classes now
        metadata = {**told, "temperature": repr(temperature * float(told_temperature or 1))}
        kept_as_read = {name: getattr(predictions, name) for name in ("label", "index", "key", "other_keys")}
        save_predictions(out, Predictions(logits=scaled, **kept_as_read, metadata=metadata))
    console = make_console()
    for line in (
        f"read {predictions.describe()}",
        *notes,
        temperature_line(temperature, len(rows), len(kept)),
    ):
        say(console, line)
    console.print(evaluation_table(evaluations))
    for line in [*footnotes(evaluations.items()), "both rank by the largest probability"]:
        say(console, line, style="dim")
    if out is not None:
        say(console, f"calibrated predictions: {out}")
    for line in worse_lines(evaluations["before"], evaluations["after"]):
        print(line, file=sys.stderr)


THRESHOLD = Command(
    "choose the confidence from which answers are accepted, with a guaranteed error rate",
    "confrank threshold predictions.npz --risk 0.01 --delta 0.001",
    _threshold_arguments,
    _threshold,
)


CALIBRATE = Command(
    "fit a temperature to predictions and measure what it changes",
    "confrank calibrate predictions.npz --out calibrated.safetensors",
    _calibrate_arguments,
    _calibrate,
)

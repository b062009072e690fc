"""Calibrate probabilities or confidences, and measure the effect."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from confrank.cli.command import Arguments, Command, Parser, add_option, at_least
from confrank.cli.policies import add_design_policy, json_output, open_policy, ranked_by, save_policy, uses_all_rows
from confrank.cli.source import add_file, read_source, reading_of, temperature_of
from confrank.cli.terminal import make_console, say, working
from confrank.runs.outputs import calibrated_path, write_json

if TYPE_CHECKING:
    from confrank.decisions import Calibrator
    from confrank.decisions.calibration_check import CheckedCalibration
    from confrank.decisions.policy import Policy
    from confrank.metrics import Samples
    from confrank.metrics.arrays import Floats
    from confrank.predictions import Predictions

Method = Literal["temperature", "isotonic"]
FOLDS = 5


def _calibrate_arguments(parser: Parser) -> None:
    add_file(parser, "predictions, or a run folder")
    fit = parser.add_argument_group("fit")
    method = "temperature calibrates the logits of all classes; isotonic the confidence of the predicted class"
    add_option(fit, "--method", Method, "NAME", method, "temperature")
    folds = f"measure each fold with a fit to the others; the result is a fit to all rows (default: {FOLDS})"
    add_option(fit, "--folds", int, "N", folds)
    split = "instead of folds, share of the rows to measure on; the result is a fit to the others"
    add_option(fit, "--split", float, "SHARE", split)
    add_option(fit, "--seed", int, "N", "seed of folds and split", 0)
    add_design_policy(parser)
    output = parser.add_argument_group("output")
    add_option(output, "--out", str, "FILE", "write all rows, calibrated (.safetensors, .csv)")
    add_option(output, "--json", str, "FILE", "write the numbers to this file (.json)")


def _calibrate(arguments: Arguments) -> None:
    from confrank.decisions.calibration_check import calibrator_inputs, checked_calibration
    from confrank.decisions.policy import CalibratorPart
    from confrank.metrics.proper import probabilities_of
    from confrank.predictions import save_predictions

    _check(arguments)
    every = uses_all_rows(arguments)
    out = calibrated_path(arguments.out)
    table = json_output(arguments, out)
    source = read_source(arguments.file, reading=reading_of(arguments))
    _check_table(arguments, source.predictions)
    earlier = temperature_of(source.predictions, arguments.file)
    policy = open_policy(arguments, source.predictions)
    predictions, samples = _seen_by(policy, source.predictions, source.samples, arguments.method)
    tables = {name: each for name in ("logits", "probabilities") if (each := getattr(predictions, name)) is not None}
    chosen, rows = samples, None
    part_tables = tables
    if policy is not None:
        index, rows = policy.usable(predictions, "design", file=arguments.file, seed=arguments.seed, every=every)
        chosen, part_tables = samples.select(index), {name: each[index] for name, each in tables.items()}
    with working("fitting the calibrator, and measuring it on rows that it was not fitted to"):
        checked = checked_calibration(
            arguments.method, chosen, **part_tables, folds=arguments.folds or FOLDS, split=arguments.split,
            seed=arguments.seed,
        )  # fmt: skip
    calibrator, written = checked.calibrator, list[str]()
    if policy is not None:
        part = CalibratorPart(calibrator.method, calibrator.parameters, rows, settings=checked.errors)
        written = save_policy(arguments, policy, part)
    write_json(table, {"file": arguments.file, **checked.as_dict()})
    if out is not None:
        inputs = calibrator_inputs(arguments.method, samples, **tables)
        values = calibrator.apply(**{name: inputs[name] for name in inputs if name not in ("label", "correct")})
        result = _calibrated(predictions, samples, values, _metadata(calibrator, earlier))
        if out.suffix == ".csv" and result.logits is not None and predictions.logits is None:
            result = replace(result, logits=None, probabilities=probabilities_of(result.logits))
        save_predictions(out, result)
        written.insert(0, f"calibrated predictions: {out}")
    _show(checked, f"read {predictions.describe()}", written)


def _check(arguments: Arguments) -> None:
    at_least(0, arguments, "seed")
    at_least(2, arguments, "folds")
    if arguments.folds is not None and arguments.split is not None:
        raise ValueError("expected --split or --folds, but got both")


def _check_table(arguments: Arguments, predictions: "Predictions") -> None:
    if arguments.method == "temperature" and (predictions.table is None or predictions.label is None):
        raise ValueError(
            f"expected logits or probabilities of all classes to calibrate, but {arguments.file} has"
            f" {predictions.describe()}; use --method isotonic"
        )


def _seen_by(
    policy: "Policy | None", predictions: "Predictions", samples: "Samples", method: str
) -> tuple["Predictions", "Samples"]:
    """The predictions in the order of the policy's classes, and the samples after its earlier parts."""
    from confrank.metrics import sample_values

    if policy is None:
        return predictions, samples
    predictions = policy.matched(predictions)
    samples = sample_values(**predictions.evaluation_inputs())
    if method == "temperature":
        return predictions, samples
    return predictions, ranked_by(replace(policy, confidence_calibrator=None), predictions, samples)


def _calibrated(
    predictions: "Predictions", samples: "Samples", values: "Floats", metadata: dict[str, str]
) -> "Predictions":
    """The predictions with calibrated logits [n, K], or with a calibrated confidence [n] instead of a table."""
    # Both classes are there now, and a confidence is that of the prediction.
    known = {key: value for key, value in predictions.metadata.items() if key != "binary"} | metadata
    changes: dict[str, Any] = dict.fromkeys(("logits", "probabilities", "confidence", "correct", "prediction"))
    if values.ndim == 2:
        is_given = predictions.prediction is not None or predictions.correct is not None
        changes |= {"logits": values, "prediction": samples.prediction if is_given else None}
    elif samples.label is None or samples.prediction is None:
        changes |= {"confidence": values, "correct": samples.correct, "label": None}
    else:
        changes |= {"confidence": values, "prediction": samples.prediction}
    return replace(predictions, **changes, metadata=known)


def _metadata(calibrator: "Calibrator", earlier: str | None) -> dict[str, str]:
    """What the calibrated predictions say about themselves; temperatures multiply."""
    if calibrator.method != "temperature":
        return {"calibrator": calibrator.method}
    return {"temperature": repr(calibrator.parameters["temperature"] * float(earlier or 1))}


def _show(checked: "CheckedCalibration", read: str, written: list[str]) -> None:
    from confrank.report.decision import calibration_rows, calibrator_line, worse_lines
    from confrank.report.table import evaluation_table
    from confrank.report.verdict import footnotes

    console = make_console()
    say(console, read, *checked.calibrator.notes, calibrator_line(checked))
    console.print(evaluation_table(checked.evaluations, more=calibration_rows(checked.errors)))
    ranking = "largest probability" if checked.calibrator.acts_on_table else "confidence"
    say(console, *footnotes(checked.evaluations.items()), f"both columns rank by the {ranking}", style="dim")
    say(console, *written)
    for line in worse_lines(checked):
        print(line, file=sys.stderr)


CALIBRATE = Command(
    "calibrate probabilities or confidences, and measure the effect",
    "confrank calibrate predictions.npz --out calibrated.safetensors",
    _calibrate_arguments,
    _calibrate,
    guide="how-to/calibrate.md",
)

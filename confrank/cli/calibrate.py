"""Calibrate predictions with a temperature and measure what it changes."""

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from confrank.cli.command import Command, add_option, at_least, make_console, say
from confrank.cli.paths import json_path, keep_inputs, safetensors_path
from confrank.cli.source import add_reading, predictions_path, read_source, reading_of, temperature_of

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace


def _calibrate_arguments(parser: "ArgumentParser") -> None:
    file = "predictions with logits or probabilities of all classes, or a run folder"
    parser.add_argument("file", type=str, metavar="FILE", help=file)
    add_reading(parser)
    fit = parser.add_argument_group("fit")
    split = "share of the rows to measure on; the temperature is fitted to the others"
    add_option(fit, "--split", float, "SHARE", split, 0.5)
    add_option(fit, "--seed", int, "N", "seed of the split", 0)
    output = parser.add_argument_group("output")
    add_option(output, "--out", str, "FILE", "write all rows, calibrated (.safetensors)")
    add_option(output, "--json", str, "FILE", "write the numbers to this file (.json)")


def _calibrate(arguments: "Namespace") -> None:
    from confrank.atomic import write_atomically
    from confrank.decisions import fit_temperature, random_split, scaled_logits
    from confrank.decisions.temperature import as_logits
    from confrank.metrics import evaluation_of, sample_values
    from confrank.predictions import Predictions, save_predictions
    from confrank.report.decision import temperature_line, worse_lines
    from confrank.report.table import evaluation_table
    from confrank.report.verdict import footnotes

    at_least(0, arguments, "seed")
    out, table = safetensors_path(arguments.out), json_path(arguments.json)
    truth = [] if arguments.truth is None else [arguments.truth]
    keep_inputs([arguments.file, predictions_path(arguments.file), *truth], out, table)
    source = read_source(arguments.file, reading=reading_of(arguments))
    predictions = source.predictions
    if predictions.table is None or predictions.label is None:
        raise ValueError(
            f"expected logits or probabilities of all classes to calibrate, but {arguments.file} has"
            f" {predictions.describe()}"
        )
    label, samples, earlier = predictions.label, source.samples, temperature_of(predictions, arguments.file)
    assert samples.probability is not None, "there is a table"
    logits, notes = as_logits(logits=predictions.logits, probabilities=predictions.probabilities)
    rows, others = random_split(len(label), arguments.split, arguments.seed)
    temperature = fit_temperature(logits[rows], label[rows])
    scaled = scaled_logits(logits, temperature)
    evaluations = {
        "before": evaluation_of(replace(samples, confidence=samples.probability).select(others)),
        "after": evaluation_of(sample_values(logits=scaled[others], label=label[others])),
    }
    if table:
        metrics = {name: evaluation.as_dict() for name, evaluation in evaluations.items()}
        result = {"file": arguments.file, "temperature": temperature, "num_fitted": len(rows), **metrics}
        write_atomically(table, json.dumps(result, indent=1))
    if out is not None:
        metadata = {key: value for key, value in predictions.metadata.items() if key != "binary"}  # both classes now
        metadata["temperature"] = repr(temperature * float(earlier or 1))
        unchanged = {name: getattr(predictions, name) for name in ("label", "index", "key", "other_keys")}
        save_predictions(out, Predictions(logits=scaled, **unchanged, metadata=metadata))
    console = make_console()
    for line in (
        f"read {predictions.describe()}",
        *notes,
        temperature_line(temperature, len(rows), len(others)),
    ):
        say(console, line)
    console.print(evaluation_table(evaluations))
    for line in [*footnotes(evaluations.items()), "both columns rank by the largest probability"]:
        say(console, line, style="dim")
    if out is not None:
        say(console, f"calibrated predictions: {out}")
    for line in worse_lines(evaluations["before"], evaluations["after"]):
        print(line, file=sys.stderr)


CALIBRATE = Command(
    "calibrate predictions with a temperature, and measure what it changes",
    "confrank calibrate predictions.npz --out calibrated.safetensors",
    _calibrate_arguments,
    _calibrate,
    guide="how-to/threshold-and-calibrate.md",
)

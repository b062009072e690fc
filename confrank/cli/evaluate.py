"""From a file of predictions to numbers, a page, a threshold, a temperature."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confrank.cli.command import Command, add_root, make_console, say
from confrank.cli.paths import folder_path, json_path, keep_inputs, page_path, picture_path, safetensors_path

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace
    from rich.console import Console

    from confrank.metrics import Samples
    from confrank.predictions import Predictions
    from confrank.report.contents import Examined

# Fewer resamples give no 95% interval to speak of, and no p-value below 0.05 with it.
FEWEST_RESAMPLES = 100


def _evaluate_arguments(parser: "ArgumentParser") -> None:
    parser.add_argument(
        "files", type=str, nargs="+", help="predictions (.csv, .parquet, .npz, .npy, .safetensors) or run folders"
    )
    parser.add_argument("--report", type=str | None, default=None, help="write the page to decide by (.html)")
    parser.add_argument("--json", type=str | None, default=None, help="write the numbers to this file")
    parser.add_argument("--figure", type=str | None, default=None, help="draw curves into this .png, .svg or .pdf")
    parser.add_argument(
        "--figures", type=str | None, default=None, help="draw each chart as PNG and SVG in this folder"
    )
    parser.add_argument(
        "--resamples",
        type=int | None,
        default=None,
        help="bootstrap resamples, 100 or more (default: by n; 0: no intervals)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the resamples")
    add_root(parser, ", for pictures of mistakes")


def _evaluate(arguments: "Namespace") -> None:

    from confrank.files import write_atomically

    if arguments.resamples and arguments.resamples < FEWEST_RESAMPLES:
        raise ValueError(
            f"expected --resamples to be at least {FEWEST_RESAMPLES}, or 0 for no intervals, but got"
            f" {arguments.resamples}"
        )
    figure, figures = picture_path(arguments.figure), folder_path(arguments.figures)
    report, table = page_path(arguments.report), json_path(arguments.json)
    keep_inputs([*arguments.files, *map(predictions_path, arguments.files)], figure, report, table)
    loaded: dict[str, Predictions] = {}
    for name in arguments.files:
        # A file may be given twice, e.g. to see that it does not differ from itself.
        loaded[name if name not in loaded else f"{name} ({len(loaded) + 1})"] = load_file(name)
    samples = {name: samples_of(name, predictions) for name, predictions in loaded.items()}
    examined = examine(loaded, samples, arguments.resamples, arguments.seed)
    # Files first: whoever reads the output may stop reading after a few lines.
    written = []
    if figure:
        from confrank.report.contents import short_names
        from confrank.report.plots import comparison_figure

        names = short_names(list(samples))
        comparison_figure({name: [item] for name, item in zip(names, samples.values(), strict=True)}, figure)
        written.append(f"figure: {figure}")
    if table:
        results = [item.as_dict() for item in examined]
        write_atomically(table, json.dumps(results[0] if len(results) == 1 else results, indent=1))
    if figures:
        from confrank.report.plots import paper_figures

        written.append(f"figures: {', '.join(map(str, paper_figures(examined, figures)))}")
    if report:
        written += write_page(examined, loaded, report, arguments.root, arguments.seed)
    console = make_console()
    for name, predictions in loaded.items():
        say(console, f"{name}: read {predictions.describe()}")
    _print_examined(console, examined)
    for line in written:
        say(console, line)


def predictions_path(name: str) -> Path:
    """A file of predictions, or that of a run folder's test split."""
    from confrank.config import RunFolder

    path = Path(name)
    return RunFolder(path).predictions("test") if RunFolder(path).config.exists() else path


def load_file(name: str) -> "Predictions":
    from confrank.predictions import load_predictions

    return load_predictions(predictions_path(name))


def samples_of(name: str, predictions: "Predictions") -> "Samples":
    from confrank.metrics import sample_values

    try:
        return sample_values(**predictions.evaluation_inputs())
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def examine(
    loaded: "dict[str, Predictions]", samples: "dict[str, Samples]", resamples: int | None, seed: int
) -> "list[Examined]":
    from confrank.metrics.intervals import default_resamples
    from confrank.predictions import pairing
    from confrank.report.contents import examine, with_intervals

    examined = []
    for name, predictions in loaded.items():
        parser = predictions.metadata.get("parser")
        source = predictions.describe() + (f", parsed {parser}" if parser else "")
        examined.append(examine(name, samples[name], source, predictions.class_names))
    first = next(iter(loaded.values()))
    pairings = [pairing(first, predictions) for predictions in loaded.values()]
    counts = [default_resamples(len(item)) if resamples is None else resamples for item in samples.values()]
    return with_intervals(examined, list(samples.values()), pairings, counts, seed)


def _print_examined(console: "Console", examined: "list[Examined]") -> None:
    from confrank.report.table import difference_table, evaluation_table, footnotes, interval_note
    from confrank.report.verdict import comparisons

    evaluations = {item.name: item.evaluation for item in examined}
    console.print(evaluation_table(evaluations, {item.name: item.intervals for item in examined}))
    differences = {item.name: item.differences for item in examined if item.differences}
    if differences:
        console.print(difference_table(differences, examined[0].name))
    for line in [*comparisons(examined), *footnotes(evaluations), interval_note(examined)]:
        say(console, line, style="dim")


def write_page(
    examined: "list[Examined]", loaded: "dict[str, Predictions]", path: Path, root: str | None, seed: int
) -> list[str]:
    """Write the page; the lines say where it is, and which pictures it lacks."""
    from confrank.files import write_atomically
    from confrank.report.contents import with_images, with_short_names
    from confrank.report.page import page

    pictured, lines = [], []
    for item, (name, predictions) in zip(examined, loaded.items(), strict=True):
        try:
            rows = [mistake.row for mistake in item.mistakes]
            pictured.append(with_images(item, _images(name, predictions, rows, root)))
        except (ValueError, OSError, LookupError) as error:
            lines.append(f"{name}: no pictures of mistakes: {error}")
            pictured.append(item)
    write_atomically(path, page(with_short_names(pictured), seed=seed))
    return [*lines, f"report: {path}"]


def _images(name: str, predictions: "Predictions", rows: list[int], root: str | None) -> dict[int, Any]:
    """Pictures of the given rows, where the predictions are of a run or tell a published data set; else none."""
    from confrank.config import RunFolder, load_config

    place, index = Path(name), predictions.index
    if index is None or predictions.label is None or not rows:
        return {}
    run = next((folder for folder in (place, place.parent.parent) if RunFolder(folder).config.exists()), None)
    dataset, image_size = predictions.metadata.get("dataset"), None
    if run is not None:
        config = load_config(run)
        dataset, image_size = config.dataset, config.image_size
    if dataset is None:
        return {}
    import numpy as np

    from confrank.data import LOADERS, load_of

    if run is None and dataset not in LOADERS:  # a file from elsewhere does not choose which folders are opened
        return {}
    data = load_of(run or place, dataset, None if root is None else Path(root), image_size=image_size)
    split = data.test if predictions.metadata.get("split") == "test" else data.train
    if index.max() >= len(split) or not np.array_equal(split.labels[index], predictions.label):
        raise ValueError(f"expected the data that {name} comes from, but images or labels have changed since")
    return {row: split.images[index[row]] for row in rows}


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


def _threshold(arguments: "Namespace") -> None:

    from confrank.files import write_atomically
    from confrank.report.decision import check_lines, threshold_lines
    from confrank.selective import guaranteed_threshold, measured_at, random_split, threshold_for_coverage

    if (arguments.risk is None) == (arguments.coverage is None):
        raise ValueError("expected either --risk or --coverage, but got " + ("both" if arguments.risk else "neither"))
    table = json_path(arguments.json)
    keep_inputs([arguments.file, predictions_path(arguments.file)], table)
    predictions = load_file(arguments.file)
    samples = samples_of(arguments.file, predictions)
    print("\n".join([f"read {predictions.describe()}", *samples.notes]))
    kept = None
    if arguments.split is not None:
        rows, kept_rows = random_split(len(samples), arguments.split, arguments.seed)
        samples, kept = samples.select(rows), samples.select(kept_rows)
    if arguments.risk is not None:
        point = guaranteed_threshold(samples.confidence, samples.correct, arguments.risk, arguments.delta)
    else:
        point = threshold_for_coverage(samples.confidence, samples.correct, arguments.coverage)
    check = None if kept is None else measured_at(point.threshold, kept.confidence, kept.correct)
    lines = threshold_lines(point, arguments.risk, arguments.delta)
    lines += [] if check is None else check_lines(check, arguments.risk)
    if table:
        asked = {"requested_risk": arguments.risk, "delta": arguments.delta, "requested_coverage": arguments.coverage}
        result = {"file": arguments.file, **asked, **point.as_dict(), "check": check and check.as_dict()}
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
    from confrank.report.decision import temperature_line
    from confrank.report.table import evaluation_table, footnotes
    from confrank.selective import fit_temperature, random_split, scaled_logits
    from confrank.selective.temperature import as_logits

    out, table = safetensors_path(arguments.out), json_path(arguments.json)
    keep_inputs([arguments.file, predictions_path(arguments.file)], out, table)
    predictions = load_file(arguments.file)
    if predictions.table is None or predictions.label is None:
        raise ValueError(
            f"expected logits or probabilities of all classes to calibrate, but {arguments.file} has"
            f" {predictions.describe()}"
        )
    notes = samples_of(arguments.file, predictions).notes
    logits, label = as_logits(logits=predictions.logits, probabilities=predictions.probabilities), predictions.label
    rows, kept = random_split(len(label), arguments.split, arguments.seed)
    temperature = fit_temperature(logits[rows], label[rows])
    scaled = scaled_logits(logits, temperature)
    evaluations = {
        "before": evaluation_of(sample_values(logits=logits[kept], label=label[kept])),
        "after": evaluation_of(sample_values(logits=scaled[kept], label=label[kept])),
    }
    if table:
        metrics = {name: evaluation.as_dict() for name, evaluation in evaluations.items()}
        result = {"file": arguments.file, "temperature": temperature, "num_fitted": len(rows), **metrics}
        write_atomically(table, json.dumps(result, indent=1))
    if out is not None:
        metadata = {**predictions.metadata, "temperature": repr(temperature)}
        save_predictions(out, Predictions(logits=scaled, label=label, index=predictions.index, metadata=metadata))
    console = make_console()
    for line in (
        f"read {predictions.describe()}",
        *notes,
        temperature_line(temperature, len(rows), len(kept)),
    ):
        say(console, line)
    console.print(evaluation_table(evaluations))
    for line in [*footnotes(evaluations), "both rank by the largest probability"]:
        say(console, line, style="dim")
    if out is not None:
        say(console, f"calibrated predictions: {out}")


EVALUATE = Command(
    "measure how well confidence ranks and calibrates predictions",
    "confrank evaluate predictions.npz --report report.html --json metrics.json",
    _evaluate_arguments,
    _evaluate,
)


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

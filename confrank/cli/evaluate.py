"""Evaluate files of predictions: numbers, figures and a page."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confrank.cli.options import Source, at_least, listed, predictions_path
from confrank.cli.terminal import make_console, say, working
from confrank.errors import about
from confrank.runs.outputs import keep_inputs, keep_out_of_data, write_json

if TYPE_CHECKING:
    from rich.console import Console

    from confrank.analysis import Analysis, Comparison
    from confrank.decisions.policy import Policy


def _evaluate_arguments(parser: Parser) -> None:
    files = "predictions (.csv, .tsv, .json, .jsonl, also compressed; .parquet, .arrow, .npz, .npy, .pt,"
    files += " .safetensors), folders of the parts of a file, or run folders"
    parser.add_argument("files", type=str, nargs="+", metavar="FILE", help=files)
    add_reading(parser)
    common = "compare the rows that all files have, by the column that identifies them, and count the others"
    parser.add_argument_group("comparison").add_argument("--common", action="store_true", help=common)
    show = "print the role of each column and the first rows, then stop"
    parser.add_argument_group("check").add_argument("--show", action="store_true", help=show)
    output = parser.add_argument_group("output")
    add_option(output, "--report", str, "FILE", "write a page to explore the results and choose a threshold (.html)")
    add_option(output, "--json", str, "FILE", "write the numbers to this file (.json)")
    add_option(output, "--figure", str, "FILE", "draw the curves into this .png, .svg or .pdf")
    add_option(output, "--figures", str, "FOLDER", "draw each chart as PNG and SVG into this folder")
    add_root(output, ", for images of mistakes")
    add_option(output, "--policy", str, "FILE", "show what this policy does to the predictions, in --report")
    groups = parser.add_argument_group("groups and weights")
    add_option(groups, "--by", str, "COLUMN,...", "report every metric for each value of these columns")
    coverage = "share of all predictions to accept where groups are compared"
    add_option(groups, "--coverage", float, "SHARE", coverage, 0.8)
    add_option(groups, "--sample-weight", str, "COLUMN", "weight of each row, scaled to mean 1; no intervals")
    intervals = parser.add_argument_group("intervals")
    resamples = "bootstrap resamples, 100 or more; 0 for no intervals (default: depends on the number of rows)"
    add_option(intervals, "--resamples", int, "N", resamples)
    add_option(intervals, "--seed", int, "N", "seed of the resamples", 0)


def _evaluate(arguments: Arguments) -> None:
    from confrank.analysis import check_resamples
    from confrank.report.names import chart_paths, short_names

    at_least(0, arguments, "seed")
    check_resamples(arguments.resamples)
    figure, figures = picture_path(arguments.figure), folder_path(arguments.figures)
    report, table = page_path(arguments.report), json_path(arguments.json)
    inputs = [*arguments.files, *map(predictions_path, arguments.files), arguments.truth, arguments.policy]
    charts = [] if figures is None else chart_paths(figures)
    keep_inputs(inputs, figure, report, table, *charts)
    policy = _policy_for_page(arguments.policy, report, arguments.files)
    keep_out_of_data(arguments.files, figure, figures)
    if not 0 < arguments.coverage <= 1:
        raise ValueError(f"expected --coverage in (0, 1], but got {arguments.coverage:g}")
    reading = reading_of(arguments) | {"like": None if policy is None else policy.input.reading}
    by, weight = listed(arguments.by) or role_columns(reading, "group"), weight_column(arguments, reading)
    sources: list[Source] = []
    for file in arguments.files:
        # A file may be given twice, e.g. to check that it does not differ from itself.
        is_repeated = any(item.name == file for item in sources)
        name = f"{file} ({len(sources) + 1})" if is_repeated else file
        columns = kept(reading, *by, weight, *([] if policy is None else policy.columns))
        sources.append(_read(file, name, reading, columns, is_first=not sources))
    from confrank.predictions.joining import are_parts

    if are_parts([source.path for source in sources]):
        folder = sources[0].path.parent
        print(f"note: these files are named like parts of one; confrank evaluate {folder} evaluates them together")
    if arguments.common and len(sources) < 2:
        raise ValueError("expected two or more files with --common, but got one; leave it out")
    if arguments.common:
        sources = _with_common_samples(sources)
    if arguments.show:
        show_sources(make_console(), sources)
        return
    with working("measuring the predictions, and intervals by resampling them") as advance:
        compared = compare_sources(
            sources, arguments.resamples, arguments.seed, by=by, sample_weight=weight, coverage=arguments.coverage,
            on_progress=advance,
        )  # fmt: skip
    models = list(compared.models)
    # Files first, since a reader of the output may close the pipe after a few lines.
    written = []
    if figure:
        from confrank.report.plots import comparison_figure

        names = short_names([item.name for item in sources])
        comparison_figure({name: [one] for name, one in zip(names, compared.samples, strict=True)}, figure)
        written.append(f"figure: {figure}")
    results = [model.as_dict() for model in models]
    write_json(table, results[0] if len(results) == 1 else results)
    if table:
        written.append(f"numbers: {table}")
    if figures:
        from confrank.report.plots import paper_figures

        written.append(f"figures: {', '.join(map(str, paper_figures(models, figures)))}")
    if report:
        decision = None if policy is None else _decision_of(policy, arguments.policy, sources[0])
        written += write_page(compared, sources, report, root_of(arguments), decision=decision)
    console = make_console()
    for item in sources:
        say(console, f"{item.name}: read {item.predictions.describe()}")
        say(console, *dependence_notes(item.predictions, "the intervals do not hold"))
    _print_models(console, models)
    say(console, *written)


def _read(file: str, name: str, reading: dict[str, Any], columns: list[str], *, is_first: bool) -> Source:
    """Read a file with the columns that group or weight it; a later file may take them from the first."""
    try:
        return read_source(file, name, reading, columns)
    except ValueError:
        if is_first or not columns:
            raise
        return read_source(file, name, reading)  # which raises, too, if not the columns were missing


def _with_common_samples(sources: Sequence[Source]) -> list[Source]:
    from confrank.metrics import sample_values
    from confrank.predictions import common_samples

    models = common_samples([item.predictions for item in sources])
    return [
        replace(item, predictions=model, samples=sample_values(**model.evaluation_inputs()))
        for item, model in zip(sources, models, strict=True)
    ]


def compare_sources(sources: Sequence[Source], resamples: int | None, seed: int, **options: Any) -> "Comparison":
    """`confrank.analysis.compare_samples` of what was read."""
    from confrank.analysis import compare_samples

    names, samples = [item.name for item in sources], [item.samples for item in sources]
    return compare_samples(names, [item.predictions for item in sources], samples, resamples, seed, **options)


def _print_models(console: "Console", models: "list[Analysis]") -> None:
    from confrank.predictions.joining import IN_BOTH
    from confrank.report.groups import group_lines, group_table, threshold_sentence
    from confrank.report.table import difference_table, evaluation_table, interval_note
    from confrank.report.verdict import comparisons, confidence_sentences, footnotes

    evaluations = {model.name: model.evaluation for model in models}
    console.print(evaluation_table(evaluations, {model.name: model.intervals for model in models}))
    for model in models:
        prefix = f"{model.name}: " if len(models) > 1 else ""
        say(console, *(prefix + sentence for sentence in confidence_sentences(model)))
    differences = {model.name: model.differences for model in models if model.differences}
    if differences:
        console.print(difference_table(differences, models[0].name))
    for model in models:
        for grouping in model.groups.values():
            console.print(group_table(grouping, model.name if len(models) > 1 else ""))
            say(console, *group_lines(grouping))
        for grouping in list(model.groups.values())[:1]:
            say(console, threshold_sentence(grouping), style="dim")
    if any(IN_BOTH in model.pairing for model in models):
        say(console, "--common compares the rows that all files have")
    known = any(model.num_resamples or model.weighted_by for model in models)
    remedy = "" if known else "; --resamples 200 computes them"
    say(console, *comparisons(models), *footnotes(evaluations.items()), interval_note(models) + remedy, style="dim")


def write_page(
    compared: "Comparison", sources: Sequence[Source], path: Path, root: Path | None, **sections: Any
) -> list[str]:
    """`write_report` with images of mistakes; returns lines with its path and the images it lacks."""
    from confrank.analysis import with_images
    from confrank.report.page import write_report

    pictured, lines = [], []
    for model, source in zip(compared.models, sources, strict=True):
        try:
            rows = [mistake.row for mistake in model.mistakes]
            pictured.append(with_images(model, _images(source, rows, root)))
        except (ValueError, OSError, LookupError) as error:
            lines.append(f"{source.name}: no images of mistakes: {error}")
            pictured.append(model)
    write_report(replace(compared, models=tuple(pictured)), path, **sections)
    return [*lines, f"report: {path}"]


def _policy_for_page(path: str | None, page: Path | None, files: Sequence[str]) -> "Policy | None":
    """The policy to show; an error if there is no page to show it on, or more than one file."""
    from confrank.decisions.policy import Policy

    if path is None:
        return None
    if page is None:
        raise ValueError("expected --report with --policy, since only the page shows a policy, but got none")
    if len(files) > 1:
        raise ValueError(f"expected one file with --policy, but got {len(files)}")
    return Policy.load(path)


def _decision_of(policy: "Policy", path: str, source: Source) -> dict[str, Any]:
    """What the page says about a policy and what it does to the predictions."""
    from confrank.decisions.outcome import outcome_of
    from confrank.report.policy_section import policy_section

    with about(source.name):
        outcome = outcome_of(policy, source.predictions)
    return policy_section(policy, outcome, Path(path).name, Path(path).read_bytes())


def _images(source: Source, rows: list[int], root: Path | None) -> dict[int, Any]:
    """Images of the given rows of the file, if the predictions belong to a run or name a published data set."""
    from confrank.runs.folder import RunFolder, load_config

    path, predictions, index = source.path, source.predictions, source.predictions.index
    if index is None or predictions.label is None or not rows or predictions.metadata.get("input_kind") == '"text"':
        return {}
    run = next((folder for folder in (path, path.parent.parent) if RunFolder(folder).config.exists()), None)
    dataset, image_size = predictions.metadata.get("dataset"), None
    if run is not None:
        config = load_config(run)
        dataset, image_size = config.dataset, config.image_size
    if dataset is None:
        return {}
    import numpy as np

    from confrank.data import LOADERS, load_of

    if run is None and dataset not in LOADERS:  # a file must not choose which folders are opened
        return {}
    from_pool = "from_pool" in predictions.metadata
    data = load_of(run or path, dataset, root, from_pool=from_pool, image_size=image_size)
    split = data.test if predictions.metadata.get("split") == "test" else data.train
    if index.max() >= len(split) or not np.array_equal(split.labels[index], predictions.label):
        raise ValueError(f"expected the data that {path} was computed from, but images or labels have changed since")
    return {row: split.images[int(index[predictions.file_rows == row][0])] for row in rows}


EVALUATE = Command(
    "measure how well confidence ranks predictions, and how well it is calibrated",
    "confrank evaluate predictions.npz --report report.html --json metrics.json",
    _evaluate_arguments,
    _evaluate,
    guide="how-to/evaluate.md",
)

"""From files of predictions to numbers, pictures and a page."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confrank.cli.command import Command, add_root, at_least, make_console, root_of, say
from confrank.cli.paths import folder_path, json_path, keep_inputs, keep_out_of_data, page_path, picture_path
from confrank.cli.source import Source, predictions_path, read_source

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace
    from rich.console import Console

    from confrank.analysis import Analysis, Repeats


def _evaluate_arguments(parser: "ArgumentParser") -> None:
    parser.add_argument(
        "files",
        type=str,
        nargs="+",
        help="predictions (.csv, .tsv, .parquet, .npz, .npy, .safetensors) or run folders",
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
    from confrank.analysis import check_resamples
    from confrank.atomic import write_atomically
    from confrank.report.names import short_names

    at_least(0, arguments, "seed")
    check_resamples(arguments.resamples)
    figure, figures = picture_path(arguments.figure), folder_path(arguments.figures)
    report, table = page_path(arguments.report), json_path(arguments.json)
    keep_inputs([*arguments.files, *map(predictions_path, arguments.files)], figure, report, table)
    keep_out_of_data(arguments.files, figure, figures)
    sources: list[Source] = []
    for place in arguments.files:
        # A file may be given twice, e.g. to see that it does not differ from itself.
        again = any(item.name == place for item in sources)
        sources.append(read_source(place, f"{place} ({len(sources) + 1})" if again else place))
    examined = compare_sources(sources, arguments.resamples, arguments.seed)
    # Files first: whoever reads the output may stop reading after a few lines.
    written = []
    if figure:
        from confrank.report.plots import comparison_figure

        names = short_names([item.name for item in sources])
        comparison_figure({name: [item.samples] for name, item in zip(names, sources, strict=True)}, figure)
        written.append(f"figure: {figure}")
    if table:
        results = [item.as_dict() for item in examined]
        write_atomically(table, json.dumps(results[0] if len(results) == 1 else results, indent=1))
    if figures:
        from confrank.report.plots import paper_figures

        written.append(f"figures: {', '.join(map(str, paper_figures(examined, figures)))}")
    if figure or figures:
        from confrank.report.fonts import font_notes

        written += font_notes(short_names([item.name for item in sources]))
    if report:
        written += write_page(examined, sources, report, root_of(arguments), arguments.seed)
    console = make_console()
    for item in sources:
        say(console, f"{item.name}: read {item.predictions.describe()}")
    _print_examined(console, examined)
    for line in written:
        say(console, line)


def compare_sources(sources: Sequence[Source], resamples: int | None, seed: int) -> "list[Analysis]":
    """What a report says about each source; the later ones are compared with the first."""
    from confrank.analysis import compare_samples

    names, samples = [item.name for item in sources], [item.samples for item in sources]
    return list(compare_samples(names, [item.predictions for item in sources], samples, resamples, seed).models)


def _print_examined(console: "Console", examined: "list[Analysis]") -> None:
    from confrank.report.table import difference_table, evaluation_table, interval_note
    from confrank.report.verdict import comparisons, footnotes

    evaluations = {item.name: item.evaluation for item in examined}
    console.print(evaluation_table(evaluations, {item.name: item.intervals for item in examined}))
    differences = {item.name: item.differences for item in examined if item.differences}
    if differences:
        console.print(difference_table(differences, examined[0].name))
    for line in [*comparisons(examined), *footnotes(evaluations.items()), interval_note(examined)]:
        say(console, line, style="dim")


def write_page(
    examined: "Sequence[Analysis]",
    sources: Sequence[Source],
    path: Path,
    root: Path | None,
    seed: int,
    note: str | None = None,
    repeats: "Repeats | None" = None,
) -> list[str]:
    """Write the page; the lines say where it is, and which pictures it lacks. See `page` for `note` and `repeats`."""
    from confrank.analysis import with_images
    from confrank.atomic import write_atomically
    from confrank.report.names import with_short_names
    from confrank.report.page import page

    pictured, lines = [], []
    for item, source in zip(examined, sources, strict=True):
        try:
            rows = [mistake.row for mistake in item.mistakes]
            pictured.append(with_images(item, _images(source, rows, root)))
        except (ValueError, OSError, LookupError) as error:
            lines.append(f"{source.name}: no pictures of mistakes: {error}")
            pictured.append(item)
    write_atomically(path, page(with_short_names(pictured), seed=seed, note=note, repeats=repeats))
    return [*lines, f"report: {path}"]


def _images(source: Source, rows: list[int], root: Path | None) -> dict[int, Any]:
    """Pictures of the given rows, where the predictions are of a run or tell a published data set; else none."""
    from confrank.run_folder import RunFolder, load_config

    place, predictions, index = source.place, source.predictions, source.predictions.index
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
    data = load_of(run or place, dataset, root, image_size=image_size)
    split = data.test if predictions.metadata.get("split") == "test" else data.train
    if index.max() >= len(split) or not np.array_equal(split.labels[index], predictions.label):
        raise ValueError(f"expected the data that {place} comes from, but images or labels have changed since")
    return {row: split.images[index[row]] for row in rows}


EVALUATE = Command(
    "measure how well confidence ranks and calibrates predictions",
    "confrank evaluate predictions.npz --report report.html --json metrics.json",
    _evaluate_arguments,
    _evaluate,
)

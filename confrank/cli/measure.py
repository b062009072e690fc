"""How good a confidence is: the demo, evaluating files of predictions, and calibrating them."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from confrank.cli.decide import DesignTarget, ranked_by
from confrank.cli.options import (
    GROUPS,
    Calibrated,
    Column,
    Columns,
    Count,
    Coverage,
    Folds,
    InFile,
    Natural,
    OutFolder,
    Output,
    Page,
    Picture,
    Reading,
    Root,
    Share,
    Source,
    Whole,
    command,
    predictions_path,
)
from confrank.cli.terminal import make_console, say, say_once, working
from confrank.errors import about, counted

if TYPE_CHECKING:
    from rich.console import Console

    from confrank.analysis import Analysis, Comparison
    from confrank.decisions.policy import Policy

FOLDS = 5
OUTPUT, WEIGHTS = Parameter(group=GROUPS["output"]), Parameter(group=GROUPS["groups and weights"])


@command("measure", "tutorial.md", "confrank demo --seeds 6")
def demo(*, seeds: Count = 6, epochs: Whole = 200, out: OutFolder = Path("demo")) -> None:
    """Train a baseline and a CRL network on embedded data; compare them.

    Args:
        seeds: networks to train per method
        epochs: passes over the training images
        out: folder for the runs, the figure and the page
    """
    import torch

    from confrank.analysis import repeats_of
    from confrank.environment import keep_freed_memory
    from confrank.report.plots import comparison_figure
    from confrank.report.progress import epoch_bar
    from confrank.report.repeats import repeats_verdict
    from confrank.report.table import repeats_table
    from confrank.runs.outputs import check_folder
    from confrank.study import demo as study

    # A second thread gains little for a network this small, and on a busy machine it slows training down.
    torch.set_num_threads(1)
    keep_freed_memory()
    check_folder(out)
    console = make_console(lasting=True)
    configs = study.demo_configs(range(seeds), epochs)
    say(console, f"training {len(configs)} small networks on noisy 8x8 digits; finished runs in {out} are reused")
    with epoch_bar(console, sum(config.epochs for config in configs)) as bar:
        study.run_demo(configs, out, on_epoch=bar.advance, on_note=say_once(console))
    test, held_out = study.load_samples(configs, out), study.load_samples(configs, out, "holdout")
    repeats, figure = repeats_of(test), out / "demo.png"
    if seeds > 1:
        say(console, *repeats_verdict(repeats))
    console.print(repeats_table(repeats, f"digits, three-layer perceptron, {counted(seeds, 'seed')}, test split"))
    comparison_figure(test, figure, f"digits, mean of {counted(seeds, 'seed')}")
    say(console, f"figure: {figure}; runs: {out}")
    thresholds = {name: list(map(study.choose_threshold, held_out[name], test[name])) for name in test}
    runs = [Reading().source(str(run)) for run in study.first_runs(configs, out)]
    lines = study.threshold_lines(thresholds, held_out=len(held_out[configs[0].method][0].correct))
    note = f"Seed {configs[0].seed} of {seeds}, test split. {lines[0]}"
    compared = compare_sources(runs, None, 0)
    lines += write_page(compared, runs, out / "report.html", None, note=note, repeats=repeats if seeds > 1 else None)
    say(console, *lines[:-1], study.fit_line(study.training_accuracy(configs, out)), lines[-1])


@command(
    "measure", "how-to/evaluate.md", "confrank evaluate predictions.npz --report report.html --json metrics.json"
)
def evaluate(
    files: list[str],
    /,
    *,
    show: bool = False,
    common: bool = False,
    resamples: Whole | None = None,
    seed: Natural = 0,
    by: Annotated[Columns | None, WEIGHTS] = None,
    cluster: Annotated[Column | None, WEIGHTS] = None,
    coverage: Annotated[Coverage, WEIGHTS] = 0.8,
    sample_weight: Annotated[Column | None, WEIGHTS] = None,
    report: Annotated[Page | None, OUTPUT] = None,
    output: Output = Output(),  # noqa: B008
    figure: Annotated[Picture | None, OUTPUT] = None,
    figures: Annotated[OutFolder | None, OUTPUT] = None,
    root: Annotated[Root | None, OUTPUT] = None,
    policy: Annotated[InFile | None, OUTPUT] = None,
    reading: Reading = Reading(),  # noqa: B008
) -> None:
    """Measure how well confidence ranks predictions, and its calibration.

    Args:
        files: predictions (.csv, .tsv, .json, .jsonl, also compressed; .parquet, .arrow, .npz, .npy, .pt,
            .safetensors), folders of the parts of a file, or run folders
        show: print the role of each column and the first rows, then stop
        common: compare the rows that all files have, by the column that identifies them, and count the others
        resamples: bootstrap resamples, 100 or more; 0 for no intervals (default: depends on the number of rows)
        seed: seed of the resamples
        by: report every metric for each value of these columns
        cluster: what rows belong to, as patient or question; intervals resample whole clusters
        coverage: share of all predictions to accept where groups are compared
        sample_weight: weight of each row; whole numbers are counts; no intervals
        report: write a page to explore the results and choose a threshold (.html)
        figure: draw the curves into this .png, .svg or .pdf
        figures: draw each chart as PNG and SVG into this folder
        root: folder of data sets, for images of mistakes (default: $CONFRANK_DATA or a user cache)
        policy: show what this policy does to the predictions, in --report
    """
    from confrank.analysis import check_resamples
    from confrank.predictions.joining import are_parts
    from confrank.report.names import chart_paths, short_names
    from confrank.runs.outputs import check_folder, keep_inputs, keep_out_of_data

    check_resamples(resamples)
    folder = None if figures is None else check_folder(figures)
    charts = [] if folder is None else chart_paths(folder)
    keep_inputs([*files, *map(predictions_path, files), reading.truth, policy], figure, report, output.json, *charts)
    shown = _policy_for_page(policy, report, files)
    keep_out_of_data(files, figure, folder)
    group, weight = reading.column(None, "group"), reading.column(sample_weight, "sample_weight")
    cluster = reading.column(cluster, "cluster")
    columns = by or ([] if group is None else [group])
    keep = [*columns, cluster, weight, *([] if shown is None else shown.columns)]
    sources: list[Source] = []
    for file in files:
        # A file may be given twice, e.g. to check that it does not differ from itself.
        is_repeated = any(item.name == file for item in sources)
        name = f"{file} ({len(sources) + 1})" if is_repeated else file
        like = None if shown is None else shown.input.reading
        try:
            source = reading.source(file, name, keep, like=like)
        except ValueError:
            if not sources or not any(keep):
                raise
            # A later file may take the columns from the first. This raises, too, if they were not missing.
            source = reading.source(file, name, like=like)
        sources.append(source)
    if are_parts([source.path for source in sources]):
        parent = sources[0].path.parent
        print(f"note: these files are named like parts of one; confrank evaluate {parent} evaluates them together")
    if common and len(sources) < 2:
        raise ValueError("expected two or more files with --common, but got one; leave it out")
    if common:
        sources = _with_common_samples(sources)
    console = make_console()
    if show:
        from confrank.report.table import listing_table, shown_rows

        for one in sources:
            say(console, f"{one.name}: read {one.predictions.describe()}")
            console.print(listing_table(["column", "taken as"], [*one.predictions.roles.items()]))
            console.print(listing_table(*shown_rows(one.predictions, one.samples)))
        return
    with working("measuring the predictions, and intervals by resampling them") as advance:
        options = {"by": columns, "cluster": cluster, "sample_weight": weight, "coverage": coverage}
        compared = compare_sources(sources, resamples, seed, **options, on_progress=advance)
    written = list[str]()
    # Files first, since a reader of the output may close the pipe after a few lines.
    if figure:
        from confrank.report.plots import comparison_figure

        names = short_names([item.name for item in sources])
        comparison_figure({name: [one] for name, one in zip(names, compared.samples, strict=True)}, figure)
        written.append(f"figure: {figure}")
    results = compared.as_dicts()
    output.write(results[0] if len(results) == 1 else results)
    if output.json:
        written.append(f"numbers: {output.json}")
    if folder:
        from confrank.report.plots import paper_figures

        written.append(f"figures: {', '.join(map(str, paper_figures(compared.models, folder)))}")
    if report:
        decision = None if shown is None else _decision_of(shown, Path(str(policy)), sources[0])
        written += write_page(compared, sources, report, root, decision=decision)
    for item in sources:
        say(console, f"{item.name}: read {item.predictions.describe()}")
        if cluster is None:
            say(console, *item.predictions.dependence_notes("the intervals do not hold without --cluster {column}"))
    _print_models(console, compared.models)
    say(console, *written)


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


def _print_models(console: "Console", models: "Sequence[Analysis]") -> None:
    from confrank.predictions.joining import IN_BOTH
    from confrank.report.groups import group_lines, group_table, threshold_sentence
    from confrank.report.table import difference_table, evaluation_table, interval_note
    from confrank.report.verdict import comparisons, confidence_sentences, footnotes

    say(console, *comparisons(models))
    for model in models:
        prefix = f"{model.name}: " if len(models) > 1 else ""
        say(console, *(prefix + sentence for sentence in confidence_sentences(model)))
    evaluations = {model.name: model.evaluation for model in models}
    console.print(evaluation_table(evaluations, {model.name: model.intervals for model in models}))
    if any(model.differences for model in models):
        console.print(difference_table(models))
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
    say(console, *footnotes(evaluations.items()), interval_note(models) + remedy, style="dim")


def write_page(
    compared: "Comparison", sources: Sequence[Source], path: Path, root: Path | None, **sections: Any
) -> list[str]:
    """`write_report` with images of mistakes; returns lines with its path and the images it lacks."""
    from confrank.analysis import with_images
    from confrank.report.page import write_report
    from confrank.runs.folder import images_of

    pictured, lines = [], []
    for model, source in zip(compared.models, sources, strict=True):
        try:
            rows = [mistake.row for mistake in model.mistakes]
            pictured.append(with_images(model, images_of(source.path, source.predictions, rows, root)))
        except (ValueError, OSError, LookupError) as error:
            lines.append(f"{source.name}: no images of mistakes: {error}")
            pictured.append(model)
    write_report(replace(compared, models=tuple(pictured)), path, **sections)
    return [*lines, f"report: {path}"]


def _policy_for_page(path: str | None, page: Path | None, files: Sequence[str]) -> "Policy | None":
    """The policy to show; an error if there is no page to show it on, or more than one file."""
    if path is None:
        return None
    from confrank.decisions.policy import Policy

    if page is None:
        raise ValueError("expected --report with --policy, since only the page shows a policy, but got none")
    if len(files) > 1:
        raise ValueError(f"expected one file with --policy, but got {len(files)}")
    return Policy.load(path)


def _decision_of(policy: "Policy", path: Path, source: Source) -> dict[str, Any]:
    """What the page says about a policy and what it does to the predictions."""
    from confrank.decisions.outcome import outcome_of
    from confrank.report.policy_section import policy_section

    with about(source.name):
        outcome = outcome_of(policy, source.predictions)
    return policy_section(policy, outcome, path.name, path.read_bytes())


@command("measure", "how-to/calibrate.md", "confrank calibrate predictions.npz --out calibrated.safetensors")
def calibrate(
    file: str,
    /,
    *,
    method: Literal["temperature", "isotonic"] = "temperature",
    folds: Folds | None = None,
    split: Share | None = None,
    seed: Natural = 0,
    out: Annotated[Calibrated | None, OUTPUT] = None,
    output: DesignTarget = DesignTarget(),  # noqa: B008
    reading: Reading = Reading(),  # noqa: B008
) -> None:
    """Calibrate probabilities or confidences, and measure the effect.

    Args:
        file: predictions, or a run folder
        method: temperature calibrates the logits of all classes; isotonic the confidence of the predicted class
        folds: measure each fold with a fit to the others; the result is a fit to all rows (default: 5)
        split: instead of folds, share of the rows to measure on; the result is a fit to the others
        seed: seed of folds and split
        out: write all rows, calibrated (.safetensors, .csv)
    """
    from confrank.decisions.calibration_check import calibrated_predictions, checked_calibration
    from confrank.decisions.policy import CalibratorPart
    from confrank.metrics import sample_values
    from confrank.metrics.samples import probabilities_of
    from confrank.predictions import save_predictions
    from confrank.report.decision import calibration_rows, calibrator_line, temperature_of, worse_lines
    from confrank.report.table import evaluation_table
    from confrank.report.verdict import footnotes

    if folds is not None and split is not None:
        raise ValueError("expected --split or --folds, but got both")
    output.check(file, reading, out)
    source = reading.source(file)
    predictions, samples = source.predictions, source.samples
    if method == "temperature" and (predictions.table is None or predictions.label is None):
        raise ValueError(
            f"expected logits or probabilities of all classes to calibrate, but {file} has"
            f" {predictions.describe()}; use --method isotonic"
        )
    earlier = temperature_of(predictions, file)
    policy = output.open(file, predictions)
    if policy is not None:  # the classes in its order, and the confidence after its earlier parts
        predictions = policy.matched(predictions)
        samples = sample_values(**predictions.evaluation_inputs())
        if method == "isotonic":
            samples = ranked_by(replace(policy, confidence_calibrator=None), predictions, samples)
    tables = {name: each for name in ("logits", "probabilities") if (each := getattr(predictions, name)) is not None}
    chosen, part_tables, rows = samples, tables, None
    if policy is not None:
        every = output.rows == "all"
        index, rows = policy.usable(predictions, "design", file=file, seed=seed, every=every)
        chosen, part_tables = samples.select(index), {name: each[index] for name, each in tables.items()}
    with working("fitting the calibrator, and measuring it on rows that it was not fitted to"):
        checked = checked_calibration(method, chosen, **part_tables, folds=folds or FOLDS, split=split, seed=seed)
    calibrator, written = checked.calibrator, list[str]()
    if policy is not None:
        part = CalibratorPart(calibrator.method, calibrator.parameters, rows, settings=checked.errors)
        written = output.save(policy, part)
    output.write({"file": file, **checked.as_dict()})
    if out is not None:
        result = calibrated_predictions(calibrator, predictions, samples, earlier)
        if out.suffix == ".csv" and result.logits is not None and predictions.logits is None:
            result = replace(result, logits=None, probabilities=probabilities_of(result.logits))
        save_predictions(out, result)
        written.insert(0, f"calibrated predictions: {out}")
    console = make_console()
    say(console, f"read {predictions.describe()}", *calibrator.notes, calibrator_line(checked))
    console.print(evaluation_table(checked.evaluations, more=calibration_rows(checked.errors)))
    ranking = "largest probability" if calibrator.acts_on_table else "confidence"
    say(console, *footnotes(checked.evaluations.items()), f"both columns rank by the {ranking}", style="dim")
    say(console, *written)
    for line in worse_lines(checked):
        print(line, file=sys.stderr)

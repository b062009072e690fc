"""Research: out-of-distribution detection, active learning, studies of the paper, their tables and figures."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from confrank.cli.options import (
    GROUPS,
    Count,
    CsvFile,
    Device,
    Format,
    InFile,
    JsonFile,
    ManyNames,
    Minutes,
    Name,
    Names,
    Natural,
    Number,
    OutFolder,
    Part,
    Picture,
    Root,
    Seeds,
    Whole,
    actions,
    command,
    device_of,
)
from confrank.cli.terminal import make_console, plain, say, say_once, terminal_width
from confrank.cli.train import show_runs
from confrank.errors import counted, flag_of, in_words

if TYPE_CHECKING:
    from rich.console import Console

    from confrank.active.records import Curves

SHEET_IMAGES = 100
OUTPUT, COMPUTING = Parameter(group=GROUPS["output"]), Parameter(group=GROUPS["computing"])
DETECTORS = Parameter(group=GROUPS["detectors"])


@command(
    "research",
    "how-to/ood.md",
    "confrank ood runs/cifar10-resnet110-crl-softmax-seed0 --against tinyimagenet svhn --root data",
)
def ood(
    runs: Annotated[list[str], Parameter(metavar="RUN")],
    /,
    *,
    against: Annotated[list[str], Parameter(consume_multiple=1, metavar="DATA")],
    image_size: Whole | None = None,
    root: Root | None = None,
    model: Name | None = None,
    dataset: Name | None = None,
    method: Name | None = None,
    detectors: Annotated[ManyNames | None, DETECTORS] = None,
    neighbours: Annotated[Count | None, DETECTORS] = None,
    layers: Annotated[ManyNames | None, DETECTORS] = None,
    tuning: Annotated[Literal["paper", "none"] | None, DETECTORS] = None,
    tuning_images: Annotated[Count | None, DETECTORS] = None,
    seed: Annotated[Natural, DETECTORS] = 0,
    aupr: Annotated[Literal["average", "trapezoid"], DETECTORS] = "average",
    format: Annotated[Format, OUTPUT] = "terminal",  # noqa: A002 - the name of the option
    json: Annotated[JsonFile | None, OUTPUT] = None,
    figures: Annotated[OutFolder | None, OUTPUT] = None,
    batch_size: Annotated[Count, COMPUTING] = 500,
    device: Device = "auto",
) -> None:
    """Measure how well detectors find out-of-distribution inputs.

    Args:
        runs: run folders, or .safetensors weights (with --model and --dataset if the file has no config)
        against: out-of-distribution data: tinyimagenet, lsun, isun, digits, cifar10, cifar100 or svhn, folders of
            images, .npz files, files of texts
        image_size: crop images to their central square and scale it to N pixels
        model: network that weights without a config belong to
        dataset: data set that weights without a config belong to
        method: method that weights without a config belong to
        detectors: only these of max-probability, odin, mahalanobis, max-logit, energy, negative-entropy and knn
            (default: all; for texts, those of the logits)
        neighbours: k of the nearest-neighbour detector (default: 50, or the number of training images if less)
        layers: layers of your own network to read features from, e.g. stem,stage1
        tuning: paper: tune on images of each out-set; none: use no out-of-distribution image before the test
            (default: paper for published data sets and with --tuning-images, else none)
        tuning_images: images of each set to tune on; they are left out of the test (default: 1000)
        seed: seed that draws the tuning images
        aupr: AUPR estimator: average or trapezoid
        format: format of the table: terminal, markdown, latex or csv
        json: write all results to this file (.json)
        figures: draw ROC curves and histograms into this folder
        batch_size: images per forward pass
    """
    from confrank.environment import environment
    from confrank.files import is_stream, write_atomically
    from confrank.report.detection_plots import detection_figures
    from confrank.report.paper_table import render
    from confrank.runs.outputs import check_folder, keep_inputs, keep_out_of_data
    from confrank.study import against as study
    from confrank.study.ood import by_group, detection_json, ood_cells
    from confrank.training.loop import EAGER

    # A table that is piped somewhere has the output to itself.
    show = partial(print, file=sys.stdout if format == "terminal" else sys.stderr, flush=True)
    # Check everything that can be checked before the long part.
    folder = None if figures is None else check_folder(figures)
    keep_inputs([*runs, *against], json)
    keep_out_of_data([*runs, *against], folder)
    opened = study.against(
        runs, against, weights_of=(model, dataset, method), image_size=image_size, detectors=detectors or (),
        layers=layers or (), neighbours=neighbours, tuning=tuning, tuning_images=tuning_images, root=root, seed=seed,
        aupr=aupr, batch_size=batch_size,
    )  # fmt: skip
    chosen, results = device_of(device), list[Any]()

    def write() -> None:
        assert json is not None
        write_atomically(json, detection_json(results, opened.protocol, environment(chosen, EAGER)))

    def add(result: Any) -> None:
        """Write the results so far, so that a stopped command leaves them. A stream gets them at the end."""
        results.append(result)
        if json and not is_stream(json):
            write()

    opened.results(chosen, show, add)
    cells = ood_cells(results)
    notes = study.result_notes(results, opened.protocol, with_paper=any(cell.paper for cell in cells))
    # Files first: the reader of the output may stop after a few lines.
    if json and is_stream(json):
        write()
    if folder:
        paths = detection_figures(by_group(results), folder)
        notes.append(f"figures: {len(paths)} files in {folder}")
    print(render(cells, format, width=terminal_width()), end="", file=plain(sys.stdout))
    for line in (opened.protocol.describe(), *notes):
        show(line)


ACTIVE = actions("research", "active", "Choose what to label next, in your pool or in the experiment.")


@command(
    "research",
    "how-to/active-learning.md",
    "confrank active run --dataset digits --model small --stages 4 --per-stage 60 --subset 300 --epochs 40"
    " --strategy random,least-confidence --trials 1",
    ACTIVE,
)
def run(
    *,
    dataset: Name = "cifar10",
    model: Name = "resnet18",
    stages: Whole = 10,
    per_stage: Whole = 2000,
    subset: Whole = 10_000,
    epochs: Whole = 200,
    batch_size: Whole = 128,
    lr: Number = 0.1,
    weight_decay: Number = 1e-4,
    strategy: Names | None = None,
    trials: Count = 5,
    root: Root | None = None,
    out: Annotated[OutFolder | None, OUTPUT] = None,
    results: Annotated[OutFolder | None, OUTPUT] = None,
    figure: Annotated[Picture | None, OUTPUT] = None,
    together: Annotated[Count, COMPUTING] = 6,
    device: Device = "auto",
) -> None:
    """Run the paper's experiment: strategies ask for labels stage by stage.

    Args:
        dataset: data set by name, or the path of your own
        model: network by name
        stages: stages, the first random set included
        per_stage: labels to ask for per stage
        subset: choose from N random samples of the pool in each stage
        epochs: passes over the labelled set; each stage trains from scratch
        batch_size: samples per step
        lr: initial learning rate; divided by 10 after 60% and 80% of the epochs
        weight_decay: weight decay
        strategy: strategies to compare: random, entropy, margin, core-set, mc-entropy, least-confidence, or all
            (default: all)
        trials: repetitions, each with its own seeds
        out: folder for the runs (default: runs/NAME, named by the settings)
        results: folder for the small result files (default: the folder of --out)
        figure: figure to draw (default: curves.png in the folder of --out)
        together: strategies to train side by side on a GPU
    """
    from confrank.active.experiment import run_experiment
    from confrank.active.records import Experiment, check_results, collect, save_curves
    from confrank.active.strategies import STRATEGIES, get
    from confrank.config import short_name
    from confrank.report.progress import epoch_bar
    from confrank.runs.outputs import check_folder, keep_inputs

    names = [*STRATEGIES] if strategy in (None, ["all"]) else strategy or []
    methods = {name: get(name).method for name in names}
    experiment = Experiment(dataset, model, stages, per_stage, subset, epochs, batch_size, lr, weight_decay)
    stem = f"{short_name(dataset)}-{model.replace(':', '.')}"
    folder = check_folder(out or Path(f"runs/active-{stem}"))
    picture, console = figure or folder / "curves.png", make_console(lasting=True)
    numbers = (folder if results is None else check_folder(results)) / f"{stem}.json"
    keep_inputs([], picture, numbers)
    check_results(numbers, folder, experiment.settings(), names, range(trials), stages)
    runs = trials * (len({*methods.values()}) + (stages - 1) * len(methods))
    say(console, f"{runs} runs of {epochs} epochs in {folder} (finished ones are not repeated)")
    with epoch_bar(console, runs * epochs) as bar:
        run_experiment(
            experiment, names, range(trials), folder, together=together, root=root, device=device_of(device),
            on_epoch=bar.advance, on_note=say_once(console),
        )  # fmt: skip
    curves, arrays = collect(folder, experiment.settings(), stages)
    save_curves(numbers, curves, arrays)
    _show_curves(console, curves, picture)
    say(console, f"numbers: {numbers}")


@command(
    "research",
    "how-to/active-learning.md",
    "confrank active show results/active/digits-small.json --figure curves.png",
    ACTIVE,
)
def show(
    file: Path, /, *, figure: Annotated[Picture | None, OUTPUT] = None, markdown: Annotated[bool, OUTPUT] = False
) -> None:
    """Print and draw the curves of an experiment again.

    Args:
        file: JSON file that `confrank active run` wrote
        figure: draw the curves into this .png, .svg or .pdf
        markdown: print a Markdown table
    """
    from confrank.active.records import load_curves
    from confrank.report.active import active_markdown
    from confrank.runs.outputs import keep_inputs

    curves = load_curves(file)
    keep_inputs([file], figure)
    if markdown:
        print(active_markdown(curves.labelled(), curves.values()), end="")
    _show_curves(None if markdown else make_console(), curves, figure)


def _show_curves(console: "Console | None", curves: "Curves", picture: Path | None) -> None:
    from confrank.report.active import active_figure, active_table
    from confrank.report.paper_table import render
    from confrank.study.comparison import is_comparable
    from confrank.study.tables import active_cells, active_means

    config, values = curves.config, curves.values()
    # The paper's numbers are shown only for the paper's protocol, with any learning rate and weight decay.
    paper = active_means(config["dataset"]) if is_comparable(curves) else {}
    if picture is not None:
        title = f"{config['dataset']}, {config['model']}, {counted(len(config['trials']), 'trial')}"
        active_figure(curves.labelled(), values, picture, title, paper=paper or None)
    if console is None:
        return
    console.print(active_table(curves.labelled(), values))
    if paper:
        cells = active_cells({config["dataset"]: values})
        print(render(cells, "terminal", ours_only=True, width=terminal_width()), end="", file=plain(sys.stdout))
    if picture is not None:
        say(console, f"figure: {picture}")


@command(
    "research",
    "how-to/active-learning.md",
    "confrank active query runs/mine --pool pool/ --labelled labelled.csv --count 500 --out to_label.csv",
    ACTIVE,
)
def query(
    run: Path | None = None,
    /,
    *,
    pool: Annotated[Path, Parameter(metavar="PATH")],
    labelled: InFile | None = None,
    image_size: Whole | None = None,
    count: Count = 500,
    strategy: Name = "least-confidence",
    subset: Count | None = None,
    seed: Natural = 0,
    out: Annotated[CsvFile, OUTPUT] = Path("to_label.csv"),
    device: Device = "auto",
) -> None:
    """Choose which samples of a pool to label next: a CSV to fill in, and a contact sheet of images.

    Args:
        run: run folder; not needed for a file of predictions
        pool: folder of images, .npz file of images, or .csv, .tsv or .jsonl file of texts; or a file of predictions
            (.npz, .safetensors, .csv)
        labelled: CSV with the columns path (for texts, id) and label
        image_size: crop images to their central square and scale it to N pixels
        count: number of samples to ask for
        strategy: how to choose them: random, entropy, margin, core-set, mc-entropy or least-confidence
        subset: choose from N random samples of the pool
        seed: seed of ties, random choices and the subset
        out: CSV to write; for images, a contact sheet is written next to it
    """
    from confrank.active.labelled import read_labelled
    from confrank.active.query import ask_pool, asking, write_question
    from confrank.report.contact import CELL, contact_sheet
    from confrank.report.progress import sample_bar
    from confrank.runs.outputs import keep_inputs, keep_out_of_data

    sheet, console = out.with_suffix(".png"), make_console()
    keep_out_of_data([pool], sheet)
    keep_inputs([pool, labelled, run], out, sheet)
    if sheet.exists() and not out.exists():
        raise ValueError(
            f"expected to write a contact sheet next to {out}, but {sheet} is another picture; choose another --out"
        )
    note = partial(say, console)
    known = None if labelled is None else read_labelled(Path(labelled), note)
    with asking(out, known) as scores:
        with sample_bar(console, "scoring") as advance:
            question = ask_pool(
                pool, known, strategy, count, run=run, scores=scores, subset=subset, seed=seed, image_size=image_size,
                device=device_of(device), on_note=note, on_progress=advance,
            )  # fmt: skip
        pictures = question.pictures(SHEET_IMAGES, CELL)
        like = pool if labelled is None else Path(labelled)
        write_question(out, question, like if like.suffix.lower() == ".csv" else None)
        if pictures:
            contact_sheet(pictures, sheet)
            note(f"contact sheet of the first {len(pictures)}: {sheet}")
    order = "in random order" if strategy == "random" else "most useful first"
    note(f"{counted(len(question.names), 'sample')} to label, {order}: {out}")


@command(
    "research",
    "how-to/active-learning.md",
    "confrank active train --pool pool/ --labelled labelled.csv --out runs/round2",
    ACTIVE,
)
def train(
    *,
    pool: Annotated[Path, Parameter(metavar="PATH")],
    labelled: InFile,
    test: InFile | None = None,
    test_share: Part = 0.2,
    image_size: Whole | None = None,
    model: Name | None = None,
    method: Name | None = None,
    epochs: Whole | None = None,
    batch_size: Whole | None = None,
    optimizer: Name | None = None,
    lr: Number | None = None,
    seed: Whole = 0,
    padding: Whole | None = None,
    flip: bool | None = None,
    text_length: Whole | None = None,
    vocabulary_size: Whole | None = None,
    out: Annotated[OutFolder | None, OUTPUT] = None,
    device: Device = "auto",
) -> None:
    """Train from scratch on all labelled samples of a pool.

    Args:
        pool: folder of images, .npz file of images, or .csv, .tsv or .jsonl file of texts
        labelled: CSV with the columns path (for texts, id) and label
        test: CSV of samples to test on, with the columns of --labelled
        test_share: without --test: share of the labelled samples to test on
        image_size: crop images to their central square and scale it to N pixels
        model: network by name (default: convnet, for texts bag-of-embeddings)
        method: what to train and how it predicts (default: baseline)
        epochs: passes over the labelled samples (default: 20 to 60, or more if they are few, for texts 200)
        batch_size: samples per step (default: 32, for texts and with sgd 128)
        optimizer: sgd or adamw (default: adamw)
        lr: initial learning rate; divided by 10 after 60% and 80% of the epochs (default: 0.001, for texts 0.003;
            for images with sgd 0.1)
        seed: seed of the initial weights, the sample order and the augmentation
        padding: shift images at random by up to N pixels (default: 4 for colour images, else 0)
        flip: mirror half of the images left to right (default: for colour images only)
        text_length: words of each text to use; the rest is cut off (default: 256)
        vocabulary_size: most frequent words to know; others are unknown (default: 30000)
        out: run folder (default: runs/NAME, named by the settings and the number of labels)
    """
    from confrank.active.labelled import read_labelled
    from confrank.active.labelled_set import check_labels, config_of_pool, labelled_set, write_labels
    from confrank.report.progress import epoch_bar
    from confrank.training import train as train_run

    console = make_console(lasting=True)
    note = partial(say, console)
    known = read_labelled(Path(labelled), note)
    given = {
        "model": model, "method": method, "epochs": epochs, "batch_size": batch_size, "optimizer": optimizer,
        "lr": lr, "seed": seed, "image_size": image_size, "padding": padding, "flip": flip,
        "text_length": text_length, "vocabulary_size": vocabulary_size,
    }  # fmt: skip
    chosen = {name: value for name, value in given.items() if value is not None}
    config = config_of_pool(pool, known, chosen, test_share if test is None else 0.0)
    if known.waiting:
        note(f"skipping {counted(len(known.waiting), 'sample')} without a label yet")
    held_out = None if test is None else read_labelled(Path(test), note)
    data = labelled_set(pool, known, held_out, share=test_share, **config.reading)
    folder = out or Path(f"runs/{config.run_name}-{len(known.labels)}labels")
    check_labels(folder, known)
    sizes = f"{len(data.train)} samples of {data.num_classes} classes, testing on {len(data.test)}"
    note(f"training on {sizes}, in {folder}")
    with epoch_bar(console, config.epochs) as bar:
        finished = train_run(
            config, folder, data=data, device=device_of(device), on_start=lambda job: write_labels(folder, known),
            on_epoch=bar.advance, on_note=note,
        )  # fmt: skip
    show_runs(console, [finished])
    note(f"next: confrank active query {folder} --pool {pool} --labelled {labelled}")


@command(
    "research",
    "how-to/study.md",
    "confrank study table-clf-perf --datasets cifar100 --models vgg16 --methods baseline,crl-softmax --seeds 0,1,2",
)
def study(
    table: str,
    /,
    *,
    datasets: Names | None = None,
    models: Names | None = None,
    methods: Names | None = None,
    recipes: Names | None = None,
    seeds: Seeds | None = None,
    against: Names | None = None,
    epochs: Whole | None = None,
    dry_run: bool = False,
    root: Root | None = None,
    out: Annotated[OutFolder, OUTPUT] = Path("runs"),
    results: Annotated[OutFolder, OUTPUT] = Path("results"),
    weights: Annotated[OutFolder | None, OUTPUT] = None,
    shift: Annotated[bool, OUTPUT] = False,
    checkpoint_minutes: Annotated[Minutes, OUTPUT] = 5.0,
    together: Annotated[Count, COMPUTING] = 4,
    ray: Annotated[str | None, Parameter(group=GROUPS["computing"], metavar="ADDRESS")] = None,
    skip_held: Annotated[bool, COMPUTING] = False,
    device: Device = "auto",
) -> None:
    """Train and evaluate the missing runs of a table of the paper.

    Args:
        table: table of the paper, see `confrank table list`, or one of our own studies: reproduction, our part of the
            classification tables; ood, out-of-distribution detection; active, active learning with a lower learning
            rate and more weight decay; record, training recipes compared
        datasets: only these data sets, separated by commas
        models: only these networks, separated by commas
        methods: only these methods (also aes-10, aes-30 and ensemble-METHOD; strategies of active learning)
        recipes: only runs that are trained like this, e.g. best (see train)
        seeds: only these seeds or trials, e.g. 0,1,2 (default: those of the study)
        against: only these out-of-distribution data
        epochs: passes over the training set (default: 300, for texts 20, or those of the recipe)
        dry_run: show the plan and stop
        out: folder for the run folders
        results: folder for the small result files
        weights: also save the trained networks in this folder, in half precision
        shift: also evaluate each network on noisy, blurred and pale test images, and with mirrored images
        checkpoint_minutes: save a checkpoint at least every X minutes
        together: runs to train side by side on a GPU
        ray: train the runs as tasks on a Ray cluster: HOST:PORT, auto, or local for one on this machine
        skip_held: skip runs that another process is training (default: wait for them)
    """
    from confrank.report.progress import epoch_bar
    from confrank.study.active import ACTIVE_RECIPES, missing_trials, narrowed_active, run_active, stage_runs
    from confrank.study.plans import active_lines

    if table not in ACTIVE_RECIPES:
        chosen = {"datasets": datasets, "models": models, "methods": methods, "training": recipes}
        chosen |= {"out_sets": against, "seeds": seeds, "epochs": epochs}  # type: ignore[dict-item]
        options = {"together": together, "shift": shift, "ray": ray, "skip_held": skip_held}
        options |= {"checkpoint_minutes": checkpoint_minutes}  # type: ignore[dict-item]
        _study_runs(table, chosen, (out, results, weights, root), options, device, dry_run=dry_run)
        return
    others = {
        "models": models,
        "recipes": recipes,
        "against": against,
        "weights": weights,
        "shift": shift,
        "ray": ray,
    }
    for flag, value in others.items():
        if value:
            raise ValueError(
                f"expected --{flag} only for a table of trained runs, but {table} is active learning;"
                f" leave out --{flag}"
            )
    parts = narrowed_active(table, datasets=datasets or [], strategies=methods or [], trials=seeds, epochs=epochs)
    console = make_console(lasting=True)
    for line in active_lines(parts, out, results):
        say(console, line)
    if dry_run:
        return
    runs = [one for part in parts for one in stage_runs(part, missing_trials(part, results))]
    where = device_of(device)
    with epoch_bar(console, sum(one.epochs for one in runs)) as bar:
        for part in parts:
            run_active(
                part, out, results, together=together, root=root, device=where, on_epoch=bar.advance,
                on_note=say_once(console),
            )  # fmt: skip
    say(console, f"results: {results}; table: confrank table stable-al-perf --results {results}")


def _study_runs(
    name: str,
    chosen: dict[str, Any],
    places: tuple[Path, Path, Path | None, Path | None],
    options: dict[str, Any],
    device: str,
    *,
    dry_run: bool,
) -> None:
    """Train runs, average them, and test them against out-sets."""
    from confrank.data.published import locate
    from confrank.report.progress import epoch_bar
    from confrank.runs.outputs import check_folder
    from confrank.study.catalogue import narrowed
    from confrank.study.comparison import ALL, comparison_cells
    from confrank.study.plan import missing_data, plan
    from confrank.study.plans import plan_lines

    out, results, weights, root = places
    wanted, console = plan(*narrowed(name, **chosen, root=root)), make_console(lasting=True)
    if weights is not None:
        check_folder(weights)
    wanted.check(out, results, weights)
    to_train = wanted.to_train(out, results)
    for line in plan_lines(wanted, out, results):
        say(console, line)
    # On a cluster, the data are on other machines.
    missing = [] if options["ray"] else missing_data(wanted, out, results, root)
    if missing:
        say(console, f"data missing: {', '.join(missing)} (--datasets and --against select a part of a study)")
    if dry_run:
        return
    for data in missing:
        locate(data, root)  # raises, and says how to get them
    from confrank.study.grid import run_plan  # imports torch, which a plan does not need

    def flag_or_train(parameter: str) -> str:
        """The flag of a parameter; a study lacks some flags of training, such as --lr."""
        known = parameter in study.__annotations__
        return flag_of(parameter) if known else f"{flag_of(parameter)} of confrank train"

    with epoch_bar(console, sum(config.epochs for config in to_train)) as bar:
        problems = run_plan(
            wanted, out, results, weights=weights, root=root, device=device_of(device, options["ray"]), **options,
            worded=partial(in_words, flag=flag_or_train), on_epoch=bar.advance, on_note=say_once(console),
        )  # fmt: skip
    for problem in problems:
        print(f"confrank: error: {' '.join(problem.splitlines())}", file=sys.stderr)
    # The paper's tables have no other data sets or shorter runs.
    table = name if any(cell.ours for cell in comparison_cells(name, results)) else ALL
    say(console, f"results: {results}; table: confrank table {table} --results {results}")
    if problems:
        sys.exit(1)


@command("research", "how-to/study.md", "confrank table table-clf-perf --format markdown")
def table(
    table: str,
    /,
    *,
    results: OutFolder = Path("results"),
    paper_only: bool = False,
    ours_only: bool = False,
    format: Format = "terminal",  # noqa: A002 - the name of the option
) -> None:
    """Print a table of the paper next to our results.

    Args:
        table: table of the paper or of one of our own studies; all: every classification result, whatever its
            settings; list: names of the tables
        results: folder of result files
        paper_only: print the paper's numbers only
        ours_only: leave out the rows that we have not run
        format: format of the table: terminal, markdown, latex or csv
    """
    from confrank.report.paper_table import render
    from confrank.study.comparison import ALL, RECORD, shown_cells, table_names

    if table == "list":
        print("\n".join(table_names()))
        return
    cells = shown_cells(table, results, paper_only=paper_only, ours_only=ours_only)
    if not paper_only and not any(cell.ours for cell in cells):
        print(
            f"no result in {results} belongs to {table} (same data set, epochs and tuning);"
            f" `confrank table {ALL}` shows every result",
            file=sys.stderr,
        )
        if ours_only:
            return
    only = {"paper_only": paper_only, "ours_only": ours_only}
    print(render(cells, format, **only, width=terminal_width()), end="", file=plain(sys.stdout))
    if format == "terminal" and not paper_only and table != ALL:
        in_brackets = "published" if table == RECORD else "paper's mean±std of five runs"
        gap = "" if table == RECORD else ", gap in the paper's std"
        print(f"ours ({in_brackets}){gap}; runs: the number of our seeds")


@command("research", "how-to/train.md", "confrank report events runs/digits-small-crl-softmax-seed1")
def report(
    figure: str,
    runs: Annotated[list[str] | None, Parameter(metavar="RUN")] = None,
    /,
    *,
    out: Picture | None = None,
    root: Root | None = None,
) -> None:
    """Draw events per sample, metrics over epochs, or curves.

    Args:
        figure: events: histogram of correct events, and the easiest and hardest images of one run; epochs: test AURC
            and NLL over the epochs, for runs trained with --test-every; curves: risk-coverage curves and reliability
            diagrams, averaged over the runs of a method
        runs: run folders, or JSON files of a results folder
        out: figure to write (default: FIGURE.png)
    """
    from confrank.runs.outputs import keep_inputs, keep_out_of_data
    from confrank.study.figures import check_figure, draw

    check_figure(figure)
    if not runs:
        raise ValueError(f"expected run folders after {figure}, but got none; see --help")
    picture = out or Path(f"{figure}.png")
    keep_inputs(runs, picture)
    keep_out_of_data(runs, picture)
    draw(figure, [Path(run) for run in dict.fromkeys(runs)], picture, root)
    print(f"figure: {picture}")

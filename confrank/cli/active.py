"""Active learning: the paper's experiment, and asking for labels in a real pool."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from confrank.cli.command import (
    Arguments,
    Command,
    Parser,
    add_device,
    add_option,
    add_root,
    at_least,
    command_of,
    device_of,
    listed,
    root_of,
)
from confrank.cli.names import with_names
from confrank.cli.pool import QUERY, TRAIN_ON_ANSWERS
from confrank.cli.terminal import make_console, plain, say, say_once, terminal_width
from confrank.runs.outputs import folder_path, keep_inputs, picture_path

if TYPE_CHECKING:
    from rich.console import Console

    from confrank.active.records import Curves

# The fields of an `Experiment`, as flags.
SETTINGS = {
    "dataset": "data set by name, or the path of your own",
    "model": "network by name",
    "stages": "stages, the first random set included",
    "per_stage": "labels to ask for per stage",
    "subset": "choose from N random samples of the pool in each stage",
    "epochs": "passes over the labelled set; each stage trains from scratch",
    "batch_size": "samples per step",
    "lr": "initial learning rate; divided by 10 after 60% and 80% of the epochs",
    "weight_decay": "weight decay",
}


def _run_arguments(parser: Parser) -> None:
    from confrank.active.records import Experiment

    defaults, experiment = Experiment(), parser.add_argument_group("experiment")
    metavars = {str: "NAME", int: "N", float: "X"}
    for name, what in SETTINGS.items():
        default = getattr(defaults, name)
        kind, text = type(default), with_names(what, name)
        add_option(experiment, f"--{name.replace('_', '-')}", kind, metavars[kind], text, default)
    strategies = with_names("strategies to compare, separated by commas, or all", "strategy")
    add_option(experiment, "--strategy", str, "NAME,...", strategies, "all")
    add_option(experiment, "--trials", int, "N", "repetitions, each with its own seeds", 5)
    add_root(experiment)
    output = parser.add_argument_group("output")
    add_option(output, "--out", str, "FOLDER", "folder for the runs (default: runs/NAME, named by the settings)")
    results = "folder for the small result files (default: the folder of --out)"
    add_option(output, "--results", str, "FOLDER", results)
    add_option(output, "--figure", str, "FILE", "figure to draw (default: curves.png in the folder of --out)")
    computing = parser.add_argument_group("computing")
    add_option(computing, "--together", int, "N", "strategies to train side by side on a GPU", 6)
    add_device(computing)


def _run(arguments: Arguments) -> None:
    from confrank.active.experiment import run_experiment
    from confrank.active.records import Experiment, check_results, collect, save_curves
    from confrank.active.strategies import STRATEGIES, get
    from confrank.config import short_name
    from confrank.report.progress import epoch_bar

    names = list(STRATEGIES) if arguments.strategy == "all" else listed(arguments.strategy)
    methods = {name: get(name).method for name in names}
    at_least(1, arguments, "trials", "together")
    experiment = Experiment(**{name: getattr(arguments, name) for name in SETTINGS})
    stem = f"{short_name(experiment.dataset)}-{experiment.model.replace(':', '.')}"
    out = folder_path(arguments.out or f"runs/active-{stem}")
    picture = picture_path(arguments.figure or str(out / "curves.png"))
    trials, console = range(arguments.trials), make_console(lasting=True)
    results = (folder_path(arguments.results) or out) / f"{stem}.json"
    keep_inputs([], picture, results)
    check_results(results, out, experiment.settings(), names, trials, experiment.stages)
    runs = len(trials) * (len({*methods.values()}) + (experiment.stages - 1) * len(methods))
    say(console, f"{runs} runs of {experiment.epochs} epochs in {out} (finished ones are not repeated)")
    with epoch_bar(console, runs * experiment.epochs) as bar:
        run_experiment(
            experiment,
            names,
            trials,
            out,
            together=arguments.together,
            root=root_of(arguments),
            device=device_of(arguments.device),
            on_epoch=bar.advance,
            on_note=say_once(console),
        )
    curves, arrays = collect(out, experiment.settings(), experiment.stages)
    save_curves(results, curves, arrays)
    _show_curves(console, curves, picture)
    say(console, f"numbers: {results}")


def _show_arguments(parser: Parser) -> None:
    parser.add_argument("curves", type=str, metavar="FILE", help="JSON file that `confrank active run` wrote")
    output = parser.add_argument_group("output")
    add_option(output, "--figure", str, "FILE", "draw the curves into this .png, .svg or .pdf")
    output.add_argument("--markdown", action="store_true", help="print a Markdown table")


def _show(arguments: Arguments) -> None:
    from confrank.active.records import load_curves
    from confrank.report.active import active_markdown

    curves = load_curves(Path(arguments.curves))
    picture = picture_path(arguments.figure)
    keep_inputs([arguments.curves], picture)
    if arguments.markdown:
        print(active_markdown(curves.labelled(), curves.values()), end="")
    _show_curves(None if arguments.markdown else make_console(), curves, picture)


def _show_curves(console: "Console | None", curves: "Curves", picture: Path | None) -> None:
    from confrank.report.active import active_figure, active_table
    from confrank.report.paper_table import render
    from confrank.study.comparison import is_comparable
    from confrank.study.tables import active_cells, active_means

    config, values = curves.config, curves.values()
    # The paper's numbers are shown only for the paper's protocol, with any learning rate and weight decay.
    with_paper = is_comparable(curves) and bool(active_means(config["dataset"]))
    if picture is not None:
        count = len(config["trials"])
        title = f"{config['dataset']}, {config['model']}, {count} trial{'s' if count > 1 else ''}"
        paper = active_means(config["dataset"]) if with_paper else None
        active_figure(curves.labelled(), values, picture, title, paper=paper)
    if console is None:
        return
    console.print(active_table(curves.labelled(), values))
    if with_paper:
        print(
            render(active_cells({config["dataset"]: values}), "terminal", ours_only=True, width=terminal_width()),
            end="",
            file=plain(sys.stdout),
        )
    if picture is not None:
        say(console, f"figure: {picture}")


ACTIONS: dict[str, Command] = {
    "run": Command(
        "run the paper's experiment: strategies ask for labels stage by stage",
        "confrank active run --dataset digits --model small --stages 4 --per-stage 60 --subset 300 --epochs 40"
        " --strategy random,least-confidence --trials 1",
        _run_arguments,
        _run,
        guide="how-to/active-learning.md",
    ),
    "show": Command(
        "print and draw the curves of an experiment again",
        "confrank active show results/active/digits-small.json --figure curves.png",
        _show_arguments,
        _show,
        guide="how-to/active-learning.md",
    ),
    "query": QUERY,
    "train": TRAIN_ON_ANSWERS,
}


ACTIVE = command_of(
    ACTIONS,
    "choose what to label next, in your own pool or in the paper's experiment",
    ACTIONS["run"].example,
    guide="how-to/active-learning.md",
)

"""Run the paper's experiments, and print its tables next to our results."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from confrank.cli.command import (
    Arguments,
    Command,
    Format,
    Parser,
    add_checkpoint_minutes,
    add_device,
    add_option,
    add_root,
    at_least,
    check_device,
    device_of,
    listed,
    root_of,
)
from confrank.cli.names import with_names
from confrank.cli.terminal import make_console, plain, say, say_once, terminal_width
from confrank.cli.train import parse_seeds
from confrank.errors import flag_of, in_words
from confrank.runs.outputs import folder_path

if TYPE_CHECKING:
    from confrank.study.plan import Plan


def _study_arguments(parser: Parser) -> None:
    table = "table of the paper, see `confrank table list`, or one of our own studies: reproduction, our part of the"
    table += " classification tables; ood, out-of-distribution detection; active, active learning with a lower"
    table += " learning rate and more weight decay; record, training recipes compared"
    parser.add_argument("name", type=str, metavar="TABLE", help=table)
    runs = parser.add_argument_group("runs")
    methods = "methods (also aes-10, aes-30 and ensemble-METHOD; strategies of active learning)"
    for flag, what in (("dataset", "data sets"), ("model", "networks"), ("method", methods)):
        add_option(runs, f"--{flag}s", str, "NAME,...", with_names(f"only these {what}, separated by commas", flag))
    add_option(runs, "--recipes", str, "NAME,...", "only runs that are trained like this, e.g. best (see train)")
    add_option(runs, "--seeds", str, "N,...", "only these seeds or trials, e.g. 0,1,2 (default: those of the study)")
    against = with_names("only these out-of-distribution data", "images", "dataset")
    add_option(runs, "--against", str, "NAME,...", against)
    epochs = "passes over the training set (default: 300, for texts 20, or those of the recipe)"
    add_option(runs, "--epochs", int, "N", epochs)
    runs.add_argument("--dry-run", action="store_true", help="show the plan and stop")
    add_root(runs)
    output = parser.add_argument_group("output")
    add_option(output, "--out", str, "FOLDER", "folder for the run folders", "runs")
    add_option(output, "--results", str, "FOLDER", "folder for the small result files", "results")
    weights = "also save the trained networks in this folder, in half precision"
    add_option(output, "--weights", str, "FOLDER", weights)
    shift = "also evaluate each network on noisy, blurred and pale test images, and with mirrored images"
    output.add_argument("--shift", action="store_true", help=shift)
    add_checkpoint_minutes(output, 5.0)
    computing = parser.add_argument_group("computing")
    add_option(computing, "--together", int, "N", "runs to train side by side on a GPU", 4)
    ray = "train the runs as tasks on a Ray cluster: HOST:PORT, auto, or local for one on this machine"
    add_option(computing, "--ray", str, "ADDRESS", ray)
    skip = "skip runs that another process is training (default: wait for them)"
    computing.add_argument("--skip-held", action="store_true", help=skip)
    add_device(computing)


def _study(arguments: Arguments) -> None:
    from confrank.study.active import ACTIVE_RECIPES

    at_least(1, arguments, "together")
    at_least(0, arguments, "checkpoint_minutes")
    check_device(arguments.device)
    (_study_active if arguments.name in ACTIVE_RECIPES else _study_runs)(arguments)


def _study_runs(arguments: Arguments) -> None:
    """Train runs, average them, and test them against out-sets."""
    from confrank.cli.plans import plan_lines
    from confrank.data.published import locate
    from confrank.report.progress import epoch_bar
    from confrank.study.plan import missing_data

    wanted, root = _plan(arguments), root_of(arguments)
    out, results, console = Path(arguments.out), Path(arguments.results), make_console(lasting=True)
    weights = folder_path(arguments.weights)
    wanted.check(out, results, weights)
    to_train = wanted.to_train(out, results)
    for line in plan_lines(wanted, out, results):
        say(console, line)
    # On a cluster, the data are on other machines.
    missing = [] if arguments.ray else missing_data(wanted, out, results, root)
    if missing:
        say(console, f"data missing: {', '.join(missing)} (--datasets and --against select a part of a study)")
    if arguments.dry_run:
        return
    for name in missing:
        locate(name, root)  # raises, and says how to get them
    from confrank.study.grid import run_plan  # imports torch, which a plan does not need

    with epoch_bar(console, sum(config.epochs for config in to_train)) as bar:
        problems = run_plan(
            wanted,
            out,
            results,
            together=arguments.together,
            weights=weights,
            shift=arguments.shift,
            root=root,
            device=device_of(arguments.device, arguments.ray),
            ray=arguments.ray,
            checkpoint_minutes=arguments.checkpoint_minutes,
            skip_held=arguments.skip_held,
            worded=partial(in_words, flag=partial(_flag_or_train, arguments)),
            on_epoch=bar.advance,
            on_note=say_once(console),
        )
    for problem in problems:
        print(f"confrank: error: {' '.join(problem.splitlines())}", file=sys.stderr)
    table = _table_of(arguments.name, results)
    say(console, f"results: {results}; table: confrank table {table} --results {results}")
    if problems:
        sys.exit(1)


def _plan(arguments: Arguments) -> "Plan":
    """The plan of the study, reduced to the part that the flags name."""
    from confrank.study.catalogue import narrowed
    from confrank.study.plan import plan

    flags = {"training": "recipes", "out_sets": "against"}
    names = ("datasets", "models", "methods", *flags)
    lists = {name: listed(getattr(arguments, flags.get(name, name))) or None for name in names}
    seeds, epochs = _seeds(arguments), arguments.epochs
    return plan(*narrowed(arguments.name, **lists, seeds=seeds, epochs=epochs, root=root_of(arguments)))


def _flag_or_train(arguments: Arguments, parameter: str) -> str:
    """The flag of a parameter; a study lacks some flags of training, such as --lr."""
    return flag_of(parameter) if parameter in arguments else f"{flag_of(parameter)} of confrank train"


def _seeds(arguments: Arguments) -> list[int] | None:
    return None if arguments.seeds is None else parse_seeds(arguments.seeds, 0)


def _study_active(arguments: Arguments) -> None:
    """Run the stages of active learning, trial by trial."""
    from confrank.cli.plans import active_lines
    from confrank.report.progress import epoch_bar
    from confrank.study.active import missing_trials, narrowed_active, run_active, stage_runs

    for flag in ("models", "recipes", "against", "weights", "shift", "ray"):
        if getattr(arguments, flag):
            raise ValueError(
                f"expected --{flag} only for a table of trained runs, but {arguments.name} is active learning;"
                f" leave out --{flag}"
            )
    lists = {"datasets": listed(arguments.datasets), "strategies": listed(arguments.methods)}
    parts = narrowed_active(arguments.name, **lists, trials=_seeds(arguments), epochs=arguments.epochs)
    out, results, console = Path(arguments.out), Path(arguments.results), make_console(lasting=True)
    for line in active_lines(parts, out, results):
        say(console, line)
    if arguments.dry_run:
        return
    runs = [run for part in parts for run in stage_runs(part, missing_trials(part, results))]
    device = device_of(arguments.device)
    with epoch_bar(console, sum(run.epochs for run in runs)) as bar:
        for part in parts:
            run_active(
                part,
                out,
                results,
                together=arguments.together,
                root=root_of(arguments),
                device=device,
                on_epoch=bar.advance,
                on_note=say_once(console),
            )
    say(console, f"results: {results}; table: confrank table stable-al-perf --results {results}")


def _table_of(study: str, results: Path) -> str:
    """A table that shows results of a study; the paper's tables have no other data sets or shorter runs."""
    from confrank.study.comparison import ALL, comparison_cells

    return study if any(cell.ours for cell in comparison_cells(study, results)) else ALL


def _table_arguments(parser: Parser) -> None:
    table = (
        "table of the paper or of one of our own studies; all: every classification result, whatever its settings;"
    )
    table += " list: names of the tables"
    parser.add_argument("name", type=str, metavar="TABLE", help=table)
    rows = parser.add_argument_group("rows")
    add_option(rows, "--results", str, "FOLDER", "folder of result files", "results")
    rows.add_argument("--paper-only", action="store_true", help="print the paper's numbers only")
    rows.add_argument("--ours-only", action="store_true", help="leave out the rows that we have not run")
    add_option(parser.add_argument_group("output"), "--format", Format, "NAME", "format of the table", "terminal")


def _table(arguments: Arguments) -> None:
    from confrank.report.paper_table import render
    from confrank.study.comparison import ALL, RECORD, comparison_cells, table_names
    from confrank.study.paper import paper_tables
    from confrank.study.tables import table_cells

    if arguments.name == "list":
        print("\n".join(table_names()))
        return
    name, results = arguments.name, Path(arguments.results)
    if name not in table_names():
        raise ValueError(f"expected a table among {', '.join(table_names())}, but got {name!r}")
    if arguments.paper_only and arguments.ours_only:
        raise ValueError("expected --paper-only or --ours-only, but got both")
    if name not in paper_tables() and arguments.paper_only:
        raise ValueError(f"expected a table of the paper for --paper-only, but got {name}")
    if not arguments.paper_only and not results.is_dir():
        raise ValueError(f"expected a folder of results, but {results} is not a folder; --paper-only needs none")
    cells = table_cells(name, []) if arguments.paper_only else comparison_cells(name, results)
    if not cells:
        raise ValueError(f"expected results in {results}, but there are none; `confrank study` writes them")
    if not arguments.paper_only and not any(cell.ours for cell in cells):
        print(
            f"no result in {results} belongs to {name} (same data set, epochs and tuning);"
            f" `confrank table {ALL}` shows every result",
            file=sys.stderr,
        )
        if arguments.ours_only:
            return
    only = {"paper_only": arguments.paper_only, "ours_only": arguments.ours_only}
    print(render(cells, arguments.format, **only, width=terminal_width()), end="", file=plain(sys.stdout))
    if arguments.format == "terminal" and not arguments.paper_only and name != ALL:
        in_brackets = "published" if name == RECORD else "paper's mean±std of five runs"
        gap = "" if name == RECORD else ", gap in the paper's std"
        print(f"ours ({in_brackets}){gap}; runs: the number of our seeds")


STUDY = Command(
    "train and evaluate the missing runs of a table of the paper, or of your own grid",
    "confrank study table-clf-perf --datasets cifar100 --models vgg16 --methods baseline,crl-softmax --seeds 0,1,2",
    _study_arguments,
    _study,
    guide="how-to/study.md",
)

TABLE = Command(
    "print a table of the paper next to our results",
    "confrank table table-clf-perf --format markdown",
    _table_arguments,
    _table,
    guide="how-to/study.md",
)

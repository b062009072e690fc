"""The demo: baseline against CRL on embedded data."""

from typing import TYPE_CHECKING

from confrank.cli.command import Command, at_least, make_console, say, say_once
from confrank.cli.evaluate import compare_sources, write_page
from confrank.cli.paths import folder_path
from confrank.cli.source import read_source

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace


def _demo_arguments(parser: "ArgumentParser") -> None:
    from confrank.study.demo import EPOCHS

    parser.add_argument("--seeds", type=int, default=5, help="runs per method")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="passes over the 900 training images")
    parser.add_argument("--out", type=str, default="demo", help="folder for the runs and the figure")


def _demo(arguments: "Namespace") -> None:
    import torch

    from confrank.analysis import repeats_of
    from confrank.report.plots import comparison_figure
    from confrank.report.progress import epoch_bar
    from confrank.report.table import repeats_table
    from confrank.study.demo import demo_configs, first_runs, load_samples, run_demo

    at_least(1, arguments, "seeds")
    # A network this small gains little from a second thread, and on a busy machine loses all to waiting for it.
    torch.set_num_threads(1)
    out, console = folder_path(arguments.out), make_console(lasting=True)
    configs = demo_configs(range(arguments.seeds), arguments.epochs)
    say(console, f"training {len(configs)} small networks on noisy 8x8 digits (finished ones in {out} are kept)")
    with epoch_bar(console, sum(config.epochs for config in configs)) as bar:
        run_demo(
            configs,
            out,
            on_epoch=lambda config, record: bar.advance(config.run_name, record),
            on_note=say_once(console),
        )
    samples = load_samples(configs, out)
    repeats = repeats_of(samples)
    console.print(repeats_table(repeats, f"digits, small network, {arguments.seeds} seeds, test split"))
    figure = out / "demo.png"
    comparison_figure(samples, figure, f"digits, mean of {arguments.seeds} seeds")
    say(console, f"figure: {figure}; runs: {out}")
    runs = [read_source(str(run)) for run in first_runs(configs, out)]
    seeds = (f"Seed {configs[0].seed} of {arguments.seeds}, test split.", repeats) if arguments.seeds > 1 else ()
    for line in write_page(compare_sources(runs, None, 0), runs, out / "report.html", None, 0, *seeds):
        say(console, line)


DEMO = Command(
    "train baseline and CRL on embedded data and compare them",
    "confrank demo --seeds 5",
    _demo_arguments,
    _demo,
)

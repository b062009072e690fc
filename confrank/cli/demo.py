"""The demo: baseline against CRL on embedded data."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from confrank.cli.command import Arguments, Command, Parser, add_option, at_least, make_console, say, say_once
from confrank.cli.evaluate import compare_sources, write_page
from confrank.cli.paths import folder_path
from confrank.cli.source import read_source
from confrank.errors import counted

if TYPE_CHECKING:
    from confrank.study.demo import Threshold

# On held-out images, by experiments/demo_settings.py.
OVERFITTED = (
    "These networks are trained until they fit every training image; that is where CRL helps. A baseline that stopped"
    " earlier, at a lower learning rate, ranked its answers better than either on held-out images:"
    " experiments/demo_settings_epyc-2core_202611.md"
)
STOPPED_EARLY = (
    "These networks classify {share} of the training images correctly; CRL helps where a network fits all of them,"
    " as in the demo without --epochs."
)


def _demo_arguments(parser: Parser) -> None:
    from confrank.study.demo import EPOCHS, SEEDS

    training = parser.add_argument_group("training")
    add_option(training, "--seeds", int, "N", "networks to train per method", SEEDS)
    add_option(training, "--epochs", int, "N", "passes over the training images", EPOCHS)
    output = parser.add_argument_group("output")
    add_option(output, "--out", str, "FOLDER", "folder for the runs, the figure and the page", "demo")


def _demo(arguments: Arguments) -> None:
    import torch

    from confrank.analysis import repeats_of
    from confrank.environment import keep_freed_memory
    from confrank.report.plots import comparison_figure
    from confrank.report.progress import epoch_bar
    from confrank.report.repeats import repeats_verdict
    from confrank.report.table import repeats_table
    from confrank.study.demo import (
        choose_threshold,
        demo_configs,
        first_runs,
        load_samples,
        run_demo,
        training_accuracy,
    )

    at_least(1, arguments, "seeds")
    # A second thread gains little for a network this small, and on a busy machine it slows training down.
    torch.set_num_threads(1)
    keep_freed_memory()
    out, console = folder_path(arguments.out), make_console(lasting=True)
    configs = demo_configs(range(arguments.seeds), arguments.epochs)
    say(console, f"training {len(configs)} small networks on noisy 8x8 digits; finished runs in {out} are reused")
    with epoch_bar(console, sum(config.epochs for config in configs)) as bar:
        run_demo(
            configs,
            out,
            on_epoch=bar.advance,
            on_note=say_once(console),
        )
    test, held_out = load_samples(configs, out), load_samples(configs, out, "holdout")
    repeats = repeats_of(test)
    seeds = counted(arguments.seeds, "seed")
    if arguments.seeds > 1:
        say(console, *repeats_verdict(repeats))
    console.print(repeats_table(repeats, f"digits, three-layer perceptron, {seeds}, test split"))
    figure = out / "demo.png"
    comparison_figure(test, figure, f"digits, mean of {seeds}")
    say(console, f"figure: {figure}; runs: {out}")
    thresholds = {name: list(map(choose_threshold, held_out[name], test[name])) for name in test}
    runs = [read_source(str(run)) for run in first_runs(configs, out)]
    lines = threshold_lines(thresholds, held_out=len(held_out[configs[0].method][0].correct))
    note = f"Seed {configs[0].seed} of {arguments.seeds}, test split. {lines[0]}"
    all_seeds = repeats if arguments.seeds > 1 else None
    compared = compare_sources(runs, None, 0)
    lines += write_page(compared, runs, out / "report.html", None, note=note, repeats=all_seeds)
    say(console, *lines[:-1], _fit_line(training_accuracy(configs, out)), lines[-1])


def _fit_line(accuracy: float) -> str:
    """Whether the networks fit their training images, in words."""
    share = f"{accuracy:.0%}"
    return OVERFITTED if share == "100%" else STOPPED_EARLY.format(share=share)


def threshold_lines(thresholds: "Mapping[str, Sequence[Threshold | None]]", held_out: int) -> list[str]:
    """The guaranteed threshold of the last method's first network in words, then what each method accepts."""
    from confrank.study.demo import DELTA, RISK

    (*_, (method, (first, *_))) = thresholds.items()
    guarantee = f"an error rate of at most {RISK:.0%} among accepted answers, with {1 - DELTA:.0%} probability"
    if first is None:
        return [f"Threshold: none on the {held_out} held-out images guarantees {guarantee}, for {method}, seed 0."]
    chosen, test = first.chosen, first.test
    first_line = (
        f"Threshold: accept an answer of {method}, seed 0, if its confidence is at least {chosen.threshold:.6g}. This"
        f" guarantees {guarantee}. It was chosen on {chosen.num_samples:,} images held out of training. On the"
        f" {test.num_samples:,} test images it accepts {test.coverage:.1%} of the answers; {test.risk or 0:.1%}"
        " of the accepted ones are wrong."
    )
    return [first_line, *(_accepted(name, points) for name, points in thresholds.items())]


def _accepted(name: str, thresholds: "Sequence[Threshold | None]") -> str:
    """What the guaranteed thresholds of a method's networks accept of the test images; without one, nothing."""
    from confrank.analysis.repeats import summarise
    from confrank.report.scales import with_spread

    points = [one.test for one in thresholds if one is not None]
    shares = summarise([0.0 if one is None else one.test.coverage or 0.0 for one in thresholds])
    accepted, wrong = sum(point.accepted for point in points), sum(point.wrong for point in points)
    none = " (0% without a guarantee)" if len(points) < len(thresholds) else ""
    share = with_spread(shares.mean, shares.std, 100, mark=" ± ")
    return (
        f"  {name}: {len(points)} of {len(thresholds)} networks can guarantee it. On average, a network accepts"
        f" {share}% of the test answers{none}; {wrong / max(accepted, 1):.1%} of the accepted ones are wrong"
    )


DEMO = Command(
    "train a baseline and a CRL network on embedded data, and compare them",
    "confrank demo --seeds 6",
    _demo_arguments,
    _demo,
    guide="tutorial.md",
)

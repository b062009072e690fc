"""Active learning on your own pool: which samples to label next, and training on the labels."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from confrank.cli.command import Command, add_device, add_text, at_least, device_of, make_console, say
from confrank.cli.names import with_names
from confrank.cli.paths import csv_path, keep_inputs, keep_out_of_data
from confrank.cli.train import show_runs
from confrank.phrasing import counted

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace
    from jsonargparse._core import ArgumentGroup

SHEET_IMAGES = 100


def _add_pool_flags(parser: "ArgumentParser") -> "ArgumentGroup":
    data = parser.add_argument_group("data")
    data.add_argument(
        "--pool",
        type=str,
        required=True,
        metavar="PATH",
        help="folder of images, .npz file with images, or, for a query, a file of predictions",
    )
    add_text(data, "--labelled", "FILE", "CSV with the columns path and label")
    data.add_argument(
        "--image-size",
        type=int | None,
        default=None,
        help="crop images to their central square and scale it to N pixels",
    )
    return data


def _query_arguments(parser: "ArgumentParser") -> None:
    parser.add_argument(
        "run",
        type=str | None,
        nargs="?",
        default=None,
        metavar="RUN",
        help="run folder; not needed for a file of predictions",
    )
    _add_pool_flags(parser)
    choice = parser.add_argument_group("choice")
    choice.add_argument("--count", type=int, default=500, help="number of samples to ask for")
    choice.add_argument(
        "--strategy",
        type=str,
        default="least-confidence",
        metavar="NAME",
        help=with_names("how to choose them", "strategy"),
    )
    choice.add_argument("--subset", type=int | None, default=None, help="choose from N random samples of the pool")
    choice.add_argument("--seed", type=int, default=0, help="seed of ties, random choices and the subset")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out",
        type=str,
        default="to_label.csv",
        metavar="FILE",
        help="CSV to write; a contact sheet is written next to it",
    )
    add_device(parser.add_argument_group("computing"))


def _query(arguments: "Namespace") -> None:
    from confrank.active.labelled import check_replaceable, read_labelled
    from confrank.active.query import ask_pool, forget_scores, write_question
    from confrank.report.contact import CELL, contact_sheet
    from confrank.report.progress import sample_bar

    at_least(1, arguments, "count", "subset")
    at_least(0, arguments, "seed")
    out, console = csv_path(arguments.out), make_console()
    keep_inputs(filter(None, [arguments.pool, arguments.labelled, arguments.run]), out)
    sheet, pool = out.with_suffix(".png"), Path(arguments.pool)
    keep_out_of_data([pool], sheet)
    if sheet.exists() and not out.exists():
        raise ValueError(
            f"expected to write a contact sheet next to {out}, but {sheet} is another picture; choose another --out"
        )
    note = partial(say, console)
    labelled = None if arguments.labelled is None else read_labelled(Path(arguments.labelled), note)
    check_replaceable(out, labelled)
    scores = out.with_name(f".{out.name}.scores")
    with sample_bar(console, "scoring") as advance:
        question = ask_pool(
            Path(arguments.pool),
            labelled,
            arguments.strategy,
            arguments.count,
            run=None if arguments.run is None else Path(arguments.run),
            scores=scores,
            subset=arguments.subset,
            seed=arguments.seed,
            image_size=arguments.image_size,
            device=device_of(arguments.device),
            on_note=note,
            on_progress=advance,
        )
    pictures = question.pictures(SHEET_IMAGES, CELL)
    write_question(out, question)
    if pictures:
        contact_sheet(pictures, sheet)
        note(f"contact sheet of the first {len(pictures)}: {sheet}")
    forget_scores(scores)
    note(f"{counted(len(question.names), 'sample')} to label, most useful first: {out}")


def _train_arguments(parser: "ArgumentParser") -> None:
    data = _add_pool_flags(parser)
    add_text(data, "--test", "FILE", "CSV of samples to test on, with the columns path and label")
    data.add_argument(
        "--test-share",
        type=float,
        default=0.2,
        metavar="SHARE",
        help="without --test: share of the labelled samples to test on",
    )
    network = parser.add_argument_group("network and method")
    network.add_argument(
        "--model", type=str, default="resnet18", metavar="NAME", help=with_names("network by name", "model")
    )
    network.add_argument(
        "--method",
        type=str,
        default="crl-softmax",
        metavar="NAME",
        help=with_names("what to train and how it predicts", "method"),
    )
    training = parser.add_argument_group("training")
    training.add_argument("--epochs", type=int, default=200, help="passes over the labelled samples")
    training.add_argument("--batch-size", type=int, default=128, help="samples per step")
    training.add_argument(
        "--lr", type=float, default=0.1, help="initial learning rate; divided by 10 after 60% and 80% of the epochs"
    )
    training.add_argument(
        "--seed", type=int, default=0, help="seed of the initial weights, the sample order and the augmentation"
    )
    training.add_argument(
        "--padding",
        type=int | None,
        default=None,
        help="shift images at random by up to N pixels (default: 4 for colour images, else 0)",
    )
    training.add_argument(
        "--flip",
        type=bool | None,
        nargs="?",
        const=True,
        default=None,
        help="mirror half of the images left to right (default: for colour images only)",
    )
    add_text(
        parser.add_argument_group("output"),
        "--out",
        "FOLDER",
        "run folder (default: runs/NAME, named by the settings and the number of labels)",
    )
    add_device(parser.add_argument_group("computing"))


def _train(arguments: "Namespace") -> None:
    from confrank.active.labelled import read_labelled
    from confrank.active.labelled_set import check_labels, labelled_set, write_labels
    from confrank.config import RunConfig
    from confrank.report.progress import epoch_bar
    from confrank.training import train

    if arguments.labelled is None:
        raise ValueError("expected --labelled with the labels so far, but got none")
    console, pool = make_console(lasting=True), Path(arguments.pool)
    note = partial(say, console)
    names = ("model", "method", "epochs", "batch_size", "lr", "seed", "image_size", "padding", "flip")
    config = RunConfig(dataset=str(pool), lr_drops=(0.6, 0.8), **{name: getattr(arguments, name) for name in names})
    labelled = read_labelled(Path(arguments.labelled), note)
    if labelled.waiting:
        note(f"skipping {counted(len(labelled.waiting), 'sample')} without a label yet")
    test = None if arguments.test is None else read_labelled(Path(arguments.test), note)
    data = labelled_set(pool, labelled, test, share=arguments.test_share, image_size=arguments.image_size)
    out = Path(arguments.out or f"runs/{config.run_name}-{len(labelled.labels)}labels")
    check_labels(out, labelled)
    note(
        f"training on {len(data.train)} samples of {data.num_classes} classes, testing on {len(data.test)}, in {out}"
    )
    with epoch_bar(console, config.epochs) as bar:
        finished = train(
            config,
            out,
            data=data,
            device=device_of(arguments.device),
            on_start=lambda job: write_labels(out, labelled),
            on_epoch=lambda config, record: bar.advance(config.run_name, record),
            on_note=note,
        )
    show_runs(console, [finished])
    note(f"next: confrank active query {out} --pool {pool} --labelled {arguments.labelled}")


QUERY = Command(
    "choose which samples of a pool to label next, as a CSV to fill in and a contact sheet",
    "confrank active query runs/mine --pool pool/ --labelled labelled.csv --count 500 --out to_label.csv",
    _query_arguments,
    _query,
    guide="how-to/active-learning.md",
)

TRAIN_ON_ANSWERS = Command(
    "train from scratch on all labelled samples of a pool",
    "confrank active train --pool pool/ --labelled labelled.csv --out runs/round2",
    _train_arguments,
    _train,
    guide="how-to/active-learning.md",
)

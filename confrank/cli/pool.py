"""Active learning on your own pool: which samples to label next, and training on the labels."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confrank.cli.command import Arguments, Command, Parser, add_device, add_option, at_least, device_of
from confrank.cli.names import with_names
from confrank.cli.terminal import make_console, say
from confrank.cli.train import show_runs
from confrank.config import TEXT_LENGTH, VOCABULARY_SIZE
from confrank.errors import counted
from confrank.recipes import TEXT_DEFAULTS, image_defaults
from confrank.runs.outputs import csv_path, keep_inputs, keep_out_of_data

if TYPE_CHECKING:
    from jsonargparse._core import ArgumentGroup

    from confrank.active.labelled import Labelled
    from confrank.config import RunConfig

SHEET_IMAGES = 100
TEXT_EPOCHS = 200


def _add_pool_options(parser: Parser, *, trains: bool = False) -> "ArgumentGroup":
    """Add what a pool is and which labels it has; training needs both, a query also takes predictions as a pool."""
    data = parser.add_argument_group("data")
    pool = "folder of images, .npz file of images, or .csv, .tsv or .jsonl file of texts"
    pool += "" if trains else "; or a file of predictions (.npz, .safetensors, .csv)"
    data.add_argument("--pool", type=str, required=True, metavar="PATH", help=pool)
    labelled, kind = "CSV with the columns path (for texts, id) and label", str if trains else str | None
    data.add_argument("--labelled", type=kind, required=trains, metavar="FILE", help=labelled)
    add_option(data, "--image-size", int, "N", "crop images to their central square and scale it to N pixels")
    return data


def _query_arguments(parser: Parser) -> None:
    run = "run folder; not needed for a file of predictions"
    parser.add_argument("run", type=str | None, nargs="?", default=None, metavar="RUN", help=run)
    _add_pool_options(parser)
    choice = parser.add_argument_group("choice")
    add_option(choice, "--count", int, "N", "number of samples to ask for", 500)
    strategies = with_names("how to choose them", "strategy")
    add_option(choice, "--strategy", str, "NAME", strategies, "least-confidence")
    add_option(choice, "--subset", int, "N", "choose from N random samples of the pool")
    add_option(choice, "--seed", int, "N", "seed of ties, random choices and the subset", 0)
    output = parser.add_argument_group("output")
    out = "CSV to write; for images, a contact sheet is written next to it"
    add_option(output, "--out", str, "FILE", out, "to_label.csv")
    add_device(parser.add_argument_group("computing"))


def _query(arguments: Arguments) -> None:
    from confrank.active.labelled import read_labelled
    from confrank.active.query import ask_pool, asking, write_question
    from confrank.report.contact import CELL, contact_sheet
    from confrank.report.progress import sample_bar

    at_least(1, arguments, "count", "subset")
    at_least(0, arguments, "seed")
    out, console = csv_path(arguments.out), make_console()
    sheet, pool = out.with_suffix(".png"), Path(arguments.pool)
    keep_out_of_data([pool], sheet)
    keep_inputs([arguments.pool, arguments.labelled, arguments.run], out, sheet)
    if sheet.exists() and not out.exists():
        raise ValueError(
            f"expected to write a contact sheet next to {out}, but {sheet} is another picture; choose another --out"
        )
    note = partial(say, console)
    labelled = None if arguments.labelled is None else read_labelled(Path(arguments.labelled), note)
    with asking(out, labelled) as scores:
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
        like = pool if arguments.labelled is None else Path(arguments.labelled)
        write_question(out, question, like if like.suffix.lower() == ".csv" else None)
        if pictures:
            contact_sheet(pictures, sheet)
            note(f"contact sheet of the first {len(pictures)}: {sheet}")
    order = "in random order" if arguments.strategy == "random" else "most useful first"
    note(f"{counted(len(question.names), 'sample')} to label, {order}: {out}")


def _train_arguments(parser: Parser) -> None:
    data = _add_pool_options(parser, trains=True)
    add_option(data, "--test", str, "FILE", "CSV of samples to test on, with the columns of --labelled")
    test_share = "without --test: share of the labelled samples to test on"
    add_option(data, "--test-share", float, "SHARE", test_share, 0.2)
    network = parser.add_argument_group("network and method")
    models = "network by name (default: convnet, for texts bag-of-embeddings)"
    add_option(network, "--model", str, "NAME", with_names(models, "model"))
    methods = "what to train and how it predicts (default: baseline)"
    add_option(network, "--method", str, "NAME", with_names(methods, "method"))
    training = parser.add_argument_group("training")
    epochs = "passes over the labelled samples (default: 20 to 60, or more if they are few, for texts 200)"
    add_option(training, "--epochs", int, "N", epochs)
    add_option(training, "--batch-size", int, "N", "samples per step (default: 32, for texts and with sgd 128)")
    add_option(training, "--optimizer", str, "NAME", "sgd or adamw (default: adamw)")
    lr = "initial learning rate; divided by 10 after 60% and 80% of the epochs"
    lr += " (default: 0.001, for texts 0.003; for images with sgd 0.1)"
    add_option(training, "--lr", float, "X", lr)
    add_option(training, "--seed", int, "N", "seed of the initial weights, the sample order and the augmentation", 0)
    padding = "shift images at random by up to N pixels (default: 4 for colour images, else 0)"
    add_option(training, "--padding", int, "N", padding)
    flip = "mirror half of the images left to right (default: for colour images only)"
    training.add_argument("--flip", type=bool | None, nargs="?", const=True, default=None, help=flip)
    texts = parser.add_argument_group("texts")
    add_option(texts, "--text-length", int, "N", "words of each text to use", TEXT_LENGTH)
    add_option(texts, "--vocabulary-size", int, "N", "most frequent words to know", VOCABULARY_SIZE)
    out = "run folder (default: runs/NAME, named by the settings and the number of labels)"
    add_option(parser.add_argument_group("output"), "--out", str, "FOLDER", out)
    add_device(parser.add_argument_group("computing"))


def _train(arguments: Arguments) -> None:
    from confrank.active.labelled import read_labelled
    from confrank.active.labelled_set import check_labels, labelled_set, write_labels
    from confrank.active.pool import kind_of
    from confrank.report.progress import epoch_bar
    from confrank.training import train

    console, pool = make_console(lasting=True), Path(arguments.pool)
    note = partial(say, console)
    labelled = read_labelled(Path(arguments.labelled), note)
    config = _config(arguments, kind_of(pool), labelled)
    if labelled.waiting:
        note(f"skipping {counted(len(labelled.waiting), 'sample')} without a label yet")
    test = None if arguments.test is None else read_labelled(Path(arguments.test), note)
    data = labelled_set(pool, labelled, test, share=arguments.test_share, **config.reading)
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
            on_epoch=bar.advance,
            on_note=note,
        )
    show_runs(console, [finished])
    note(f"next: confrank active query {out} --pool {pool} --labelled {arguments.labelled}")


def _config(arguments: Arguments, kind: str, labelled: "Labelled") -> "RunConfig":
    from confrank.config import RunConfig

    names = ("model", "method", "epochs", "batch_size", "optimizer", "lr", "seed", "image_size", "padding", "flip")
    given = {name: getattr(arguments, name) for name in (*names, "text_length", "vocabulary_size")}
    chosen = {name: value for name, value in given.items() if value is not None}
    usual = {**TEXT_DEFAULTS, "epochs": TEXT_EPOCHS} if kind == "text" else _for_images(chosen, arguments, labelled)
    return RunConfig(dataset=str(Path(arguments.pool)), lr_drops=(0.6, 0.8), **{**usual, **chosen})


def _for_images(given: dict[str, Any], arguments: Arguments, labelled: "Labelled") -> dict[str, Any]:
    """The defaults for the labelled images of a pool."""
    from confrank.data.extent import usual_image_size

    pool, share = Path(arguments.pool), arguments.test_share if arguments.test is None else 0.0
    usual = image_defaults(round(len(labelled.labels) * (1 - share)), given)
    size = usual_image_size(pool / name for name in labelled.labels) if pool.is_dir() else None
    return {**usual, "image_size": size}


QUERY = Command(
    "choose which samples of a pool to label next, as a CSV to fill in and, for images, a contact sheet",
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

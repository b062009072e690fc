"""Train networks, and write a run's predictions."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from confrank.cli.command import (
    Command,
    add_device,
    add_root,
    at_least,
    device_of,
    list_unreadable,
    listed,
    make_console,
    root_of,
    say,
    say_once,
)
from confrank.cli.paths import csv_path, keep_inputs, safetensors_path

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace
    from rich.console import Console

    from confrank.training import Finished
    from confrank.training.jobs import Job

Split = Literal["test", "train", "holdout"]


def _train_arguments(parser: "ArgumentParser") -> None:
    from confrank.config import RunConfig

    parser.add_argument("--config", action="config", help="read settings from a YAML file, e.g. a run's config.yaml")
    for item in dataclasses.fields(RunConfig):
        switch: dict[str, Any] = {"nargs": "?", "const": True} if item.type in (bool, bool | None) else {}
        shares = item.name == "lr_drops"
        parser.add_argument(
            f"--{item.name.replace('_', '-')}",
            type=item.type | str if shares else item.type,
            default=item.default,
            help=f"{item.metadata['help']}, e.g. 0.5,0.8" if shares else item.metadata["help"],
            **switch,
        )
    add_root(parser)
    add_device(parser)
    parser.add_argument(
        "--seeds",
        type=str | None,
        default=None,
        help="several runs, e.g. 0,1,2,3: at once on a GPU, in turn elsewhere",
    )
    parser.add_argument(
        "--out",
        type=str | None,
        default=None,
        help="run folder, or with --seeds the folder of run folders (default: runs/ and a telling name)",
    )
    parser.add_argument(
        "--checkpoint-minutes", type=float, default=2.0, help="save at least this often, and at the end"
    )
    parser.add_argument("--checkpoint-epochs", type=int, default=0, help="also save every so many epochs (0: never)")
    parser.add_argument(
        "--path",
        type=Literal["auto", "plain"],
        default="auto",
        help="plain: eager float32 on a GPU too; auto: captured graphs in bfloat16 there",
    )
    parser.add_argument(
        "--deterministic",
        type=bool,
        nargs="?",
        const=True,
        default=False,
        help="only deterministic algorithms on a GPU (slower)",
    )


def _train(arguments: "Namespace") -> None:
    import torch

    from confrank.config import RunConfig
    from confrank.report.progress import epoch_bar
    from confrank.training import Failed, train_together

    names = [item.name for item in dataclasses.fields(RunConfig)]
    settings = {name: getattr(arguments, name) for name in names}
    config = RunConfig(**{**settings, "lr_drops": _shares(arguments.lr_drops)})
    configs = [dataclasses.replace(config, seed=seed) for seed in parse_seeds(arguments.seeds, config.seed)]
    parent = Path(arguments.out or "runs")
    outs = [parent / item.run_name for item in configs]
    if arguments.out and arguments.seeds is None:
        outs = [parent]
    torch.use_deterministic_algorithms(arguments.deterministic, warn_only=True)
    at_least(0, arguments, "checkpoint_minutes", "checkpoint_epochs")
    console = make_console(lasting=True)

    def announce(job: "Job") -> None:
        what = "finished already:" if job.run.finished else "training"
        say(console, f"{what} {job.run.config.run_name} in {job.folder.path}")

    with epoch_bar(console, sum(item.epochs for item in configs)) as bar:
        results = train_together(
            configs,
            outs,
            root=root_of(arguments),
            device=device_of(arguments.device),
            path=arguments.path,
            checkpoint_minutes=arguments.checkpoint_minutes,
            checkpoint_epochs=arguments.checkpoint_epochs,
            on_start=announce,
            on_epoch=lambda config, record: bar.advance(config.run_name, record),
            on_note=say_once(console),
        )
    failures = [result for result in results if isinstance(result, Failed)]
    show_runs(console, [result for result in results if not isinstance(result, Failed)])
    for failure in failures[1:]:
        say(console, f"{failure.folder.path}: {failure.why}")
    if failures:
        raise failures[0].error


def _shares(given: tuple[float, ...] | str) -> tuple[float, ...]:
    """The numbers of a --lr-drops flag: the parser has read a list in brackets, but not one without."""
    try:
        return tuple(map(float, listed(given) if isinstance(given, str) else given))
    except ValueError:
        raise ValueError(f"expected --lr-drops to be numbers like 0.5,0.8, but got {given!r}") from None


def parse_seeds(text: str | None, default: int) -> list[int]:
    """The numbers of a --seeds flag."""
    if text is None:
        return [default]
    try:
        seeds = [int(part) for part in listed(text)]
    except ValueError:
        seeds = []
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"expected --seeds to be distinct whole numbers like 0,1,2,3, but got {text!r}")
    return seeds


def show_runs(console: "Console", results: "Sequence[Finished]") -> None:
    """Where finished runs lie, and how well they do."""
    from confrank.report.table import evaluation_table
    from confrank.report.verdict import footnotes

    evaluations = {}
    for result in results:
        for split, evaluation in result.evaluations.items():
            evaluations[split if len(results) == 1 else f"{result.folder.path.name} {split}"] = evaluation
        say(console, f"metrics: {result.folder.metrics}; predictions: {result.folder.predictions('test')}")
    if evaluations:
        console.print(evaluation_table(evaluations))
    for line in footnotes(evaluations.items()):
        say(console, line, style="dim")


def _predict_arguments(parser: "ArgumentParser") -> None:
    parser.add_argument("run", type=str, help="run folder, or a .safetensors file that `study --weights` wrote")
    parser.add_argument("--split", type=Split | None, default=None, help="which images (default: test)")
    parser.add_argument(
        "--images", type=str | None, default=None, help="folder of new pictures to answer instead, into a CSV"
    )
    parser.add_argument(
        "--threshold", type=float | None, default=None, help="with --images: accept answers from this confidence on"
    )
    add_root(parser)
    add_device(parser)
    parser.add_argument(
        "--out",
        type=str | None,
        default=None,
        help="file to write (default: predictions/ in the run folder, or beside the weights; answers.csv here)",
    )


def _predict(arguments: "Namespace") -> None:
    from confrank.config import RunFolder
    from confrank.predict import predict
    from confrank.predictions import save_predictions
    from confrank.report.progress import sample_bar

    if arguments.images is not None:
        return _answer(arguments)
    if arguments.threshold is not None:
        raise ValueError("expected --threshold together with --images; `confrank threshold` judges one on a split")
    run, wanted = Path(arguments.run), arguments.split or "test"
    beside = run.with_name(f"{run.stem}-{wanted}-predictions.safetensors")
    usual = beside if run.suffix == ".safetensors" else RunFolder(run).predictions(wanted)
    out = safetensors_path(arguments.out) or usual
    others = [RunFolder(run).predictions(split) for split in get_args(Split) if split != wanted]
    keep_inputs([run, *others], out)
    root, device = root_of(arguments), device_of(arguments.device)
    with sample_bar(make_console(), "predicting") as advance:
        predictions = predict(run, wanted, root=root, device=device, on_progress=advance)
    save_predictions(out, predictions)
    print(f"wrote {predictions.describe()} to {out}")


def _answer(arguments: "Namespace") -> None:
    """Answers to new pictures; those that cannot be read are told, and are no reason to lose the others."""
    from confrank.files import write_atomically
    from confrank.predict import predict_images
    from confrank.report.progress import sample_bar

    if arguments.split is not None:
        raise ValueError(f"expected either --split or --images, but got both: {arguments.split}, {arguments.images}")
    run, out, threshold = Path(arguments.run), csv_path(arguments.out or "answers.csv"), arguments.threshold
    keep_inputs([run], out)
    _check_answers(out)
    root, device, console = root_of(arguments), device_of(arguments.device), make_console()
    with sample_bar(console, "predicting") as advance:
        answers = predict_images(run, arguments.images, root=root, device=device, on_progress=advance)
    write_atomically(out, answers.as_csv(threshold))
    for note in answers.notes:
        say(console, note)
    sure = "" if threshold is None else f", {answers.accepted(threshold).sum():,} of them accepted"
    many = "s" * (len(answers.paths) != 1)
    say(console, f"answers to {len(answers.paths):,} picture{many}{sure}: {out}")
    if bad := answers.unreadable:
        list_unreadable(console, bad)
        raise ValueError(
            f"expected pictures that can be read, but {len(bad):,} of {len(bad) + len(answers.paths):,} cannot, see"
            f" above; {out} has the answers to the others"
        )


def _check_answers(out: Path) -> None:
    """Raise if the file to write is there and holds something other than answers."""
    from confrank.predict import ANSWER_COLUMNS

    if out.exists():
        with out.open(errors="replace") as file:
            if not file.readline().startswith(",".join(ANSWER_COLUMNS)):
                raise ValueError(f"expected a new file or one of answers to write, but {out} holds something else")


TRAIN = Command(
    "train a network, or go on where training stopped",
    "confrank train --dataset digits --model small --method crl-softmax --epochs 60 --seed 1",
    _train_arguments,
    _train,
)


PREDICT = Command(
    "write a run's predictions for a split, or its answers to new pictures",
    "confrank predict runs/digits-small-crl-softmax-seed1 --images new/ --threshold 0.97 --out answers.csv",
    _predict_arguments,
    _predict,
)

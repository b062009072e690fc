"""Write a run's predictions for a split, or its answers to new pictures."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from confrank.cli.command import Command, add_device, add_root, device_of, list_unreadable, make_console, root_of, say
from confrank.cli.paths import csv_path, keep_inputs, safetensors_path
from confrank.phrasing import counted

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

Split = Literal["test", "train", "holdout"]


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
    from confrank.predict import predict
    from confrank.predictions import save_predictions
    from confrank.report.progress import sample_bar
    from confrank.run_folder import RunFolder

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
    from confrank.atomic import write_atomically
    from confrank.classify_images import answer
    from confrank.report.progress import sample_bar

    if not arguments.images:
        raise ValueError("expected a folder for --images, but got nothing")
    if arguments.split is not None:
        raise ValueError(f"expected either --split or --images, but got both: {arguments.split}, {arguments.images}")
    run, out, threshold = Path(arguments.run), csv_path(arguments.out or "answers.csv"), arguments.threshold
    keep_inputs([run], out)
    _check_answers(out)
    root, device, console = root_of(arguments), device_of(arguments.device), make_console()
    with sample_bar(console, "predicting") as advance:
        answers = answer(run, arguments.images, root=root, device=device, on_progress=advance)
    write_atomically(out, answers.as_csv(threshold).encode(errors="surrogateescape"))  # paths as they are
    for note in answers.notes:
        say(console, note)
    sure = "" if threshold is None else f", {answers.accepted(threshold).sum():,} of them accepted"
    say(console, f"answers to {counted(len(answers.paths), 'picture')}{sure}: {out}")
    if bad := answers.unreadable:
        list_unreadable(console, bad)
        raise ValueError(
            f"expected pictures that can be read, but {len(bad):,} of {len(bad) + len(answers.paths):,} cannot, see"
            f" above; {out} has the answers to the others"
        )


def _check_answers(out: Path) -> None:
    """Raise if the file to write is there and holds something other than answers."""
    from confrank.classify_images import COLUMNS

    if out.is_file():
        with out.open(errors="replace") as file:
            header = file.readline().rstrip("\n")
            if header and header not in (",".join(COLUMNS), ",".join((*COLUMNS, "accepted"))):
                raise ValueError(f"expected a new file or one of answers to write, but {out} holds something else")


PREDICT = Command(
    "write a run's predictions for a split, or its answers to new pictures",
    "confrank predict runs/digits-small-crl-softmax-seed1 --images new/ --threshold 0.97 --out answers.csv",
    _predict_arguments,
    _predict,
)

"""Write the predictions of a run for a split, or classify new images or texts."""

from pathlib import Path
from typing import Literal, get_args

from confrank.cli.command import Arguments, Command, Parser, add_device, add_option, add_root, device_of, root_of
from confrank.cli.terminal import list_unreadable, make_console, say
from confrank.errors import counted
from confrank.runs.outputs import csv_path, keep_inputs, safetensors_path

Split = Literal["test", "train", "holdout"]


def _predict_arguments(parser: Parser) -> None:
    run = "run folder, or a .safetensors file that `study --weights` wrote"
    parser.add_argument("run", type=str, metavar="RUN", help=run)
    images = parser.add_argument_group("images or texts")
    split = "split of the data set that the run was trained on: test, train or holdout (default: test)"
    add_option(images, "--split", Split, "NAME", split)
    add_option(images, "--images", str, "FOLDER", "classify the images in this folder instead")
    texts = "classify the texts in this .csv, .tsv or .jsonl file (columns text and, optionally, id) instead"
    add_option(images, "--texts", str, "FILE", texts)
    threshold = "with --images or --texts: accept predictions with at least this confidence"
    add_option(images, "--threshold", float, "CONFIDENCE", threshold)
    add_option(images, "--policy", str, "FILE", "answer by this policy, and write the answers (.csv)")
    add_root(images)
    out = (
        "file to write (default: predictions/SPLIT.safetensors in the run folder, or next to the weights;"
        " answers.csv for --images, --texts or --policy)"
    )
    add_option(parser.add_argument_group("output"), "--out", str, "FILE", out)
    add_device(parser.add_argument_group("computing"))


def _predict(arguments: Arguments) -> None:
    (_predict_split if arguments.images is None and arguments.texts is None else _answer)(arguments)


def _predict_split(arguments: Arguments) -> None:
    """The predictions for a split of the run's data set, or the answers of a policy to them."""
    from confrank.decisions.answers import check_answers, write_answers
    from confrank.decisions.policy import Policy
    from confrank.predictions import save_predictions
    from confrank.report.progress import sample_bar
    from confrank.runs.folder import RunFolder
    from confrank.runs.trained import predict

    if arguments.threshold is not None:
        raise ValueError(
            "expected --threshold only with --images or --texts; to measure one on a split, run confrank threshold"
        )
    run, wanted = Path(arguments.run), arguments.split or "test"
    policy = None if arguments.policy is None else Policy.load(arguments.policy)
    if policy is None:
        next_to_weights = run.with_name(f"{run.stem}-{wanted}-predictions.safetensors")
        usual = next_to_weights if run.suffix == ".safetensors" else RunFolder(run).predictions(wanted)
        out = safetensors_path(arguments.out) or usual
    else:
        out = csv_path(arguments.out or "answers.csv")
        check_answers(out)
    others = [RunFolder(run).predictions(split) for split in get_args(Split) if split != wanted]
    keep_inputs([run, arguments.policy, *others], out)
    root, device, console = root_of(arguments), device_of(arguments.device), make_console()
    with sample_bar(console, "predicting") as advance:
        predictions = predict(run, wanted, root=root, device=device, on_progress=advance)
    if policy is None:
        save_predictions(out, predictions)
        print(f"wrote {predictions.describe()} to {out}")
    else:
        say(console, *write_answers(out, policy, predictions, policy.apply(predictions)))


def _answer(arguments: Arguments) -> None:
    """Classify new images or texts; unreadable ones are listed at the end and do not stop the others."""
    from confrank.classify_images import answer
    from confrank.classify_texts import answer_texts
    from confrank.decisions.answers import check_answers, write_answers
    from confrank.decisions.policy import Policy
    from confrank.files import write_atomically
    from confrank.report.progress import sample_bar

    given = {name: getattr(arguments, name) for name in ("images", "texts", "split")}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) > 1:
        flags = " or ".join(f"--{name}" for name in reversed(given))
        raise ValueError(f"expected either {flags}, but got both: {', '.join(reversed(given.values()))}")
    ((kind, source),) = given.items()
    if not source:
        raise ValueError(f"expected a {'folder' if kind == 'images' else 'file'} for --{kind}, but got nothing")
    run, out, threshold = Path(arguments.run), csv_path(arguments.out or "answers.csv"), arguments.threshold
    if threshold is not None and not 0 <= threshold <= 1:
        hint = f"; did you mean {threshold / 100:g}?" if 1 < threshold <= 100 else ""
        raise ValueError(f"expected --threshold within 0..1, as confidences are, but got {threshold:g}{hint}")
    if threshold is not None and arguments.policy is not None:
        raise ValueError("expected either --threshold or --policy, but got both")
    policy = None if arguments.policy is None else Policy.load(arguments.policy)
    keep_inputs([run, arguments.texts, arguments.policy], out)
    check_answers(out)
    device, console = device_of(arguments.device), make_console()
    classify = answer_texts if kind == "texts" else answer
    with sample_bar(console, "predicting") as advance:
        answers = classify(run, source, device=device, on_progress=advance)
    say(console, *answers.notes)
    if policy is None:
        write_atomically(out, answers.as_csv(threshold))
    else:
        say(console, *write_answers(out, policy, answers.raw, policy.apply(answers.raw))[:-1])
    accepted = "" if threshold is None else f", {answers.accepted(threshold).sum():,} of them accepted"
    say(console, f"classified {counted(len(answers.paths), kind[:-1])}{accepted}: {out}")
    if bad := answers.unreadable:
        list_unreadable(console, bad)
        raise ValueError(
            f"expected readable images, but {len(bad):,} of {len(bad) + len(answers.paths):,} cannot be read (listed"
            f" above); {out} has the others"
        )


PREDICT = Command(
    "write a run's predictions for a split, or classify new images or texts",
    "confrank predict runs/digits-small-crl-softmax-seed1 --images new/ --threshold 0.97 --out answers.csv",
    _predict_arguments,
    _predict,
    guide="how-to/predict.md",
)

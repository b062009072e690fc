"""The command line. Only this module parses arguments; heavy imports wait until a command runs."""

import dataclasses
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from confrank import __version__

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace
    from rich.console import Console

USAGE_ERROR = 2
Device = Literal["auto", "cpu", "cuda"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command; exits with 0, 2 for a user's mistake, or 128 + signal when stopped."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return
    if arguments[0] == "--version":
        print(f"confrank {__version__}")
        return
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        _fail(f"expected a command among {', '.join(COMMANDS)}, but got {name!r}; see confrank --help")
    sys.exit(_guarded(COMMANDS[name], name, rest))


def _guarded(command: "Command", name: str, arguments: list[str]) -> int:
    """Run a command, turning mistakes into one line and signals into exit codes."""
    try:
        parser = _parser(name, command)
        command.add_arguments(parser)
        command.run(parser.parse_args(arguments))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (ValueError, OSError) as error:
        _fail(str(error))
    except RuntimeError as error:
        return _stopped_run(error)
    return 0


def _stopped_run(error: RuntimeError) -> int:
    from confrank.training import DivergedError, InterruptedRunError

    if isinstance(error, InterruptedRunError):
        print(f"confrank: {error}", file=sys.stderr)
        return 128 + error.signal_number
    if isinstance(error, DivergedError):
        print(f"confrank: error: {error}", file=sys.stderr)
        return 1
    raise error


def _fail(message: str) -> None:
    print(f"confrank: error: {message}", file=sys.stderr)
    sys.exit(USAGE_ERROR)


@dataclasses.dataclass(frozen=True)
class Command:
    """A command: a line for the overview, an example, its flags, and what it does."""

    summary: str
    example: str
    add_arguments: Callable[["ArgumentParser"], None]
    run: Callable[["Namespace"], None]


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: confrank [--version] [--help] COMMAND ...",
            "",
            "Classifiers that know what they do not know: train them, and measure whether they do.",
            "",
            *lines,
            "",
            "confrank COMMAND --help explains a command. Start with: confrank demo",
        ]
    )


def _parser(name: str, command: Command) -> "ArgumentParser":
    from jsonargparse import ArgumentParser

    return ArgumentParser(
        prog=f"confrank {name}",
        description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        epilog=f"example: {command.example}",
        allow_abbrev=False,
    )


def _console() -> "Console":
    from rich.console import Console

    # A file or a pipe has no width of its own: wide enough for every table.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def _device(name: Device) -> Any:
    import torch

    from confrank.training.loop import default_device

    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("expected a CUDA device for --device cuda, but torch sees none; use --device cpu")
    return default_device() if name == "auto" else torch.device(name)


def _add_data_flags(parser: "ArgumentParser") -> None:
    parser.add_argument("--root", type=str | None, default=None, help="folder with the data sets' published files")
    parser.add_argument("--device", type=Device, default="auto", help="where to compute")


# train


def _train_arguments(parser: "ArgumentParser") -> None:
    from confrank.config import RunConfig

    parser.add_argument("--config", action="config", help="read settings from a YAML file, e.g. a run's config.yaml")
    for item in dataclasses.fields(RunConfig):
        parser.add_argument(
            f"--{item.name.replace('_', '-')}",
            type=item.type,
            default=item.default,
            help=item.metadata["help"],
        )
    _add_data_flags(parser)
    parser.add_argument("--out", type=str | None, default=None, help="run folder (default: runs/ and a telling name)")
    parser.add_argument(
        "--checkpoint-minutes", type=float, default=2.0, help="save at least this often, and at the end"
    )


def _train(arguments: "Namespace") -> None:
    from confrank.config import RunConfig
    from confrank.report.progress import epoch_bar
    from confrank.report.table import evaluation_table, footnotes
    from confrank.training import train

    names = [item.name for item in dataclasses.fields(RunConfig)]
    config = RunConfig(**{name: getattr(arguments, name) for name in names})
    out = Path(arguments.out or Path("runs") / config.run_name)
    console = _console()
    console.print(f"training {config.run_name} in {out}")
    with epoch_bar(console, config.epochs) as bar:
        finished = train(
            config,
            out,
            root=None if arguments.root is None else Path(arguments.root),
            device=_device(arguments.device),
            checkpoint_minutes=arguments.checkpoint_minutes,
            on_epoch=lambda config, record: bar.advance(config.run_name, record),
            on_note=console.print,
        )
    console.print(evaluation_table(finished.evaluations))
    for line in footnotes(finished.evaluations):
        console.print(line, style="dim")
    console.print(f"metrics: {finished.folder.metrics}; predictions: {finished.folder.predictions('test')}")


# predict


def _predict_arguments(parser: "ArgumentParser") -> None:
    parser.add_argument("run", type=str, help="run folder")
    parser.add_argument("--split", type=Literal["test", "train", "holdout"], default="test", help="which images")
    _add_data_flags(parser)
    parser.add_argument(
        "--out", type=str | None, default=None, help="file to write (default: predictions/ in the run folder)"
    )


def _predict(arguments: "Namespace") -> None:
    from confrank.config import RunFolder
    from confrank.predict import predict
    from confrank.predictions import save_predictions

    run = Path(arguments.run)
    root = None if arguments.root is None else Path(arguments.root)
    predictions = predict(run, arguments.split, root=root, device=_device(arguments.device))
    out = Path(arguments.out) if arguments.out else RunFolder(run).predictions(arguments.split)
    if out.suffix != ".safetensors":
        raise ValueError(f"expected --out to end in .safetensors, but got {out}")
    save_predictions(out, predictions)
    print(f"wrote {predictions.describe()} to {out}")


# evaluate


def _evaluate_arguments(parser: "ArgumentParser") -> None:
    parser.add_argument("files", type=str, nargs="+", help="predictions (.safetensors, .npz, .csv) or run folders")
    parser.add_argument("--json", type=str | None, default=None, help="write the numbers to this file")
    parser.add_argument("--figure", type=str | None, default=None, help="draw curves into this .png, .svg or .pdf")


def _evaluate(arguments: "Namespace") -> None:
    import json

    from confrank.config import RunFolder
    from confrank.files import write_atomically
    from confrank.metrics import evaluate
    from confrank.predictions import load_predictions
    from confrank.report.table import evaluation_table, footnotes

    console, evaluations, loaded = _console(), {}, {}
    for name in arguments.files:
        path = Path(name)
        file = RunFolder(path).predictions("test") if RunFolder(path).config.exists() else path
        predictions = loaded[name] = load_predictions(file)
        try:
            evaluations[name] = evaluate(**predictions.evaluation_inputs())
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
        console.print(f"{name}: read {predictions.describe()}", markup=False)
    console.print(evaluation_table(evaluations))
    for line in footnotes(evaluations):
        console.print(line, style="dim", markup=False)
    if arguments.json:
        results = [{"file": name, **evaluation.as_dict()} for name, evaluation in evaluations.items()]
        write_atomically(Path(arguments.json), json.dumps(results[0] if len(results) == 1 else results, indent=1))
    if arguments.figure:
        from confrank.report.plots import comparison_figure

        figure = _picture_path(arguments.figure)
        comparison_figure({name: [item.ranked()] for name, item in loaded.items()}, figure)
        console.print(f"figure: {figure}", markup=False)


def _picture_path(name: str) -> Path:
    path = Path(name)
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"expected a picture ending in .png, .svg or .pdf, but got {name}")
    return path


# data


def _data_arguments(parser: "ArgumentParser") -> None:
    parser.add_argument(
        "action",
        type=Literal["list", "fetch", "check"],
        help="list the known data sets, fetch one's published files, or check that one is whole",
    )
    parser.add_argument("name", type=str | None, nargs="?", default=None, help="data set by name, or one's own path")
    parser.add_argument(
        "--root", type=str | None, default=None, help="folder of data sets (default: $CONFRANK_DATA or a user cache)"
    )


def _data(arguments: "Namespace") -> None:
    root = None if arguments.root is None else Path(arguments.root)
    if arguments.action == "list":
        if arguments.name is not None:
            raise ValueError(f"expected no name after list, but got {arguments.name!r}; did you mean check?")
        return _list_data(root)
    if arguments.name is None:
        raise ValueError(
            f"expected the name of a data set to {arguments.action}, but got none; see confrank data list"
        )
    return _fetch_data(arguments.name, root) if arguments.action == "fetch" else _check_data(arguments.name, root)


def _list_data(root: Path | None) -> None:
    from confrank.data import default_root
    from confrank.data.survey import known_sets
    from confrank.report.table import listing_table

    rows = [
        (
            item.name,
            item.summary,
            f"{item.num_train:,}" if item.num_train else "-",
            f"{item.num_test:,}",
            "embedded" if item.embedded else ", ".join(map(str, item.paths)) or "not here",
        )
        for item in known_sets(root)
    ]
    console = _console()
    console.print(listing_table(("name", "what it is", "train", "test", "where"), rows))
    console.print(f"looked in {root or default_root()}; confrank data fetch NAME downloads a set", markup=False)


def _fetch_data(name: str, root: Path | None) -> None:
    from confrank.data.download import fetch
    from confrank.report.progress import download_bar

    console = _console()
    with download_bar(console) as advance:
        files = fetch(name, root, on_progress=advance, on_note=lambda note: console.print(note, markup=False))
    for file in files:
        state = "fetched" if file.downloaded else "already there:"
        verdict = "as published" if file.verified else "not verified: the publisher gives no checksum"
        console.print(f"{state} {file.path} ({file.digest}, {verdict})", markup=False, soft_wrap=True)


def _check_data(name: str, root: Path | None) -> None:
    from confrank.data.survey import check

    checked, console = check(name, root), _console()
    shape = "x".join(map(str, checked.image_shape))
    console.print(
        f"{name}: images of {shape} from {', '.join(map(str, checked.paths)) or 'a dependency'}", markup=False
    )
    for split, counts in (("train", checked.train), ("test", checked.test)):
        if len(counts) > 1:
            spread = f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"
            console.print(f"{split}: {sum(counts):,} images, {len(counts)} classes of {spread}")
        elif counts:
            console.print(f"{split}: {sum(counts):,} images, without labels")
    for path, actual, expected in checked.digests:
        if expected is not None and actual != expected:
            raise ValueError(
                f"expected {expected} for {path}, but got {actual}: it reads well, but is not the published file"
            )
        verdict = "as published" if expected else "not verified: the publisher gives no checksum"
        console.print(f"{path}: {actual}, {verdict}", markup=False, soft_wrap=True)


# demo


def _demo_arguments(parser: "ArgumentParser") -> None:
    from confrank.study.demo import EPOCHS

    parser.add_argument("--seeds", type=int, default=5, help="runs per method")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="passes over the 900 training images")
    parser.add_argument("--out", type=str, default="demo", help="folder for the runs and the figure")


def _demo(arguments: "Namespace") -> None:
    from confrank.report.plots import comparison_figure
    from confrank.report.progress import epoch_bar
    from confrank.report.table import comparison_table
    from confrank.study.demo import demo_configs, load_rankings, run_demo

    if arguments.seeds < 1:
        raise ValueError(f"expected at least 1 seed, but got {arguments.seeds}")
    out, console = Path(arguments.out), _console()
    configs = demo_configs(range(arguments.seeds), arguments.epochs)
    console.print(f"training {len(configs)} small networks on noisy 8x8 digits (finished ones in {out} are kept)")
    with epoch_bar(console, sum(config.epochs for config in configs)) as bar:
        results = run_demo(configs, out, lambda config, record: bar.advance(config.run_name, record))
    console.print(comparison_table(results, f"digits, small network, {arguments.seeds} seeds, test split"))
    figure = out / "demo.png"
    comparison_figure(load_rankings(configs, out), figure, f"digits, mean of {arguments.seeds} seeds")
    console.print(f"figure: {figure}; runs: {out}")


COMMANDS: dict[str, Command] = {
    "demo": Command(
        "train baseline and CRL on embedded data and compare them",
        "confrank demo --seeds 5",
        _demo_arguments,
        _demo,
    ),
    "train": Command(
        "train a network, or go on where training stopped",
        "confrank train --dataset digits --model small --method crl-softmax --epochs 60 --seed 1",
        _train_arguments,
        _train,
    ),
    "predict": Command(
        "write a run's predictions for a split",
        "confrank predict runs/digits-small-crl-softmax-seed1 --split test",
        _predict_arguments,
        _predict,
    ),
    "evaluate": Command(
        "measure how well confidence ranks and calibrates predictions",
        "confrank evaluate predictions.npz --json metrics.json --figure curves.png",
        _evaluate_arguments,
        _evaluate,
    ),
    "data": Command(
        "list, fetch or check data sets",
        "confrank data fetch cifar10 --root data",
        _data_arguments,
        _data,
    ),
}

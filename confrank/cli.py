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

    from confrank.report.events import Events
    from confrank.training import Finished

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
        "--deterministic", type=bool, default=False, help="only deterministic algorithms on a GPU (slower)"
    )


def _train(arguments: "Namespace") -> None:
    import torch

    from confrank.config import RunConfig
    from confrank.report.progress import epoch_bar
    from confrank.training import Failed, train_together

    names = [item.name for item in dataclasses.fields(RunConfig)]
    config = RunConfig(**{name: getattr(arguments, name) for name in names})
    configs = [dataclasses.replace(config, seed=seed) for seed in _seeds(arguments.seeds, config.seed)]
    parent = Path(arguments.out or "runs")
    outs = [parent / item.run_name for item in configs]
    if arguments.out and arguments.seeds is None:
        outs = [parent]
    torch.use_deterministic_algorithms(arguments.deterministic, warn_only=True)
    console = _console()
    for item, out in zip(configs, outs, strict=True):
        console.print(f"training {item.run_name} in {out}", markup=False)
    with epoch_bar(console, sum(item.epochs for item in configs)) as bar:
        results = train_together(
            configs,
            outs,
            root=None if arguments.root is None else Path(arguments.root),
            device=_device(arguments.device),
            path=arguments.path,
            checkpoint_minutes=arguments.checkpoint_minutes,
            checkpoint_epochs=arguments.checkpoint_epochs,
            on_epoch=lambda config, record: bar.advance(config.run_name, record),
            on_note=lambda text: console.print(text, markup=False),
        )
    failures = [result for result in results if isinstance(result, Failed)]
    _show_runs(console, [result for result in results if not isinstance(result, Failed)])
    if failures:
        raise failures[0].error


def _seeds(text: str | None, default: int) -> list[int]:
    if text is None:
        return [default]
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"expected --seeds to be distinct whole numbers like 0,1,2,3, but got {text!r}")
    return seeds


def _show_runs(console: "Console", results: "list[Finished]") -> None:
    from confrank.report.table import evaluation_table, footnotes

    evaluations = {}
    for result in results:
        for split, evaluation in result.evaluations.items():
            evaluations[split if len(results) == 1 else f"{result.folder.path.name} {split}"] = evaluation
        console.print(
            f"metrics: {result.folder.metrics}; predictions: {result.folder.predictions('test')}", markup=False
        )
    if evaluations:
        console.print(evaluation_table(evaluations))
    for line in footnotes(evaluations):
        console.print(line, style="dim", markup=False)


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


# report


def _report_arguments(parser: "ArgumentParser") -> None:
    parser.add_argument(
        "what",
        type=Literal["events", "epochs"],
        help="events: histogram of correct events, easiest and hardest images of a run;"
        " epochs: test AURC and NLL over the epochs of runs trained with --test-every",
    )
    parser.add_argument("runs", type=str, nargs="+", help="run folders")
    _add_data_flags(parser)
    parser.add_argument("--out", type=str | None, default=None, help="picture to write (default: into the first run)")


def _report(arguments: "Namespace") -> None:
    from confrank.report.epochs import epochs_figure
    from confrank.report.events import events_figure

    runs = [Path(run) for run in arguments.runs]
    picture = _picture_path(arguments.out or str(runs[0] / f"{arguments.what}.png"))
    if arguments.what == "epochs":
        epochs_figure({run.name: _epoch_log(run) for run in runs}, picture)
    else:
        if len(runs) > 1:
            raise ValueError(f"expected one run for the events figure, but got {len(runs)}")
        events_figure(_events(runs[0], arguments.root), picture, runs[0].name)
    print(f"figure: {picture}")


def _epoch_log(run: Path) -> list[dict[str, Any]]:
    import json

    from confrank.config import RunFolder

    if not RunFolder(run).log.exists():
        raise ValueError(f"expected a run folder with a log.jsonl, but {run} has none")
    return [json.loads(line) for line in RunFolder(run).log.read_text().splitlines()]


def _events(run: Path, root: str | None) -> "Events":
    import numpy as np

    from confrank.config import RunFolder, load_config
    from confrank.data import load
    from confrank.report.events import Events

    if not RunFolder(run).history.exists():
        raise ValueError(f"expected a finished run with a history.npz, but {run} has none")
    config = load_config(run)
    data = load(config.dataset, None if root is None else Path(root), image_size=config.image_size)
    with np.load(RunFolder(run).history) as counts:
        split = data.train.select(counts["index"])
        return Events(counts["examined"], counts["correct"], split.images, split.labels, data.class_names)


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
    "report": Command(
        "draw what happened in training: events per sample, metrics over epochs",
        "confrank report events runs/digits-small-crl-softmax-seed1",
        _report_arguments,
        _report,
    ),
}

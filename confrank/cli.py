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

    from confrank.metrics import Samples
    from confrank.predictions import Predictions
    from confrank.report.contents import Examined
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
    parser.add_argument(
        "files", type=str, nargs="+", help="predictions (.csv, .parquet, .npz, .npy, .safetensors) or run folders"
    )
    parser.add_argument("--report", type=str | None, default=None, help="write the page to decide by (.html)")
    parser.add_argument("--json", type=str | None, default=None, help="write the numbers to this file")
    parser.add_argument("--figure", type=str | None, default=None, help="draw curves into this .png, .svg or .pdf")
    parser.add_argument(
        "--figures", type=str | None, default=None, help="draw each chart as PNG and SVG in this folder"
    )
    parser.add_argument(
        "--resamples", type=int | None, default=None, help="bootstrap resamples (default: by n; 0: no intervals)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the resamples")
    parser.add_argument(
        "--root", type=str | None, default=None, help="folder with data sets, for pictures of mistakes"
    )


def _evaluate(arguments: "Namespace") -> None:
    import json

    from confrank.files import write_atomically

    if arguments.resamples is not None and arguments.resamples < 0:
        raise ValueError(f"expected --resamples to be at least 0, but got {arguments.resamples}")
    figure = None if arguments.figure is None else _picture_path(arguments.figure)
    report = None if arguments.report is None else _page_path(arguments.report)
    console = _console()
    loaded: dict[str, Predictions] = {}
    for name in arguments.files:
        # A file may be given twice, e.g. to see that it does not differ from itself.
        loaded[name if name not in loaded else f"{name} ({len(loaded) + 1})"] = _load(name)
    for name, predictions in loaded.items():
        console.print(f"{name}: read {predictions.describe()}", markup=False)
    if figure:
        from confrank.report.plots import comparison_figure

        comparison_figure({name: [item.ranked()] for name, item in loaded.items()}, figure)
        console.print(f"figure: {figure}", markup=False)
    examined = _examine(loaded, arguments.resamples, arguments.seed)
    _print_examined(console, examined)
    if arguments.json:
        results = [item.as_dict() for item in examined]
        write_atomically(Path(arguments.json), json.dumps(results[0] if len(results) == 1 else results, indent=1))
    if arguments.figures:
        from confrank.report.plots import paper_figures

        paths = paper_figures(examined, Path(arguments.figures))
        console.print(f"figures: {', '.join(map(str, paths))}", markup=False)
    if report:
        _write_page(console, examined, loaded, report, arguments.root, arguments.seed)


def _load(name: str) -> "Predictions":
    from confrank.config import RunFolder
    from confrank.predictions import load_predictions

    path = Path(name)
    return load_predictions(RunFolder(path).predictions("test") if RunFolder(path).config.exists() else path)


def _samples(name: str, predictions: "Predictions") -> "Samples":
    from confrank.metrics import sample_values

    try:
        return sample_values(**predictions.sample_inputs())
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _examine(loaded: "dict[str, Predictions]", resamples: int | None, seed: int) -> "list[Examined]":
    from confrank.metrics.intervals import default_resamples
    from confrank.predictions import pairing
    from confrank.report.contents import examine, with_intervals

    samples = {name: _samples(name, predictions) for name, predictions in loaded.items()}
    examined = []
    for name, predictions in loaded.items():
        parser = predictions.metadata.get("parser")
        source = predictions.describe() + (f", parsed {parser}" if parser else "")
        examined.append(examine(name, samples[name], source, predictions.class_names))
    first = next(iter(loaded.values()))
    pairings = [pairing(first, predictions) for predictions in loaded.values()]
    counts = [default_resamples(len(item)) if resamples is None else resamples for item in samples.values()]
    return with_intervals(examined, list(samples.values()), pairings, counts, seed)


def _print_examined(console: "Console", examined: "list[Examined]") -> None:
    from confrank.report.table import difference_table, evaluation_table, footnotes, interval_note
    from confrank.report.verdict import comparisons

    evaluations = {item.name: item.evaluation for item in examined}
    console.print(evaluation_table(evaluations, {item.name: item.intervals for item in examined}))
    differences = {item.name: item.differences for item in examined if item.differences}
    if differences:
        console.print(difference_table(differences, examined[0].name))
    for line in [*comparisons(examined), *footnotes(evaluations), interval_note(examined)]:
        console.print(line, style="dim", markup=False)


def _write_page(
    console: "Console",
    examined: "list[Examined]",
    loaded: "dict[str, Predictions]",
    path: Path,
    root: str | None,
    seed: int,
) -> None:
    from confrank.files import write_atomically
    from confrank.report.contents import with_images, with_short_names
    from confrank.report.page import page

    pictured = []
    for item, (name, predictions) in zip(examined, loaded.items(), strict=True):
        try:
            rows = [mistake.row for mistake in item.mistakes]
            pictured.append(with_images(item, _images(name, predictions, rows, root)))
        except (ValueError, OSError, LookupError) as error:
            console.print(f"{name}: no pictures of mistakes: {error}", style="dim", markup=False)
            pictured.append(item)
    write_atomically(path, page(with_short_names(pictured), seed=seed))
    console.print(f"report: {path}", markup=False)


def _images(name: str, predictions: "Predictions", rows: list[int], root: str | None) -> dict[int, Any]:
    """Pictures of the given rows where the predictions come from a run, by its data set; else none."""
    from confrank.config import RunFolder

    place = Path(name)
    run = next((folder for folder in (place, place.parent.parent) if RunFolder(folder).config.exists()), None)
    if run is None or predictions.index is None or not rows:
        return {}
    import yaml

    from confrank.data import load

    data = load(yaml.safe_load(RunFolder(run).config.read_text())["dataset"], root)
    split = data.test if predictions.metadata.get("split") == "test" else data.train
    return {row: split.images[predictions.index[row]] for row in rows}


def _page_path(name: str) -> Path:
    if Path(name).suffix not in (".html", ".htm"):
        raise ValueError(f"expected a page ending in .html, but got {name}")
    return Path(name)


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
    from confrank.study.demo import demo_configs, first_runs, load_rankings, run_demo

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
    runs = {str(run): _load(str(run)) for run in first_runs(configs, out)}
    _write_page(console, _examine(runs, None, 0), runs, out / "report.html", None, 0)


# threshold


def _threshold_arguments(parser: "ArgumentParser") -> None:
    parser.add_argument("file", type=str, help="predictions that the model was not trained on, or a run folder")
    parser.add_argument("--risk", type=float | None, default=None, help="error rate to guarantee among the accepted")
    parser.add_argument("--delta", type=float, default=0.001, help="the guarantee holds with probability 1 - delta")
    parser.add_argument("--coverage", type=float | None, default=None, help="share to accept, instead of a risk")
    parser.add_argument(
        "--split", type=float | None, default=None, help="share of the rows kept aside to check it on"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the split")
    parser.add_argument("--json", type=str | None, default=None, help="write the numbers to this file")


def _threshold(arguments: "Namespace") -> None:
    import json

    from confrank.files import write_atomically
    from confrank.report.decision import check_lines, threshold_lines
    from confrank.selective import guaranteed_threshold, measured_at, random_split, threshold_for_coverage

    if (arguments.risk is None) == (arguments.coverage is None):
        raise ValueError("expected either --risk or --coverage, but got " + ("both" if arguments.risk else "neither"))
    predictions = _load(arguments.file)
    samples = _samples(arguments.file, predictions)
    print(f"read {predictions.describe()}")
    kept = None
    if arguments.split is not None:
        rows, kept_rows = random_split(len(samples), arguments.split, arguments.seed)
        samples, kept = samples.select(rows), samples.select(kept_rows)
    if arguments.risk is not None:
        point = guaranteed_threshold(samples.confidence, samples.correct, arguments.risk, arguments.delta)
    else:
        point = threshold_for_coverage(samples.confidence, samples.correct, arguments.coverage)
    check = None if kept is None else measured_at(point.threshold, kept.confidence, kept.correct)
    lines = threshold_lines(point, arguments.risk, arguments.delta)
    lines += [] if check is None else check_lines(check, arguments.risk)
    print("\n".join(lines))
    if arguments.json:
        asked = {"requested_risk": arguments.risk, "delta": arguments.delta, "requested_coverage": arguments.coverage}
        result = {"file": arguments.file, **asked, **point.as_dict(), "check": check and check.as_dict()}
        write_atomically(Path(arguments.json), json.dumps(result, indent=1))


# calibrate


def _calibrate_arguments(parser: "ArgumentParser") -> None:
    parser.add_argument(
        "file", type=str, help="predictions with logits or probabilities of all classes, or a run folder"
    )
    parser.add_argument("--split", type=float, default=0.5, help="share of the rows kept aside for the metrics")
    parser.add_argument("--seed", type=int, default=0, help="seed of the split")
    parser.add_argument("--out", type=str | None, default=None, help="write all rows, calibrated (.safetensors)")
    parser.add_argument("--json", type=str | None, default=None, help="write the numbers to this file")


def _calibrate(arguments: "Namespace") -> None:
    import json

    from confrank.files import write_atomically
    from confrank.metrics import evaluate
    from confrank.predictions import Predictions, save_predictions
    from confrank.report.decision import temperature_line
    from confrank.report.table import evaluation_table, footnotes
    from confrank.selective import fit_temperature, random_split, scaled_logits
    from confrank.selective.temperature import as_logits

    out = None if arguments.out is None else Path(arguments.out)
    if out is not None and out.suffix != ".safetensors":
        raise ValueError(f"expected --out to end in .safetensors, but got {out}")
    predictions, console = _load(arguments.file), _console()
    if predictions.table is None or predictions.label is None:
        raise ValueError(
            f"expected logits or probabilities of all classes to calibrate, but {arguments.file} has"
            f" {predictions.describe()}"
        )
    _samples(arguments.file, predictions)
    console.print(f"read {predictions.describe()}", markup=False)
    logits, label = as_logits(logits=predictions.logits, probabilities=predictions.probabilities), predictions.label
    rows, kept = random_split(len(label), arguments.split, arguments.seed)
    temperature = fit_temperature(logits[rows], label[rows])
    scaled = scaled_logits(logits, temperature)
    evaluations = {
        "before": evaluate(logits=logits[kept], label=label[kept]),
        "after": evaluate(logits=scaled[kept], label=label[kept]),
    }
    console.print(temperature_line(temperature, len(rows), len(kept)), markup=False)
    console.print(evaluation_table(evaluations))
    for line in [*footnotes(evaluations), "both rank by the largest probability"]:
        console.print(line, style="dim", markup=False)
    if arguments.json:
        metrics = {name: evaluation.as_dict() for name, evaluation in evaluations.items()}
        result = {"file": arguments.file, "temperature": temperature, "num_fitted": len(rows), **metrics}
        write_atomically(Path(arguments.json), json.dumps(result, indent=1))
    if out is not None:
        metadata = {**predictions.metadata, "temperature": repr(temperature)}
        save_predictions(out, Predictions(logits=scaled, label=label, index=predictions.index, metadata=metadata))
        console.print(f"calibrated predictions: {out}", markup=False)


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
        "confrank evaluate predictions.npz --report report.html --json metrics.json",
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
    "threshold": Command(
        "choose the confidence from which answers are accepted, with a guaranteed error rate",
        "confrank threshold predictions.npz --risk 0.01 --delta 0.001",
        _threshold_arguments,
        _threshold,
    ),
    "calibrate": Command(
        "fit a temperature to predictions and measure what it changes",
        "confrank calibrate predictions.npz --out calibrated.safetensors",
        _calibrate_arguments,
        _calibrate,
    ),
}

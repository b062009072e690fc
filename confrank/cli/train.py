"""Train networks, use them on a split or on new images and texts, and get the data."""

import shlex
from contextlib import ExitStack
from dataclasses import asdict, fields, make_dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from cyclopts import Parameter

from confrank.cli.options import (
    GROUPS,
    Device,
    InFile,
    Minutes,
    Natural,
    Number,
    OutFile,
    OutFolder,
    Root,
    Seeds,
    Whole,
    actions,
    command,
    device_of,
    shares,
)
from confrank.cli.terminal import list_unreadable, make_console, say, say_once
from confrank.config import RunConfig
from confrank.errors import counted, in_words
from confrank.recipes import IMAGE_DEFAULTS, TEXT_TRAINING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from confrank.config import RunConfig
    from confrank.training import Finished

Split = Literal["test", "train", "holdout"]
DATA, OUTPUT = Parameter(group=GROUPS["data"]), Parameter(group=GROUPS["output"])


def _settings() -> Any:
    """A setting of `RunConfig` for each option of `train`; None where it is not given."""
    made = []
    for item in fields(RunConfig):
        kinds: dict[Any, Any] = {int: Whole, float: Number, bool: bool}
        kind: Any = item.type
        if not isinstance(item.default, tuple):
            kind = next((kinds[one] for one in (kind, *get_args(kind)) if one in kinds), kind)
        text, default = item.metadata["help"], item.default
        if default not in (None, False, "") and "default:" not in text:
            shown = ",".join(f"{one:.3g}" for one in default) if isinstance(default, tuple) else default
            own = {"images": {**IMAGE_DEFAULTS, "epochs": "20 to 60"}, "texts": TEXT_TRAINING}
            others = [f", for your own {of} {usual[item.name]}" for of, usual in own.items() if item.name in usual]
            more = ", or more if they are few" if item.name == "epochs" else ""
            text += f" (default: {shown}{''.join(others)}{more})"
        choices = get_args(item.type) if get_origin(item.type) is Literal else ()
        options: dict[str, Any] = {
            "show_choices": any(choice not in text for choice in choices),
            "help": text,
            "group": GROUPS[item.metadata["group"]],
        }
        if item.metadata["metavar"]:
            options["metavar"] = item.metadata["metavar"]
        if isinstance(default, tuple):
            options |= {"converter": shares, "n_tokens": 1, "json_list": False}
        made.append((item.name, Annotated[kind | None, Parameter(**options)], None))
    return Parameter(name="*")(make_dataclass("Settings", made, frozen=True, namespace={"__module__": __name__}))


if TYPE_CHECKING:
    Settings = Any
else:
    Settings = _settings()


def config_of(settings: Any, config: "Sequence[Path]" = (), root: Path | None = None) -> RunConfig:
    """The config with the settings given, then those of the files, then the defaults of the recipe and the data."""
    from confrank.data.extent import config_for
    from confrank.runs.folder import read_settings

    given = {name: value for name, value in asdict(settings).items() if value is not None}
    stored: dict[str, Any] = {}
    for file in config:
        stored |= read_settings(file)
        recipe = stored.get("recipe", given.get("recipe"))
        if given.get("recipe", recipe) != recipe:
            raise ValueError(
                f"expected --recipe {recipe}, whose settings {file} holds, but got {given['recipe']};"
                " leave out --recipe or --config"
            )
    return config_for({**stored, **given}, root)


@command(
    "train",
    "how-to/train.md",
    "confrank train --dataset digits --model small --method crl-softmax --epochs 60 --seed 1",
)
def train(
    *,
    settings: Settings = Settings(),  # noqa: B008
    root: Annotated[Root | None, DATA] = None,
    seeds: Annotated[Seeds | None, Parameter(group=GROUPS["training"])] = None,
    out: Annotated[OutFolder | None, OUTPUT] = None,
    checkpoint_minutes: Annotated[Minutes, OUTPUT] = 2.0,
    checkpoint_epochs: Annotated[Natural, OUTPUT] = 0,
    log: Annotated[Literal["tensorboard"] | None, OUTPUT] = None,
    device: Device = "auto",
    path: Annotated[Literal["auto", "compiled", "plain"], Parameter(group=GROUPS["computing"])] = "auto",
    deterministic: Annotated[bool, Parameter(group=GROUPS["computing"])] = False,
    config: Annotated[
        tuple[Path, ...], Parameter(metavar="FILE", n_tokens=1, consume_multiple=False, show_default=False)
    ] = (),
) -> None:
    """Train a network, or resume training.

    Args:
        seeds: train one run per seed, e.g. 0,1,2,3: side by side on a GPU, one after the other on a CPU
        out: run folder, or with --seeds the folder for all run folders (default: runs/NAME, named by the settings)
        checkpoint_minutes: save a checkpoint at least every X minutes
        checkpoint_epochs: also save a checkpoint every N epochs; 0: never
        log: tensorboard: also write the numbers of each epoch to tensorboard/ in the run folder
        path: auto: CUDA graphs in bfloat16 where there is a GPU, in fused kernels for ResNet-110 and DenseNet-BC;
            compiled: without fused kernels; plain: eager float32 everywhere
        deterministic: use only deterministic algorithms on a GPU (slower)
        config: read settings from a YAML file, e.g. a run's config.yaml; options given replace them
    """
    import torch

    from confrank.report.progress import epoch_bar
    from confrank.report.runs import start_lines
    from confrank.training import Failed, TensorBoardLog, train_together

    one = config_of(settings, config, root)
    configs = [RunConfig.from_dict({**one.as_dict(), "seed": seed}) for seed in seeds or [one.seed]]
    outs = [(out or Path("runs")) / item.run_name for item in configs]
    if out is not None and seeds is None:
        outs = [out]
    chosen = device_of(device)
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    console = make_console(lasting=True)
    folders = {item.run_name: folder for item, folder in zip(configs, outs, strict=True)}
    with ExitStack() as stack:
        bar = stack.enter_context(epoch_bar(console, sum(item.epochs for item in configs)))
        board = stack.enter_context(TensorBoardLog(folders)) if log else None

        def listen(config: RunConfig, record: dict[str, Any]) -> None:
            bar.advance(config, record)
            if board is not None:
                board(config, record)

        results = train_together(
            configs,
            outs,
            root=root,
            device=chosen,
            path=path,
            checkpoint_minutes=checkpoint_minutes,
            checkpoint_epochs=checkpoint_epochs,
            on_start=lambda job: say(console, *start_lines(job)),
            on_epoch=listen,
            on_note=say_once(console),
        )
    failures = [result for result in results if isinstance(result, Failed)]
    show_runs(console, [result for result in results if not isinstance(result, Failed)])
    if not failures:
        say(console, f"next: confrank evaluate {shlex.join(map(str, outs))} --report report.html")
    for failure in failures[1:]:
        say(console, f"{failure.folder.path}: {in_words(failure.reason)}")
    if failures:
        raise failures[0].error


def show_runs(console: "Console", results: "Sequence[Finished]") -> None:
    """Print where finished runs, which differ in their seed alone, are and what they score."""
    from confrank.metrics import Evaluation
    from confrank.report.runs import little_learned
    from confrank.report.table import evaluation_table, seeds_table
    from confrank.report.verdict import footnotes
    from confrank.runs.folder import load_config

    splits: dict[str, dict[str, Evaluation]] = {}
    for result in results:
        seed = f"seed {load_config(result.folder.path).seed}"
        for split, evaluation in result.evaluations.items():
            splits.setdefault(split, {})[seed] = evaluation
        say(console, f"metrics: {result.folder.metrics}; predictions: {result.folder.predictions('test')}")
    if len(results) == 1:
        console.print(evaluation_table(results[0].evaluations))
        named = [*results[0].evaluations.items()]
    else:
        for split, seeds in splits.items():
            console.print(seeds_table(seeds, f"{split} split, {len(seeds)} seeds"))
        named = [(f"{split}, {seed}", one) for split, seeds in splits.items() for seed, one in seeds.items()]
    say(console, *footnotes(named), style="dim")
    say(console, *(warning for result in results for warning in little_learned(result)))


@command(
    "train",
    "how-to/predict.md",
    "confrank predict runs/digits-small-crl-softmax-seed1 --images new/ --threshold 0.97 --out answers.csv",
)
def predict(
    run: str,
    /,
    *,
    split: Split | None = None,
    images: Annotated[str | None, Parameter(metavar="FOLDER")] = None,
    texts: InFile | None = None,
    threshold: Annotated[Number | None, Parameter(metavar="CONFIDENCE")] = None,
    policy: InFile | None = None,
    root: Root | None = None,
    out: Annotated[OutFile | None, OUTPUT] = None,
    device: Device = "auto",
) -> None:
    """Predict a split of a run's data, or classify new images or texts.

    Args:
        run: run folder, or a .safetensors file that `study --weights` wrote
        split: split of the data set that the run was trained on: test, train or holdout (default: test)
        images: classify the images in this folder instead
        texts: classify the texts in this .csv, .tsv or .jsonl file (columns text and, optionally, id) instead
        threshold: with --images or --texts: accept predictions with at least this confidence
        policy: answer by this policy, and write the answers (.csv)
        out: file to write (default: predictions/SPLIT.safetensors in the run folder, or next to the weights;
            answers.csv for --images, --texts or --policy)
    """
    from confrank.decisions.policy import Policy

    given = {"split": split, "texts": texts, "images": images}
    new = {name: value for name, value in given.items() if value is not None and name != "split"}
    kinds = [name for name, value in given.items() if value is not None]
    if new and len(kinds) > 1:
        flags = " or ".join(f"--{name}" for name in kinds)
        raise ValueError(f"expected either {flags}, but got both: {', '.join(str(given[name]) for name in kinds)}")
    if threshold is not None and not new:
        raise ValueError(
            "expected --threshold only with --images or --texts; to measure one on a split, run confrank threshold"
        )
    if threshold is not None and not 0 <= threshold <= 1:
        hint = f"; did you mean {threshold / 100:g}?" if 1 < threshold <= 100 else ""
        raise ValueError(f"expected --threshold within 0..1, as confidences are, but got {threshold:g}{hint}")
    if threshold is not None and policy is not None:
        raise ValueError("expected either --threshold or --policy, but got both")
    rule = None if policy is None else Policy.load(policy)
    if new:
        ((kind, source),) = new.items()
        _classify(Path(run), kind, str(source), (threshold, rule), [run, texts, policy], out, device)
    else:
        _predict_split(Path(run), split or "test", rule, [run, policy], out, (root, device))


def _predict_split(
    run: Path, split: str, rule: Any, inputs: list[str | None], given: Path | None, where: tuple[Path | None, str]
) -> None:
    """The predictions for a split of the run's data set, or the answers of a policy to them."""
    from confrank.decisions.answers import check_answers, write_answers
    from confrank.predictions import save_predictions
    from confrank.report.progress import sample_bar
    from confrank.runs.folder import RunFolder
    from confrank.runs.outputs import check_file, keep_inputs
    from confrank.runs.trained import predict as predict_split

    if rule is not None:
        out = check_file(given or Path("answers.csv"), ".csv")
        check_answers(out)
    elif given is not None:
        out = check_file(given, ".safetensors")
    elif run.suffix == ".safetensors":
        out = run.with_name(f"{run.stem}-{split}-predictions.safetensors")
    else:
        out = RunFolder(run).predictions(split)
    others = [RunFolder(run).predictions(other) for other in get_args(Split) if other != split]
    keep_inputs([*inputs, *others], out)
    console = make_console()
    with sample_bar(console, "predicting") as advance:
        predictions = predict_split(run, split, root=where[0], device=device_of(where[1]), on_progress=advance)
    if rule is None:
        save_predictions(out, predictions)
        print(f"wrote {predictions.describe()} to {out}")
    else:
        say(console, *write_answers(out, rule, predictions, rule.apply(predictions)))


def _classify(
    run: Path,
    kind: str,
    source: str,
    accepting: tuple[float | None, Any],
    inputs: list[str | None],
    given: Path | None,
    device: str,
) -> None:
    """Classify new images or texts; unreadable ones are listed at the end and do not stop the others."""
    from confrank.classify_images import answer
    from confrank.classify_texts import answer_texts
    from confrank.decisions.answers import check_answers, write_answers
    from confrank.files import write_atomically
    from confrank.report.progress import sample_bar
    from confrank.runs.outputs import check_file, keep_inputs

    if not source:
        raise ValueError(f"expected a {'folder' if kind == 'images' else 'file'} for --{kind}, but got nothing")
    threshold, rule = accepting
    out = check_file(given or Path("answers.csv"), ".csv")
    keep_inputs(inputs, out)
    check_answers(out)
    chosen, console = device_of(device), make_console()
    classify = answer_texts if kind == "texts" else answer
    with sample_bar(console, "predicting") as advance:
        answers = classify(run, source, device=chosen, on_progress=advance)
    say(console, *answers.notes)
    if rule is None:
        write_atomically(out, answers.as_csv(threshold))
    else:
        say(console, *write_answers(out, rule, answers.raw, rule.apply(answers.raw))[:-1])
    accepted = "" if threshold is None else f", {answers.accepted(threshold).sum():,} of them accepted"
    say(console, f"classified {counted(len(answers.paths), kind[:-1])}{accepted}: {out}")
    if bad := answers.unreadable:
        list_unreadable(console, bad)
        raise ValueError(
            f"expected readable images, but {len(bad):,} of {len(bad) + len(answers.paths):,} cannot be read (listed"
            f" above); {out} has the others"
        )


DATA_SETS = actions("train", "data", "List, fetch or check data sets.")


@command("train", "how-to/own-data.md", "confrank data list --root data", DATA_SETS)
def list_(*, root: Root | None = None) -> None:
    """List the known data sets, and which of them are downloaded."""
    from confrank.data import default_root
    from confrank.data.survey import known_sets
    from confrank.report.table import listing_table

    rows = []
    for item in known_sets(root):
        train_size = f"{item.num_train:,}" if item.num_train else "-"
        where = "embedded" if item.embedded else ", ".join(map(str, item.paths)) or "not downloaded"
        rows.append((item.name, item.summary, train_size, f"{item.num_test:,}", where))
    console = make_console()
    console.print(listing_table(("name", "what it is", "train", "test", "where"), rows))
    say(console, f"searched {root or default_root()}; `confrank data fetch NAME` downloads a data set")


@command("train", "how-to/own-data.md", "confrank data fetch cifar10 --root data", DATA_SETS)
def fetch(name: str, /, *, root: Root | None = None) -> None:
    """Download the published files of a data set.

    Args:
        name: cifar10, cifar100, svhn, tinyimagenet, lsun or isun
    """
    from confrank.data.published import fetch as fetch_files
    from confrank.data.survey import verdict
    from confrank.report.progress import download_bar

    console = make_console()
    with download_bar(console) as bar:
        files = fetch_files(name, root, bar=bar, on_note=partial(say, console))
    for file in files:
        state = "fetched" if file.downloaded else "already downloaded:"
        say(console, f"{state} {file.path} ({file.digest}, {verdict(file.verified)})")


@command("train", "how-to/own-data.md", "confrank data check photos --image-size 32", DATA_SETS)
def check(name: str, /, *, image_size: Whole | None = None, root: Root | None = None) -> None:
    """Read a data set completely, and check it for damage.

    Args:
        name: data set by name (see `confrank data list`), or the path of your own
        image_size: check your own images as `train --image-size N` sees them
    """
    from confrank.data import custom_path
    from confrank.data.extent import image_files, usual_image_size
    from confrank.data.pictures import UnreadableError
    from confrank.data.survey import check as check_data

    path, console = custom_path(name, root), make_console()
    if image_size is None and path is not None:
        image_size = usual_image_size(image_files(path))
    try:
        checked = check_data(name, root, image_size)
    except UnreadableError as error:
        list_unreadable(console, error.reasons)
        raise ValueError(
            f"expected readable images in {name}, but {len(error.reasons):,} of {error.num_pictures:,} cannot be read"
            " (listed above); repair or remove them"
        ) from None
    for line in chain(checked.lines(), checked.digest_lines()):
        say(console, line)

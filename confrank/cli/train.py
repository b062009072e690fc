"""Train networks, or resume training."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from confrank.cli.command import (
    Arguments,
    Command,
    Parser,
    add_checkpoint_minutes,
    add_device,
    add_option,
    add_root,
    at_least,
    device_of,
    listed,
    root_of,
)
from confrank.cli.names import with_names
from confrank.cli.own_data import default_for_own_data, for_own_data
from confrank.cli.terminal import make_console, say, say_once
from confrank.errors import counted, flag_of, in_words
from confrank.recipes import IMAGE_DEFAULTS, left_out

if TYPE_CHECKING:
    from rich.console import Console

    from confrank.config import RunConfig
    from confrank.metrics import Evaluation
    from confrank.metrics.arrays import Ints
    from confrank.training import Finished
    from confrank.training.jobs import Job


def _train_arguments(parser: Parser) -> None:
    from confrank.config import RunConfig

    titles = ("data", "network and method", "training", "recipe", "output", "computing")
    groups = {title: parser.add_argument_group(title) for title in titles}
    for item in dataclasses.fields(RunConfig):
        switch: dict[str, Any] = {"nargs": "?", "const": True} if item.type in (bool, bool | None) else {}
        groups[item.metadata["group"]].add_argument(
            f"--{item.name.replace('_', '-')}",
            type=item.type | str if item.name == "lr_drops" else item.type,
            default=item.default,
            metavar=item.metadata["metavar"],
            help=with_names(item.metadata["help"], item.name) + default_for_own_data(item.name, item.default),
            **switch,
        )
    add_root(groups["data"])
    seeds = "train one run per seed, e.g. 0,1,2,3: side by side on a GPU, one after the other on a CPU"
    add_option(groups["training"], "--seeds", str, "N,...", seeds)
    out = "run folder, or with --seeds the folder for all run folders (default: runs/NAME, named by the settings)"
    add_option(groups["output"], "--out", str, "FOLDER", out)
    add_checkpoint_minutes(groups["output"], 2.0)
    tensorboard = "tensorboard: also write the numbers of each epoch to tensorboard/ in the run folder"
    add_option(groups["output"], "--log", Literal["tensorboard"], "NAME", tensorboard)
    checkpoint_epochs = "also save a checkpoint every N epochs; 0: never"
    add_option(groups["output"], "--checkpoint-epochs", int, "N", checkpoint_epochs, 0)
    add_device(groups["computing"])
    path = "auto: CUDA graphs in bfloat16 where there is a GPU, in fused kernels for ResNet-110 and DenseNet-BC;"
    path += " compiled: without fused kernels; plain: eager float32 everywhere"
    add_option(groups["computing"], "--path", Literal["auto", "compiled", "plain"], "NAME", path, "auto")
    deterministic = "use only deterministic algorithms on a GPU (slower)"
    groups["computing"].add_argument(
        "--deterministic", type=bool, nargs="?", const=True, default=False, help=deterministic
    )
    config = "read settings from a YAML file, e.g. a run's config.yaml"
    parser.add_argument("--config", action="config", metavar="FILE", help=config)


def _defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the recipe for the data set, in place of the defaults: what is given still overrides them."""
    from confrank import recipes

    names, recipe = ("dataset", "model", "lr"), given.get("recipe", "paper")
    for file in (Path(str(one)) for one in given.get("config") or ()):
        if file.is_file() and "recipe" in given:
            _check_recipe(file, recipe)
    values = recipes.values(recipe, **{name: given[name] for name in names if name in given})
    return values | for_own_data(given)


def _check_recipe(file: Path, recipe: str) -> None:
    """Raise if a file of settings names another recipe: its values would be trained under this name."""
    import yaml

    stored = yaml.safe_load(file.read_text()).get("recipe", recipe)
    if stored != recipe:
        raise ValueError(
            f"expected --recipe {stored}, whose settings {file} holds, but got {recipe};"
            " leave out --recipe or --config"
        )


def _train(arguments: Arguments) -> None:
    import torch

    from confrank.report.progress import epoch_bar
    from confrank.training import Failed, TensorBoardLog, train_together

    at_least(0, arguments, "checkpoint_minutes", "checkpoint_epochs")
    device = device_of(arguments.device)
    configs = _configs(arguments)
    parent = Path(arguments.out or "runs")
    outs = [parent / item.run_name for item in configs]
    if arguments.out and arguments.seeds is None:
        outs = [parent]
    torch.use_deterministic_algorithms(arguments.deterministic, warn_only=True)
    console = make_console(lasting=True)
    folders = {item.run_name: out for item, out in zip(configs, outs, strict=True)}
    with ExitStack() as stack:
        bar = stack.enter_context(epoch_bar(console, sum(item.epochs for item in configs)))
        log = stack.enter_context(TensorBoardLog(folders)) if arguments.log else None

        def listen(config: "RunConfig", record: dict[str, Any]) -> None:
            bar.advance(config, record)
            if log is not None:
                log(config, record)

        results = train_together(
            configs,
            outs,
            root=root_of(arguments),
            device=device,
            path=arguments.path,
            checkpoint_minutes=arguments.checkpoint_minutes,
            checkpoint_epochs=arguments.checkpoint_epochs,
            on_start=lambda job: say(console, *_start_lines(job)),
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


def _start_lines(job: "Job") -> list[str]:
    """What is trained and where, for how long on data of the user's own, and how it differs from the recipe."""
    from confrank.data import LOADERS

    what, config = "already finished:" if job.run.finished else "training", job.run.config
    length = f"{counted(config.epochs, 'epoch')} with {config.optimizer}, initial learning rate {config.lr:g}"
    return [
        f"{what} {config.run_name} in {job.folder.path}",
        *([length, *_image_lines(job)] if config.dataset not in LOADERS else []),
        *_recipe_lines(config),
    ]


def _image_lines(job: "Job") -> list[str]:
    """Which settings are the defaults of your own images."""
    from confrank.config import RunConfig

    config, data = job.run.config, job.data
    usual = [f"{flag_of(name)} {value}" for name, value in IMAGE_DEFAULTS.items() if getattr(config, name) == value]
    if data.is_text or config.recipe != RunConfig.recipe or not usual:  # a recipe brings its own settings
        return []
    height, width, _ = data.train.images.shape[1:]
    return [
        f"defaults that suit your own images on a CPU ({len(data.train):,} of {width}x{height} pixels):"
        f" {', '.join(usual)}"
    ]


def _recipe_lines(config: "RunConfig") -> list[str]:
    """What differs from the recipe, and a learning rate that rises late."""
    from confrank.cli.plans import left_out_lines

    lines, unfit = left_out_lines(config), left_out(config.recipe, config.dataset, config.model)
    departures = [_as_flag(name, value) for name, value in config.departures.items() if name not in unfit]
    if config.recipe != "paper" and departures:
        lines.append(f"departures from the recipe {config.recipe}: {', '.join(departures)}")
    if config.averaging != "none" and (config.averaging_lr or 0) > config.lr:
        lines.append(
            f"warning: the learning rate rises from {config.lr:g} to {config.averaging_lr:g} while weights are"
            " averaged (--averaging-lr)"
        )
    return lines


def _as_flag(name: str, value: Any) -> str:
    """
    >>> _as_flag("lr_drops", [0.5, 0.75]), _as_flag("mirror", True)
    ('--lr-drops 0.5,0.75', '--mirror true')
    """
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{flag_of(name)} {','.join(map(str, value)) if isinstance(value, list) else text}"


def _configs(arguments: Arguments) -> "list[RunConfig]":
    """The config of each run: one per seed."""
    from confrank.config import RunConfig

    settings = {item.name: getattr(arguments, item.name) for item in dataclasses.fields(RunConfig)}
    config = RunConfig(**{**settings, "lr_drops": _shares(arguments.lr_drops)})
    return [dataclasses.replace(config, seed=seed) for seed in parse_seeds(arguments.seeds, config.seed)]


def _shares(given: tuple[float, ...] | str) -> tuple[float, ...]:
    """The numbers of a --lr-drops flag: the parser reads a list in brackets, and leaves one without to us."""
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
    """Print where finished runs, which differ in their seed alone, are and what they score."""
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
    say(console, *(warning for result in results for warning in _little_learned(result)))


def _little_learned(result: "Finished") -> list[str]:
    """A warning if guessing the most frequent class could reach the test accuracy by chance."""
    from confrank.predictions import load_predictions
    from confrank.report.verdict import percent
    from confrank.runs.folder import load_config

    evaluation, label = result.evaluations["test"], load_predictions(result.folder.predictions("test")).label
    accuracy = evaluation.metrics["acc"]
    if label is None or accuracy is None or (share := share_of_chance(accuracy, label)) is None:
        return []
    fitted = result.folder.read_log()[-1]["acc"]
    advice = _advice(load_config(result.folder.path))
    if fitted > (1 + share) / 2:  # longer training would not help
        advice = f"more training data, since the network fits those it has (accuracy {percent(fitted)})"
    return [
        f"warning: {result.folder.path}: the test accuracy, {percent(accuracy)}, is not clearly above the share of"
        f" the most frequent class, {percent(share)}; try {advice}"
    ]


def share_of_chance(accuracy: float, label: "Ints") -> float | None:
    """The share of the most frequent class if guessing it could reach this accuracy (5%, one-sided), None otherwise.

    In a test set so small that no accuracy would be clear, every accuracy above that share counts.
    """
    import numpy as np

    share = float(np.bincount(label).max()) / len(label)
    limit = share + 1.645 * (share * (1 - share) / len(label)) ** 0.5
    return None if accuracy == 1 or accuracy > (limit if limit < 1 else share) else share


def _advice(config: "RunConfig") -> str:
    """What to change in a training that learned little.

    >>> from confrank.config import RunConfig
    >>> _advice(RunConfig(model="convnet", method="baseline"))
    'a deeper --model, more --epochs or a lower --lr'
    """
    network = "--model convnet" if config.model in ("small", "mlp") else "a deeper --model"
    loss = [] if config.method == "baseline" else ["--method baseline"]
    *others, last = network, "more --epochs", "a lower --lr", *loss
    return f"{', '.join(others)} or {last}"


TRAIN = Command(
    "train a network, or resume training",
    "confrank train --dataset digits --model small --method crl-softmax --epochs 60 --seed 1",
    _train_arguments,
    _train,
    guide="how-to/train.md",
    defaults=_defaults,
)

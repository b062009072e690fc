"""Runs in words: what starts, how it departs from its recipe, and whether it learned anything."""

from typing import TYPE_CHECKING, Any

import numpy as np

from confrank.config import RunConfig
from confrank.data import LOADERS
from confrank.errors import counted, flag_of
from confrank.metrics.inputs import Ints
from confrank.predictions import load_predictions
from confrank.recipes import IMAGE_DEFAULTS, left_out
from confrank.report.verdict import percent
from confrank.runs.folder import load_config

if TYPE_CHECKING:
    from confrank.training import Finished
    from confrank.training.jobs import Job


def start_lines(job: "Job") -> list[str]:
    """What is trained and where, for how long on data of the user's own, and how it differs from the recipe."""
    what, config = "already finished:" if job.run.finished else "training", job.run.config
    length = f"{counted(config.epochs, 'epoch')} with {config.optimizer}, initial learning rate {config.lr:g}"
    return [
        f"{what} {config.run_name} in {job.folder.path}",
        *([length, *_image_lines(job)] if config.dataset not in LOADERS else []),
        *_recipe_lines(config),
    ]


def _image_lines(job: "Job") -> list[str]:
    """Which settings are the defaults of your own images."""
    config, data = job.run.config, job.data
    usual = [f"{flag_of(name)} {value}" for name, value in IMAGE_DEFAULTS.items() if getattr(config, name) == value]
    if data.is_text or config.recipe != RunConfig.recipe or not usual:  # a recipe brings its own settings
        return []
    height, width, _ = data.train.images.shape[1:]
    return [
        f"defaults that suit your own images on a CPU ({len(data.train):,} of {width}x{height} pixels):"
        f" {', '.join(usual)}"
    ]


def _recipe_lines(config: RunConfig) -> list[str]:
    """What differs from the recipe, and a learning rate that rises late."""
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


def little_learned(result: "Finished") -> list[str]:
    """A warning if guessing the most frequent class could reach the test accuracy by chance."""
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


def share_of_chance(accuracy: float, label: Ints) -> float | None:
    """The share of the most frequent class if guessing it could reach this accuracy (5%, one-sided), None otherwise.

    In a test set so small that no accuracy would be clear, every accuracy above that share counts.
    """
    share = float(np.bincount(label).max()) / len(label)
    limit = share + 1.645 * (share * (1 - share) / len(label)) ** 0.5
    return None if accuracy == 1 or accuracy > (limit if limit < 1 else share) else share


def _advice(config: RunConfig) -> str:
    """What to change in a training that learned little.

    >>> from confrank.config import RunConfig
    >>> _advice(RunConfig(model="convnet", method="baseline"))
    'a deeper --model, more --epochs or a lower --lr'
    """
    network = "--model convnet" if config.model in ("small", "mlp") else "a deeper --model"
    loss = [] if config.method == "baseline" else ["--method baseline"]
    *others, last = network, "more --epochs", "a lower --lr", *loss
    return f"{', '.join(others)} or {last}"


def left_out_lines(config: RunConfig) -> list[str]:
    """What the recipe of a run does not do for its data or its network."""
    return [f"recipe {config.recipe} without its {flag_of(name)}: {why}" for name, why in config.left_out.items()]

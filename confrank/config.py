"""The settings of a training run: plain values, the flags of `confrank train` and the keys of config.yaml."""

import math
import operator
import os
from collections.abc import Callable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from typing import Any, Literal, get_args, get_origin

from confrank import recipes
from confrank.errors import ParameterError
from confrank.method_facts import FACTS, facts_of


def _flag(default: Any, text: str, group: str, metavar: str | None = None) -> Any:
    """A field, with the help, heading and value name that the command line shows."""
    return field(default=default, metadata={"help": text, "group": group, "metavar": metavar})


DATA, NETWORK, TRAINING, OUTPUT = "data", "network and method", "training", "output"
RECIPE = "recipe"
# The methods that are trained; others average what these predict.
TRAINED = ", ".join(name for name, facts in FACTS.items() if facts.member is None)
# Settings of what is recorded during training; they do not change the network.
RECORDED = ("test_every", "snapshots")

MAX_PADDING = 256
TEXT_LENGTH, VOCABULARY_SIZE = 256, 30_000


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


# By setting or type, a function that makes a value plain (numpy's numbers become Python's), and the kind in words.
KINDS: dict[Any, tuple[Callable[[Any], Any], str]] = {
    "dataset": (os.fspath, "a name or a path"),
    str: (_text, "a name"),
    int: (operator.index, "a whole number"),
    float: (float, "a number"),
    bool: (lambda value: bool((False, True).index(value)), "true or false"),
    tuple[float, ...]: (lambda shares: tuple(map(float, shares)), "several numbers"),
}
# Settings that a run's name shows where they depart from the recipe; those before recipes only if it is not `paper`.
NAMED = (
    "schedule", "averaging", "averaging_start", "averaging_lr", "sam", "mix", "mix_weight", "soft_labels", "head",
    "mirror", "augment", "warm_up", "clip", "init", "text_length", "vocabulary_size",
)  # fmt: skip
NAMED_LATER = ("epochs", "batch_size", "lr", "lr_drops", "momentum", "weight_decay")
# What must hold for the values of these settings, and how a message says it.
RULES: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str], ...] = (
    (("epochs", "batch_size", "text_length", "vocabulary_size"), lambda value: value >= 1, "at least 1"),
    (("holdout", "averaging_start"), lambda value: 0 <= value < 1, "a share in [0, 1)"),
    (("soft_labels",), lambda value: 0 <= value <= 1, "a share in [0, 1]"),
    (("lr", "averaging_lr"), lambda value: 0 < value < math.inf, "positive"),
    (("sam", "mix_weight", "clip"), lambda value: 0 <= value < math.inf, "a finite number of at least 0"),
    (("momentum",), lambda value: value < 1, "below 1"),
    (("weight", "weight_decay"), lambda value: 0 <= value < math.inf, "at least 0 and finite"),
    (("momentum", "seed", "test_every", "padding", "warm_up"), lambda value: value >= 0, "at least 0"),
    (("padding",), lambda value: value <= MAX_PADDING, f"at most {MAX_PADDING}"),
    (("lr_drops",), lambda shares: all(0 < share <= 1 for share in shares), "shares in (0, 1]"),
)


def changes(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    """The settings that differ from those wanted, in words; empty if none does. An absent one has its default.

    >>> changes({"epochs": 3, "lr": 0.1}, {"epochs": 1})
    'epochs 3 (there: 1)'
    """
    there = {**RunConfig().as_dict(), **there}
    differing = [key for key in wanted if key not in RECORDED and there.get(key) != wanted[key]]
    return ", ".join(f"{key} {wanted[key]} (there: {there.get(key)})" for key in differing)


def usual_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """All settings as the recipe of a run sets them for its data set, network and learning rate."""
    recipe = config.get("recipe", "paper")
    depends_on = {key: config[key] for key in ("dataset", "model", "lr") if key in config}
    return {**RunConfig().as_dict(), **recipes.values(recipe, **depends_on), "recipe": recipe}


@dataclass(frozen=True)
class RunConfig:
    """One training run. The defaults are the paper's protocol for the ranking experiments."""

    dataset: str = _flag(
        "digits",
        "data set: digits, cifar10, cifar100, svhn, or the path of your own: a folder, or an .npz, .csv, .tsv or"
        " .jsonl file",
        DATA,
        "NAME",
    )
    model: str = _flag(
        "small",
        "network: small, convnet, mlp, vgg16, resnet110, densenet-bc, resnet18; for texts bag-of-embeddings or"
        " text-encoder; package.module:factory for your own",
        NETWORK,
        "NAME",
    )
    method: str = _flag("crl-softmax", f"what to train and how it predicts: {TRAINED}", NETWORK, "NAME")
    epochs: int = _flag(300, "passes over the training set", TRAINING)
    batch_size: int = _flag(128, "samples per step; the last batch of an epoch may be smaller", TRAINING)
    lr: float = _flag(0.1, "initial learning rate", TRAINING)
    lr_drops: tuple[float, ...] = _flag(
        (1 / 2, 5 / 6), "divide the learning rate by 10 after these shares of the epochs", TRAINING, "SHARE,..."
    )
    optimizer: Literal["sgd", "adamw"] = _flag("sgd", "optimizer: sgd or adamw", TRAINING, "NAME")
    momentum: float = _flag(0.9, "momentum of SGD", TRAINING)
    weight_decay: float = _flag(1e-4, "weight decay", TRAINING)
    weight: float = _flag(1.0, "weight of the ranking loss, for the crl-* methods", NETWORK)
    seed: int = _flag(0, "seed of the initial weights, the sample order and the augmentation", TRAINING)
    holdout: float = _flag(0.0, "share of the training set to hold out for validation, stratified", DATA, "SHARE")
    test_every: int = _flag(0, "also log test metrics every N epochs; 0: at the end only", OUTPUT)
    snapshots: bool = _flag(False, "save the test predictions of the epochs that AES averages", OUTPUT)
    image_size: int | None = _flag(
        None,
        "crop your own images to their central square and scale it to N pixels (default: 32 if they have several"
        " sizes or are larger than 64 pixels)",
        DATA,
        "N",
    )
    padding: int | None = _flag(
        None, "shift training images at random by up to N pixels (default: set by the data set)", DATA, "N"
    )
    flip: bool | None = _flag(
        None, "mirror half of the training images left to right (default: set by the data set)", DATA
    )
    recipe: str = _flag(
        "paper", f"how to train: {', '.join(recipes.RECIPES)}; sets the defaults of the others", RECIPE, "NAME"
    )
    schedule: Literal["step", "cosine", "constant"] = _flag(
        "step", "learning rate over the epochs (step: divided by 10 at each of the drops)", RECIPE, "NAME"
    )
    averaging: Literal["none", "swa", "ema"] = _flag(
        "none", "average the weights (swa: after each epoch; ema: moving average over the steps)", RECIPE, "NAME"
    )
    averaging_start: float = _flag(0.6, "share of the epochs after which averaging starts", RECIPE, "SHARE")
    averaging_lr: float | None = _flag(
        None, "learning rate while averaging (default: that of the schedule)", RECIPE, "X"
    )
    sam: float = _flag(0.0, "distance rho of sharpness-aware minimisation (SAM), e.g. 0.05; 0: off", RECIPE)
    mix: Literal["none", "mixup", "cutmix", "both"] = _flag(
        "none", "add a loss on mixed images (both: one or the other at each step)", RECIPE, "NAME"
    )
    mix_weight: float = _flag(1.0, "weight of the loss on mixed images", RECIPE)
    soft_labels: float = _flag(
        0.0,
        "mix each label with the network's earlier predictions for its sample, by a share that grows from 0 in the"
        " first epoch to this in the last; 0: off",
        RECIPE,
        "SHARE",
    )
    augment: Literal["none", "trivial", "trivial-half"] = _flag(
        "none",
        "change training images by random operations, after shift and flip (trivial: TrivialAugment;"
        " trivial-half: about every other image)",
        RECIPE,
        "NAME",
    )
    head: Literal["linear", "cosine"] = _flag(
        "linear", "last layer (cosine: 8 times the cosine between features and class weights)", RECIPE, "NAME"
    )
    warm_up: int = _flag(0, "epochs over which the learning rate rises to that of the schedule; 0: none", TRAINING)
    clip: float = _flag(0.0, "largest norm of the gradient; longer ones are scaled down to it; 0: no limit", TRAINING)
    init: str = _flag(
        "",
        "start from the weights of a run folder or .safetensors file; other classes get a new head",
        NETWORK,
        "FILE",
    )
    mirror: bool = _flag(False, "predict with the mean of each image and its mirror image", RECIPE)
    text_length: int = _flag(TEXT_LENGTH, "words of each text to use; the rest is cut off", DATA, "N")
    vocabulary_size: int = _flag(
        VOCABULARY_SIZE, "most frequent words of the training texts to know; others are unknown", DATA, "N"
    )

    def __post_init__(self) -> None:
        for item in fields(self):
            name, value, choices = item.name, getattr(self, item.name), _choices(item)
            if choices and value not in choices:
                article = "an" if name[0] in "aeiou" else "a"
                raise ValueError(f"expected {article} {name} among {', '.join(choices)}, but got {value!r}")
            if choices or value is item.default is None:
                continue
            plain, what = next(KINDS[key] for key in (name, item.type, *get_args(item.type)) if key in KINDS)
            try:
                object.__setattr__(self, name, plain(value))
            except (TypeError, ValueError):
                raise ParameterError(name, f"to be {what}, but got {value!r}") from None
        for names, holds, what in RULES:
            for name in names:
                if (value := getattr(self, name)) is not None and not holds(value):
                    raise ParameterError(name, f"to be {what}, but got {value}")

    @property
    def run_name(self) -> str:
        return f"{self.name_without_seed}-seed{self.seed}"

    @property
    def name_without_seed(self) -> str:
        dataset = short_name(self.dataset)
        weighted = self.weight != RunConfig.weight and facts_of(self.method).weighted
        weight = f"-weight{self.weight:g}" if weighted else ""
        optimizer = "" if self.optimizer == RunConfig.optimizer else f"-{self.optimizer}"
        return f"{dataset}-{self.model.replace(':', '.')}-{self.method}{weight}{optimizer}{self._recipe_name}"

    @property
    def reading(self) -> dict[str, Any]:
        """How your own data are read: the arguments of `confrank.data.load` that are settings of a run."""
        return {name: getattr(self, name) for name in ("image_size", "text_length", "vocabulary_size")}

    @property
    def departures(self) -> dict[str, Any]:
        """The settings of how to train that differ from those of the recipe, except the held-out share."""
        mine = self.as_dict()
        usual = usual_settings(mine)
        return {name: mine[name] for name in (*NAMED_LATER, *NAMED) if mine[name] != usual[name]}

    @property
    def left_out(self) -> dict[str, str]:
        """The settings of the recipe that these data or this network cannot have, each with the reason in words."""
        reasons, usual = recipes.left_out(self.recipe, self.dataset, self.model), usual_settings(self.as_dict())
        return {name: why for name, why in reasons.items() if getattr(self, name) == usual[name]}

    @property
    def _recipe_name(self) -> str:
        """The end of a name: the recipe and departures from it; empty for runs as there were before recipes."""
        is_paper = self.recipe == "paper"
        departures = {key: value for key, value in self.departures.items() if key in NAMED or not is_paper}
        departures |= {"holdout": self.holdout} if self.holdout else {}
        return "".join(["" if is_paper else f"-{self.recipe}", *map(tag, departures, departures.values())])

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "lr_drops": list(self.lr_drops)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "RunConfig":
        """The config of a mapping as in config.yaml; an unknown key is an error, a missing one has its default."""
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"expected run settings among {', '.join(sorted(known))}, but got {', '.join(unknown)}")
        return cls(**values)


def _choices(item: Field[Any]) -> tuple[str, ...]:
    """The values that a setting may have; empty if they are not listed."""
    if item.name == "recipe":
        return tuple(recipes.RECIPES)
    return get_args(item.type) if get_origin(item.type) is Literal else ()


def short_name(dataset: str) -> str:
    """The name of a data set in names of files: the last part of a path, without the ending of a file of data.

    >>> short_name("cifar10"), short_name("data/reviews.csv"), short_name("data/pets/")
    ('cifar10', 'reviews', 'pets')
    """
    name = os.path.basename(os.path.abspath(dataset))
    for suffix in (".npz", *recipes.TEXT_SUFFIXES):
        name = name.removesuffix(suffix)
    return name


def tag(name: str, value: Any) -> str:
    """A setting in the name of a run.

    >>> tag("averaging_lr", 0.05), tag("mix", "cutmix"), tag("mirror", True), tag("lr_drops", [0.5, 0.75])
    ('-averaginglr0.05', '-mixcutmix', '-mirror', '-lrdrops0.5,0.75')
    """
    if name == "init":
        text = f"-{os.path.basename(os.path.abspath(value)).removesuffix('.safetensors')}"
    elif isinstance(value, list):
        text = ",".join(f"{one:g}" for one in value)
    elif isinstance(value, bool):
        text = "" if value else "off"
    else:
        text = f"{value:g}" if isinstance(value, float) else str(value).lower()
    return f"-{name.replace('_', '')}{text}"


def first_averaged(config: RunConfig) -> int:
    """The epoch, of 0..epochs-1, from which on weights are averaged; at least the last one is.

    >>> first_averaged(RunConfig(epochs=200)), first_averaged(RunConfig(epochs=1))
    (120, 0)
    """
    return min(math.floor(config.averaging_start * config.epochs + 0.5), config.epochs - 1)


def learning_rate(config: RunConfig, epoch: int) -> float:
    """The rate in epoch 0..epochs-1, by the schedule; while weights are averaged, `averaging_lr` if it is given.

    The step schedule divides it by 10 at each drop that has passed, the cosine schedule takes it to 0 at the end.
    During a warm-up of w epochs it is 1/(w + 1), 2/(w + 1), ... of that.

    >>> [learning_rate(RunConfig(), epoch) for epoch in (0, 149, 150, 249, 250)]
    [0.1, 0.1, 0.01, 0.01, 0.001]
    >>> learning_rate(RunConfig(epochs=1), 0)  # halves are rounded up: no drop before the first epoch
    0.1
    """
    return _scheduled(config, epoch) * min(1.0, (epoch + 1) / (config.warm_up + 1))


def _scheduled(config: RunConfig, epoch: int) -> float:
    if config.averaging != "none" and config.averaging_lr is not None and epoch >= first_averaged(config):
        return config.averaging_lr
    if config.schedule == "constant":
        return config.lr
    if config.schedule == "cosine":
        return config.lr * (1 + math.cos(math.pi * epoch / config.epochs)) / 2
    drops = sum(epoch >= math.floor(share * config.epochs + 0.5) for share in config.lr_drops)
    return config.lr / 10.0**drops

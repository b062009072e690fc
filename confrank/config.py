"""The settings of a training run: plain values, the flags of `confrank train` and the keys of config.yaml."""

import math
import operator
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from confrank.method_facts import facts_of


def _flag(default: Any, text: str, group: str, metavar: str | None = None) -> Any:
    """A field, with the help, heading and value name that the command line shows."""
    return field(default=default, metadata={"help": text, "group": group, "metavar": metavar})


DATA, NETWORK, TRAINING, OUTPUT = "data", "network and method", "training", "output"
OPTIMIZERS = ("sgd", "adamw")
# Settings of what is recorded during training; they do not change the network.
RECORDED = ("test_every", "snapshots")

MAX_PADDING = 256


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


# For each setting a function that makes it a plain value (numpy's numbers become Python's), and its kind in words.
KINDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "dataset": (os.fspath, "a name or a path"),
    **dict.fromkeys(("model", "method"), (_text, "a name")),
    **dict.fromkeys(
        ("epochs", "batch_size", "seed", "test_every", "image_size", "padding"), (operator.index, "a whole number")
    ),
    "flip": (lambda value: bool((False, True).index(value)), "true or false"),
    **dict.fromkeys(("lr", "momentum", "weight_decay", "weight", "holdout"), (float, "a number")),
    "lr_drops": (lambda shares: tuple(map(float, shares)), "several numbers"),
}
# What must hold for the values of these settings, and how a message says it.
RULES: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str], ...] = (
    (("epochs", "batch_size"), lambda value: value >= 1, "at least 1"),
    (("holdout",), lambda value: 0 <= value < 1, "a share in [0, 1)"),
    (("lr",), lambda value: 0 < value < math.inf, "positive"),
    (("momentum",), lambda value: value < 1, "below 1"),
    (("weight", "weight_decay"), lambda value: 0 <= value < math.inf, "at least 0 and finite"),
    (("momentum", "seed", "test_every", "padding"), lambda value: value >= 0, "at least 0"),
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


@dataclass(frozen=True)
class RunConfig:
    """One training run. The defaults are the paper's protocol for the ranking experiments."""

    dataset: str = _flag(
        "digits", "data set by name, or the path of your own: a folder or an .npz file", DATA, "NAME"
    )
    model: str = _flag("small", "network by name, or package.module:factory for your own", NETWORK, "NAME")
    method: str = _flag("crl-softmax", "what to train and how it predicts", NETWORK, "NAME")
    epochs: int = _flag(300, "passes over the training set", TRAINING)
    batch_size: int = _flag(128, "samples per step; the last batch of an epoch may be smaller", TRAINING)
    lr: float = _flag(0.1, "initial learning rate", TRAINING)
    lr_drops: tuple[float, ...] = _flag(
        (1 / 2, 5 / 6), "divide the learning rate by 10 after these shares of the epochs", TRAINING, "SHARE,..."
    )
    optimizer: Literal["sgd", "adamw"] = _flag("sgd", "optimizer", TRAINING)
    momentum: float = _flag(0.9, "momentum of SGD", TRAINING)
    weight_decay: float = _flag(1e-4, "weight decay", TRAINING)
    weight: float = _flag(1.0, "weight of the ranking loss, for the crl-* methods", NETWORK)
    seed: int = _flag(0, "seed of the initial weights, the sample order and the augmentation", TRAINING)
    holdout: float = _flag(0.0, "share of the training set to hold out for validation, stratified", DATA, "SHARE")
    test_every: int = _flag(0, "also log test metrics every N epochs; 0: at the end only", OUTPUT)
    snapshots: bool = _flag(False, "save the test predictions of the epochs that AES averages", OUTPUT)
    image_size: int | None = _flag(
        None, "crop your own images to their central square and scale it to N pixels", DATA, "N"
    )
    padding: int | None = _flag(
        None, "shift training images at random by up to N pixels (default: set by the data set)", DATA, "N"
    )
    flip: bool | None = _flag(
        None, "mirror half of the training images left to right (default: set by the data set)", DATA
    )

    def __post_init__(self) -> None:
        for name, (plain, what) in KINDS.items():
            if (value := getattr(self, name)) is None and getattr(RunConfig, name) is None:
                continue
            try:
                object.__setattr__(self, name, plain(value))
            except (TypeError, ValueError):
                raise ValueError(f"expected {name} to be {what}, but got {value!r}") from None
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"expected an optimizer among {', '.join(OPTIMIZERS)}, but got {self.optimizer!r}")
        for names, holds, what in RULES:
            for name in names:
                if (value := getattr(self, name)) is not None and not holds(value):
                    raise ValueError(f"expected {name} to be {what}, but got {value}")

    @property
    def run_name(self) -> str:
        return f"{self.name_without_seed}-seed{self.seed}"

    @property
    def name_without_seed(self) -> str:
        dataset = os.path.basename(os.path.abspath(self.dataset)).removesuffix(".npz")  # a path gives its last part
        weighted = self.weight != RunConfig.weight and facts_of(self.method).weighted
        weight = f"-weight{self.weight:g}" if weighted else ""
        optimizer = "" if self.optimizer == RunConfig.optimizer else f"-{self.optimizer}"
        return f"{dataset}-{self.model.replace(':', '.')}-{self.method}{weight}{optimizer}"

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


def learning_rate(config: RunConfig, epoch: int) -> float:
    """The rate in epoch 0..epochs-1: divided by 10 at each drop that has passed.

    >>> [learning_rate(RunConfig(), epoch) for epoch in (0, 149, 150, 249, 250)]
    [0.1, 0.1, 0.01, 0.01, 0.001]
    >>> learning_rate(RunConfig(epochs=1), 0)  # halves are rounded up: no drop before the first epoch
    0.1
    """
    drops = sum(epoch >= math.floor(share * config.epochs + 0.5) for share in config.lr_drops)
    return config.lr / 10.0**drops

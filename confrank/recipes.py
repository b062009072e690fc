"""How a network is trained, by name: settings with their source, their cost and what to expect of them.

To add a recipe, add it to `RECIPES`. Your own images and texts have defaults of their own. All are plain values:
`confrank.config` builds on them.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confrank.config import RunConfig


@dataclass(frozen=True)
class TrainingRecipe:
    """Settings of `confrank.config.RunConfig` that differ from their defaults.

    source: who proposed it. passes: forward and backward passes of a step, in units of a plain step.
    expected: a result to compare with. published: by data set, the AURC that others give for ResNet-18 and 45,000
    training images. by_dataset: settings that differ for a data set. The setting `averaging_lr` is given by its share
    of `lr`, as `averaging_lr_share`.
    """

    source: str
    passes: int
    expected: str
    settings: Mapping[str, Any]
    by_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)


# The training of the paper's ranking experiments: SGD for 300 epochs, learning rate divided by 10 twice.
PAPER = TrainingRecipe(
    source="Moon et al., Confidence-Aware Learning for Deep Neural Networks, ICML 2020",
    passes=1,
    expected="VGG-16, CIFAR-100, crl-softmax, 50,000 training images: AURC x10^3 71.83 ± 0.47",
    settings={},  # the defaults of `RunConfig`
)

# Flat minima for failure prediction: SAM and SWA, with cross-entropy alone.
# The schedule is that of the code published with SURE, whose tables the expected result is from. Its learning rate
# reaches that of averaging over ten epochs, ours at once.
FMFP = TrainingRecipe(
    source="Zhu et al., Rethinking Confidence Calibration for Failure Prediction, ECCV 2022",
    passes=2,
    expected="ResNet-18, 45,000 training images: AURC x10^3 3.56 on CIFAR-10, 55.0 on CIFAR-100",
    settings={
        "method": "baseline",
        "epochs": 200,
        "weight_decay": 5e-4,
        "schedule": "cosine",
        "averaging": "swa",
        "averaging_start": 0.6,
        "averaging_lr_share": 0.5,
        "sam": 0.05,
    },
    published={"cifar10": 0.00356, "cifar100": 0.0550},
)

# SURE: FMFP with RegMixup, CRL and a cosine head.
# The published code stretches the correctness rates, and halves two weights for CIFAR-10. It passes clean and mixed
# images through the network separately, and draws them anew for SAM's second pass; we pass them together, as
# RegMixup's code does, and draw them once.
SURE = TrainingRecipe(
    source="Li et al., SURE: SUrvey REcipes for building reliable and robust deep networks, CVPR 2024",
    passes=4,
    expected="ResNet-18, 45,000 training images: AURC x10^3 2.97 on CIFAR-10, 45.8 on CIFAR-100",
    settings={
        **FMFP.settings,
        "method": "crl-softmax-stretched",
        "weight": 1.0,
        "mix": "mixup",
        "mix_weight": 1.0,
        "head": "cosine",
    },
    by_dataset={"cifar10": {"weight": 0.5, "mix_weight": 0.5}},
    published={"cifar10": 0.00297, "cifar100": 0.0458},
)

# Ours, at the cost of two passes: averaged weights at a low rate, mixed images, soft labels and a cosine head.
# Chosen on held-out training images (docs/evidence/record.md). On CIFAR-10 the choice of the head rests on one seed.
BEST = TrainingRecipe(
    source="confrank",
    passes=2,
    expected="ResNet-18, 45,000 training images: AURC x10^3 2.31 ± 0.02 on CIFAR-10 (two seeds),"
    " 40.52 ± 0.55 on CIFAR-100 (three)",
    settings={
        "method": "baseline",
        "epochs": 200,
        "weight_decay": 5e-4,
        "schedule": "cosine",
        "averaging": "swa",
        "averaging_start": 0.6,
        "averaging_lr_share": 0.2,
        "mix": "both",
        "mix_weight": 1.0,
        "soft_labels": 0.8,
        "head": "cosine",
    },
)

RECIPES: dict[str, TrainingRecipe] = {"paper": PAPER, "fmfp": FMFP, "sure": SURE, "best": BEST}

TEXT_SUFFIXES = (".csv", ".tsv", ".jsonl")
# SGD hardly moves the vectors of rare words, CRL harms (docs/when-to-use.md), and of 5, 20, 60 and 200 epochs on
# 4,000 reviews, 20 ranked best (experiments/when_imdb_epyc-2core_202611.md).
TEXT_DEFAULTS = {"model": "bag-of-embeddings", "method": "baseline", "optimizer": "adamw", "lr": 0.003}
TEXT_TRAINING: dict[str, Any] = {**TEXT_DEFAULTS, "epochs": 20}
# With fewer steps, the network is still near its random start: on 80, 240 and 800 texts, about 400 steps gave a
# lower NLL than 20 epochs, and many more did not help (experiments/text_epochs_epyc-2core_202611.md).
TEXT_STEPS = 400
# The settings of recipes that texts do without, each with the reason in words.
WITHOUT = {
    "epochs": f"texts are trained for {TEXT_TRAINING['epochs']}",
    "mix": "texts cannot be mixed",
    "soft_labels": "on texts they made the ranking worse",  # experiments/soft_labels_epyc-2core_202611.md
}

# On 300 to 600 drawn shapes, digits, clothes and photos of about 32x32 pixels, this reached the accuracy and AURC of
# SGD or better and never ended at chance; CRL did not rank better at this length
# (experiments/own_defaults_epyc-2core_202611.md).
IMAGE_DEFAULTS: dict[str, Any] = {
    "model": "convnet",
    "method": "baseline",
    "optimizer": "adamw",
    "lr": 0.001,
    "batch_size": 32,
}
# What the optimizer's other settings suit: with SGD they have the defaults of SGD.
ADAMW_SETTINGS, SGD_BATCH_SIZE = ("optimizer", "lr", "batch_size"), 128
EPOCHS, FEWEST_EPOCHS, SAMPLES, IMAGE_STEPS = 60, 20, 300_000, 600
# Images with longer sides, or of several sizes, are scaled to this: four times the pixels take four times as long.
IMAGE_SIZE, LONGEST_SIDE = 32, 64


def values(name: str, dataset: str = "", model: str = "", lr: float | None = None) -> dict[str, Any]:
    """The settings of a recipe that differ from the defaults, for a data set and network; an error lists the names.

    Texts have defaults of their own. `lr` is the learning rate if it is given: that of averaging is a share of it.

    >>> values("sure", "cifar10")["mix_weight"], values("paper"), values("paper", "reviews.csv")["epochs"]
    (0.5, {}, 20)
    >>> values("best", lr=0.01)["averaging_lr"]
    0.002
    """
    from confrank.config import RunConfig

    unfit = left_out(name, dataset, model)
    fitting = {key: value for key, value in _of_recipe(name, dataset).items() if key not in unfit}
    chosen = {**(TEXT_TRAINING if holds_texts(dataset) else {}), **fitting}
    if (share := chosen.pop("averaging_lr_share", None)) is not None:
        given = chosen.get("lr", RunConfig.lr) if lr is None else lr
        chosen["averaging_lr"] = float(f"{share * given:.12g}")  # 0.2 x 0.1 is 0.02
    return chosen


def left_out(name: str, dataset: str, model: str = "") -> dict[str, str]:
    """The settings of a recipe that a data set or a network cannot have, each with the reason.

    >>> left_out("fmfp", "reviews.csv"), list(left_out("best", "reviews.csv"))
    ({'epochs': 'texts are trained for 20'}, ['epochs', 'mix', 'soft_labels'])
    """
    reasons = dict(WITHOUT) if holds_texts(dataset) else {}
    if ":" in model:
        reasons["head"] = "your own network has a head"
    return {setting: why for setting, why in reasons.items() if setting in _of_recipe(name, dataset)}


def _of_recipe(name: str, dataset: str) -> dict[str, Any]:
    if name not in RECIPES:
        raise ValueError(f"expected a recipe among {', '.join(RECIPES)}, but got {name!r}")
    recipe = RECIPES[name]
    return {**recipe.settings, **recipe.by_dataset.get(dataset, {})}


def settings(name: str, **changes: Any) -> "RunConfig":
    """The config of a recipe, with these settings in place of its own.

    >>> config = settings("best", dataset="cifar100", model="resnet18", seed=1, epochs=100)
    >>> config.averaging, config.departures
    ('swa', {'epochs': 100})
    """
    from confrank.config import RunConfig

    depends_on = {key: changes[key] for key in ("dataset", "model", "lr") if key in changes}
    return RunConfig.from_dict({**values(name, **depends_on), **changes, "recipe": name})


def image_defaults(num_images: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for this many training images of your own; they depend on the optimizer and batch size given.

    >>> image_defaults(480, {"optimizer": "sgd"})
    {'model': 'convnet', 'method': 'baseline', 'epochs': 150}
    """
    unsuited = () if given.get("optimizer", "adamw") == "adamw" else ADAMW_SETTINGS
    chosen = {name: value for name, value in IMAGE_DEFAULTS.items() if name not in unsuited}
    batch_size = given.get("batch_size", chosen.get("batch_size", SGD_BATCH_SIZE))
    return {**chosen, "epochs": image_epochs(num_images, batch_size)}


def image_epochs(num_images: int, batch_size: int) -> int:
    """Passes over this many training images: fewer for many, so that training takes minutes, and more for very few.

    >>> image_epochs(60, 32), image_epochs(480, 32), image_epochs(10_000, 32), image_epochs(50_000, 32)
    (300, 60, 30, 20)
    """
    steps = max(1, math.ceil(num_images / max(1, batch_size)))
    affordable = max(FEWEST_EPOCHS, min(EPOCHS, SAMPLES // max(1, num_images)))
    return max(affordable, math.ceil(IMAGE_STEPS / steps))


def text_epochs(num_texts: int, batch_size: int) -> int:
    """Passes over this many training texts: the default, or more for few texts.

    >>> text_epochs(80, 128), text_epochs(800, 128), text_epochs(20_000, 128)
    (400, 58, 20)
    """
    steps = max(1, math.ceil(num_texts / max(1, batch_size)))
    return max(int(TEXT_TRAINING["epochs"]), math.ceil(TEXT_STEPS / steps))


def holds_texts(dataset: str) -> bool:
    """Whether a data set is a file of texts, by its ending.

    >>> holds_texts("reviews.csv"), holds_texts("cifar10")
    (True, False)
    """
    return os.path.splitext(dataset)[1].lower() in TEXT_SUFFIXES

"""Training on your own images: the defaults of a folder or an .npz file, which the published data sets do without."""

import math
from collections.abc import Mapping
from typing import Any

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
EPOCHS, FEWEST_EPOCHS, SAMPLES, MIN_STEPS = 60, 20, 300_000, 600
# Images with longer sides, or of several sizes, are scaled to this: four times the pixels take four times as long.
IMAGE_SIZE, LONGEST_SIDE = 32, 64


def image_defaults(num_images: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for this many training images of your own; they depend on the optimizer and batch size given.

    >>> image_defaults(480, {"optimizer": "sgd"})
    {'model': 'convnet', 'method': 'baseline', 'epochs': 150}
    """
    left_out = () if given.get("optimizer", "adamw") == "adamw" else ADAMW_SETTINGS
    chosen = {name: value for name, value in IMAGE_DEFAULTS.items() if name not in left_out}
    batch_size = given.get("batch_size", chosen.get("batch_size", SGD_BATCH_SIZE))
    return {**chosen, "epochs": image_epochs(num_images, batch_size)}


def image_epochs(num_images: int, batch_size: int) -> int:
    """Passes over this many training images: fewer for many, so that training takes minutes, and more for very few.

    >>> image_epochs(60, 32), image_epochs(480, 32), image_epochs(10_000, 32), image_epochs(50_000, 32)
    (300, 60, 30, 20)
    """
    steps = max(1, math.ceil(num_images / max(1, batch_size)))
    affordable = max(FEWEST_EPOCHS, min(EPOCHS, SAMPLES // max(1, num_images)))
    return max(affordable, math.ceil(MIN_STEPS / steps))

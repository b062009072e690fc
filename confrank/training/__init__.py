"""Training: one step, a captured step, the loop around runs side by side.

The names are imported on first use. The ingredients (averaging, SAM, mixing, soft labels, TrivialAugment) need only
torch and numpy, and work in any loop.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confrank.training.averaging import EMA_DECAY, WeightAverage, estimate_statistics
    from confrank.training.loop import (
        Failed,
        Finished,
        InterruptedRunError,
        Options,
        TensorBoardLog,
        train,
        train_together,
    )
    from confrank.training.mixing import Mixing, epoch_mixing, mix, mixed_loss
    from confrank.training.run import DivergedError, Run
    from confrank.training.sharpness import Sharpness
    from confrank.training.soft_labels import SoftLabels
    from confrank.training.trivial_augment import change, epoch_changes

_NAMES = {
    "averaging": ("EMA_DECAY", "WeightAverage", "estimate_statistics"),
    "loop": ("Failed", "Finished", "InterruptedRunError", "Options", "TensorBoardLog", "train", "train_together"),
    "mixing": ("Mixing", "epoch_mixing", "mix", "mixed_loss"),
    "run": ("DivergedError", "Run"),
    "sharpness": ("Sharpness",),
    "soft_labels": ("SoftLabels",),
    "trivial_augment": ("change", "epoch_changes"),
}

__all__ = [
    "EMA_DECAY",
    "DivergedError",
    "Failed",
    "Finished",
    "InterruptedRunError",
    "Mixing",
    "Options",
    "Run",
    "Sharpness",
    "SoftLabels",
    "TensorBoardLog",
    "WeightAverage",
    "change",
    "epoch_changes",
    "epoch_mixing",
    "estimate_statistics",
    "mix",
    "mixed_loss",
    "train",
    "train_together",
]

if not TYPE_CHECKING:  # a type checker that saw this function would accept any name

    def __getattr__(name: str) -> object:
        for module, names in _NAMES.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

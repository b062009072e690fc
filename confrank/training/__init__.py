"""Training: one step, a captured step, the loop around runs side by side."""

from confrank.training.averaging import WeightAverage, estimate_statistics
from confrank.training.loop import Failed, Finished, InterruptedRunError, Options, train, train_together
from confrank.training.run import DivergedError, Run
from confrank.training.sharpness import Sharpness

__all__ = [
    "DivergedError",
    "Failed",
    "Finished",
    "InterruptedRunError",
    "Options",
    "Run",
    "Sharpness",
    "WeightAverage",
    "estimate_statistics",
    "train",
    "train_together",
]

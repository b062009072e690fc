"""Training: one step, a captured step, the loop around runs side by side."""

from confrank.training.loop import Failed, Finished, InterruptedRunError, Options, train, train_together
from confrank.training.run import DivergedError, Run

__all__ = ["DivergedError", "Failed", "Finished", "InterruptedRunError", "Options", "Run", "train", "train_together"]

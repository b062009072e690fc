"""Training: one step, the loop around it."""

from confrank.training.loop import Finished, InterruptedRunError, train
from confrank.training.run import DivergedError, Run

__all__ = ["DivergedError", "Finished", "InterruptedRunError", "Run", "train"]

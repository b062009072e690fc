"""Training: one step, a captured step, the loop around runs side by side, several processes."""

from confrank.training.averaging import WeightAverage, estimate_statistics
from confrank.training.loop import Failed, Finished, InterruptedRunError, Options, train, train_together
from confrank.training.processes import ALONE, LostPeerError, PeerError, Processes, connected, launched, local_device
from confrank.training.run import DivergedError, Run
from confrank.training.sharpness import Sharpness
from confrank.training.tensorboard import TensorBoardLog

__all__ = [
    "ALONE",
    "DivergedError",
    "Failed",
    "Finished",
    "InterruptedRunError",
    "LostPeerError",
    "Options",
    "PeerError",
    "Processes",
    "Run",
    "Sharpness",
    "TensorBoardLog",
    "WeightAverage",
    "connected",
    "estimate_statistics",
    "launched",
    "local_device",
    "train",
    "train_together",
]
